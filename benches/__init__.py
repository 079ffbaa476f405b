"""Benches: what the library costs, as ratios to limits that are measured in the same run.

`python -m benches writer|codec|read|start` prints tables, with `--json` one object a line.
A figure without its limit says more about the machine than about the code.
"""
