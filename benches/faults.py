"""The long runs of the fault harnesses, one after the other: `python -m benches faults`.

Each is a process of its own, `python -m tests.faults …`; what it says meanwhile goes to stderr, its figures
into `docs/reliability.md` as soon as it is done. `--quick` runs each for moments and writes nothing.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from benches.reliability import Told, machine_name, read_results, write_results

__all__ = ["LONG", "QUICK", "fault_runs"]

_PROJECT = Path(__file__).resolve().parents[1]

LONG: dict[str, tuple[str, ...]] = {
    "sweep": ("sweep",),
    "pairs": ("sweep", "--pairs", "2000", "--seed", "2"),
    "power": ("power", "--states", "150", "--faults", "60", "--seed", "3"),
    "kill": ("kill", "--runs", "1000"),
    "soak": ("soak", "--minutes", "30"),
    "fuzz": ("fuzz", "--inputs", "1000000"),
    "locks": ("locks", "--seconds", "60", "--seed", "3"),
    "prefixes": ("prefixes", "--histories", "500"),
    "disk": ("disk",),
    "mutants": ("mutants",),
}
"""What proves the most first. Together some hours on two cores."""

QUICK: dict[str, tuple[str, ...]] = {
    "sweep": ("sweep", "--workload", "store_kept", "--sample", "40"),
    "pairs": ("sweep", "--workload", "five", "--pairs", "20"),
    "power": ("power", "--workload", "store_forked", "--states", "100"),
    "kill": ("kill", "--runs", "8"),
    "soak": ("soak", "--seconds", "30"),
    "fuzz": ("fuzz", "--inputs", "500"),
    "locks": ("locks", "--seconds", "3", "--kind", "flock"),
    "prefixes": ("prefixes", "--histories", "3"),
    "disk": ("disk", "no_inode_left"),
    "mutants": ("mutants", "sync_error_ignored", "archive_not_synced"),
}


def fault_runs(names: list[str] | None, *, quick: bool, document: Path) -> Iterator[Told]:
    """Run those that are named, or all; gives what each one said. Long ones are kept in the document.

    Raises:
        RuntimeError: a harness broke down by itself.
    """
    runs = QUICK if quick else LONG
    results = read_results(document.with_suffix(".json"))
    for name in names or runs:
        told = _run(runs[name])
        if not quick:
            results[name] = told
            write_results({each: results[each] for each in runs if each in results}, document)
        yield told


def _run(arguments: tuple[str, ...]) -> Told:
    command = ["-m", "tests.faults", *arguments]
    print(f"python {' '.join(command)}", file=sys.stderr, flush=True)
    result = subprocess.run(
        [sys.executable, *command, "--json"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        cwd=_PROJECT,
    )
    if not result.stdout.startswith("{"):
        raise RuntimeError(f"python {' '.join(command)} ended with {result.returncode} and said nothing")
    told: Told = json.loads(result.stdout)
    date = f"{datetime.now(UTC):%Y-%m-%d}"
    return {**told, "date": date, "machine": machine_name(), "command": f"python {' '.join(command)}"}
