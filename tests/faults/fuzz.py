"""The fuzzer: hostile bytes for everything that reads files of a home, in processes that are watched.

Invariant: an input counts once its process came back from it, in the CPU time it may take and within its
memory; a process that died or hangs is a failure of the input that it was at, and the next one goes on
behind that. Every failure is kept as a file that `--replay` judges again.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from tests.faults.fuzz_input import Input, make_input
from tests.faults.fuzz_targets import TARGETS
from tests.faults.fuzz_worker import PROGRESS

__all__ = ["FuzzReport", "fuzz", "replay"]

_PROJECT = Path(__file__).resolve().parents[2]
_BATCH = 500
_CPU_SECONDS_MAX = 20.0
"""A process that works on one input for so long hangs."""
_WALL_SECONDS_MAX = 300.0
"""So does one that doesn't even work."""
_KEPT_OF_A_KIND = 3
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class FuzzReport:
    """What many inputs showed."""

    inputs: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    """By target."""
    spent: Counter[str] = field(default_factory=Counter)
    """Microseconds of CPU."""
    slowest: dict[str, tuple[float, int]] = field(default_factory=dict)
    """By target: the CPU seconds of the slowest input, and its number."""
    rss_mb: float = 0.0
    """The most that one process had resident."""
    kinds: Counter[str] = field(default_factory=Counter)
    """Failures by their kind."""
    failures: list[tuple[str, str]] = field(default_factory=list)
    """The command that repeats one, and what is wrong: a few of each kind."""

    def take(self, answer: dict[str, Any]) -> None:
        """Count the answer of a process."""
        self.counts.update(answer.get("counts", {}))
        self.spent.update(answer.get("spent", {}))
        self.inputs = self.counts.total()
        self.rss_mb = max(self.rss_mb, answer.get("rss_kb", 0) / 1024)
        for name, (seconds, number) in answer.get("slowest", {}).items():
            self.slowest[name] = max(self.slowest.get(name, (0.0, 0)), (seconds, number))


class _Process:
    """A worker, watched while it answers; another one takes its place when it dies."""

    def __init__(self) -> None:
        handle, self._path = tempfile.mkstemp(prefix="rollout-fuzz-")
        os.pwrite(handle, PROGRESS.pack(-1), 0)
        os.close(handle)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, job: dict[str, Any]) -> dict[str, Any] | str:
        """The answer, or what became of the process."""
        process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(job).encode() + b"\n")
        process.stdin.flush()
        answer = b""
        watch = _Watch(process.pid, self)
        while not answer.endswith(b"\n"):
            if select.select([process.stdout], [], [], 1.0)[0]:
                part = os.read(process.stdout.fileno(), 1 << 20)
                if not part:
                    return self._bury(f"it died with code {process.wait()}")
                answer += part
            elif (stuck := watch.look()) is not None:
                process.send_signal(signal.SIGABRT)
                process.wait()
                return self._bury(f"it hangs: {stuck}")
        found: dict[str, Any] = json.loads(answer)
        return found

    @property
    def number(self) -> int:
        """The input that it is at."""
        with open(self._path, "rb") as file:
            return int(PROGRESS.unpack(file.read(PROGRESS.size))[0])

    def _start(self) -> subprocess.Popen[bytes]:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.fuzz_worker", self._path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=_PROJECT,
            bufsize=0,
        )
        return self._process

    def _bury(self, what: str) -> str:
        self._close_pipes()
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace")[-4000:]
        self._errors.truncate(0)
        self._errors.seek(0)
        return f"{what}\n{said}"

    def _close_pipes(self) -> None:
        if self._process is not None:
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()
            self._process.wait()
            self._process = None

    def close(self) -> None:
        self._close_pipes()
        self._errors.close()
        os.unlink(self._path)


class _Watch:
    """Whether a process moves."""

    def __init__(self, pid: int, process: _Process) -> None:
        self._pid, self._process = pid, process
        self._number, self._cpu, self._at = -2, 0.0, time.monotonic()

    def look(self) -> str | None:
        number, cpu, now = self._process.number, self._cpu_seconds(), time.monotonic()
        if number != self._number:
            self._number, self._cpu, self._at = number, cpu, now
        elif cpu - self._cpu > _CPU_SECONDS_MAX:
            return f"{cpu - self._cpu:.0f} s of CPU on one input"
        elif now - self._at > _WALL_SECONDS_MAX:
            return f"{now - self._at:.0f} s on one input"
        return None

    def _cpu_seconds(self) -> float:
        try:
            told = Path(f"/proc/{self._pid}/stat").read_text(encoding="ascii", errors="replace")
        except FileNotFoundError:
            return 0.0
        words = told.rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / _TICKS


class _Fuzzer:
    """Processes, and what they found."""

    def __init__(self, seed: int, targets: list[str], keep: Path) -> None:
        self.seed, self.targets, self.keep = seed, targets, keep
        self.report = FuzzReport()
        self._lock = threading.Lock()
        self._local = threading.local()
        self._processes: list[_Process] = []

    def run_batch(self, first: int, end: int) -> None:
        while first < end:
            job = {"seed": self.seed, "range": [first, end], "targets": self.targets}
            answer = self._process().ask(job)
            if isinstance(answer, str):
                number = max(first, self._process().number)
                given = make_input(self.seed, number, self.targets)
                self._note({"target": given.target, "number": number, "kind": "death", "text": answer}, None)
                self._count_until(first, number)
                first = number + 1
                continue
            with self._lock:
                self.report.take(answer)
            for failure in answer["failures"]:
                self._note(failure, self._process())
            return

    def _count_until(self, first: int, number: int) -> None:
        """The answer of a process that died is lost with it; what it had judged is judged again."""
        if first < number:
            self.run_batch(first, number)

    def _process(self) -> _Process:
        if not hasattr(self._local, "process"):
            self._local.process = _Process()
            with self._lock:
                self._processes.append(self._local.process)
        process: _Process = self._local.process
        return process

    def _note(self, failure: dict[str, Any], process: _Process | None) -> None:
        kind, number = f"{failure['target']}: {failure['kind']}", failure["number"]
        with self._lock:
            self.report.kinds[kind] += 1
            if self.report.kinds[kind] > _KEPT_OF_A_KIND:
                return
        self.keep.mkdir(parents=True, exist_ok=True)
        given = make_input(self.seed, number, self.targets)
        path = self.keep / given.file_name
        given.write(path)
        if process is not None:
            job = {"minimise": number, "kind": failure["kind"], "seed": self.seed, "to": str(path)}
            process.ask({**job, "targets": self.targets})
        what = f"{kind} (seed {self.seed}, input {number})\n{failure['text']}\n{_shown(path)}"
        with self._lock:
            self.report.failures.append((f"python -m tests.faults fuzz --replay {path}", what))

    def close(self) -> None:
        for process in self._processes:
            process.close()


def _shown(path: Path) -> str:
    parts = Input.read(path).parts
    return "\n".join(f"part {index}, {len(part):,} bytes: {part[:600]!r}" for index, part in enumerate(parts))


def fuzz(
    inputs: int,
    *,
    seed: int = 1,
    processes: int = 2,
    targets: list[str] | None = None,
    keep: Path | None = None,
) -> Iterator[FuzzReport]:
    """Judge so many inputs; gives the growing report. `keep`: where inputs that fail are kept."""
    fuzzer = _Fuzzer(seed, targets or list(TARGETS), keep or Path("fuzz-failures"))
    batches = iter([(at, min(at + _BATCH, inputs)) for at in range(0, inputs, _BATCH)])
    pool = ThreadPoolExecutor(processes)
    try:
        waiting = {pool.submit(fuzzer.run_batch, *batch) for batch in islice(batches, processes * 2)}
        while waiting:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for each in done:
                each.result()
            waiting |= {pool.submit(fuzzer.run_batch, *batch) for batch in islice(batches, len(done))}
            yield fuzzer.report
    finally:
        pool.shutdown(cancel_futures=True)
        fuzzer.close()


def replay(path: Path) -> str | None:
    """Judge a kept input again; None: nothing is wrong with it any more."""
    process = _Process()
    try:
        answer = process.ask({"file": str(path.absolute())})
    finally:
        process.close()
    if isinstance(answer, str):
        return answer
    return "\n".join(f"{each['kind']}\n{each['text']}" for each in answer["failures"]) or None
