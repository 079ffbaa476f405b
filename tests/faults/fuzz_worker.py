"""The process that is fuzzed: it judges inputs by number, in bounded memory, and says where it is.

Each line on stdin is a job, each line on stdout its answer, both JSON. The number of the input under way
stands in the first eight bytes of a shared file: whoever watches learns it even if this process dies or
never comes back.

    python -m tests.faults.fuzz_worker PROGRESS
"""

from __future__ import annotations

import faulthandler
import json
import mmap
import resource
import struct
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.faults import mutants
from tests.faults.fuzz_input import Input, Verdict, judge, make_input, minimise
from tests.faults.fuzz_samples import samples_of
from tests.faults.fuzz_targets import TARGETS, Workshop, kind_of

__all__ = ["MEMORY_BYTES_MAX", "PROGRESS"]

PROGRESS = struct.Struct("<q")
MEMORY_BYTES_MAX = 512 << 20
"""Of address space, beyond what the process has once it knows all samples."""


class _Worker:
    def __init__(self, progress: mmap.mmap) -> None:
        self.shop = Workshop()
        self.progress = progress

    def answer(self, job: dict[str, Any]) -> dict[str, Any]:
        if "file" in job:
            return {"failures": self._judge_file(Path(job["file"]))}
        given = job.get("minimise")
        if given is not None:
            found = make_input(job["seed"], given, job["targets"])
            minimise(found, job["kind"], self.shop).write(Path(job["to"]))
            return {}
        return self._judge_many(job["seed"], range(*job["range"]), job["targets"])

    def _judge_file(self, path: Path) -> list[dict[str, Any]]:
        given = Input.read(path)
        verdict = judge(given, self.shop)
        return [] if verdict is None else [_failure(given, verdict)]

    def _judge_many(self, seed: int, numbers: range, targets: list[str]) -> dict[str, Any]:
        counts: Counter[str] = Counter()
        spent: Counter[str] = Counter()
        slowest: dict[str, tuple[float, int]] = {}
        failures = []
        for number in numbers:
            PROGRESS.pack_into(self.progress, 0, number)
            given = make_input(seed, number, targets)
            begin = time.process_time()
            verdict = judge(given, self.shop)
            took = time.process_time() - begin
            counts[given.target] += 1
            spent[given.target] += round(took * 1e6)
            slowest[given.target] = max(slowest.get(given.target, (0.0, 0)), (took, number))
            if verdict is not None:
                failures.append(_failure(given, verdict))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return {"counts": counts, "spent": spent, "slowest": slowest, "failures": failures, "rss_kb": peak}


def _failure(given: Input, verdict: Verdict) -> dict[str, Any]:
    return {"target": given.target, "number": given.number, "kind": verdict.kind, "text": verdict.text}


def _bound_memory() -> None:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmSize:"):
            limit = (int(line.split()[1]) << 10) + MEMORY_BYTES_MAX
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _main() -> None:
    faulthandler.enable()
    mutants.plant_from_environment()
    for name in TARGETS:
        samples_of(kind_of(name))
    with open(sys.argv[1], "r+b") as file, mmap.mmap(file.fileno(), PROGRESS.size) as progress:
        worker = _Worker(progress)
        _bound_memory()
        try:
            for line in sys.stdin:
                print(json.dumps(worker.answer(json.loads(line))), flush=True)
        finally:
            worker.shop.close()


if __name__ == "__main__":
    _main()
