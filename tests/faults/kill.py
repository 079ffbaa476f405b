"""The kill harness: a process that records is killed with SIGKILL, again and again, and nothing is lost.

Invariant: what the process had said to be safe before it died is in the file, once and in order, for
each of its producers; what it had not is there as a gapless continuation of that, or not at all.
"""

from __future__ import annotations

import asyncio
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.numbered import PRODUCER, look_at, numbers_of
from tests.faults.restart import read_back, run_restart

__all__ = ["PROJECT", "READY_SECONDS", "KillReport", "kill_many", "read_until"]

PROJECT = Path(__file__).resolve().parents[2]
_PRODUCERS = 3
_KILLS_OF_A_FILE = 4
READY_SECONDS = 60.0
_MOMENTS = ("creation", "first", "any", "any", "big", "big", "itself", "itself")
_DIES_AFTER = (1, 1, 2, 5, 20)
"""Acknowledgements after which it kills itself."""


@dataclass(slots=True)
class KillReport:
    """What many kills left."""

    runs: int = 0
    moments: Counter[str] = field(default_factory=Counter)
    acknowledged: int = 0
    """Items that were said to be safe when their process died."""
    found: int = 0
    """Items in the files at the end."""
    torn: int = 0
    """Kills that left a torn tail."""
    absent: int = 0
    """Kills that came before there was a file."""
    headless: int = 0
    """Kills that left less than the meta line, nothing being acknowledged."""
    failures: list[tuple[str, str]] = field(default_factory=list)

    def add(self, other: KillReport) -> None:
        """Count the kills of one more file."""
        self.runs += other.runs
        self.moments += other.moments
        self.acknowledged += other.acknowledged
        self.found += other.found
        self.torn += other.torn
        self.absent += other.absent
        self.headless += other.headless


@dataclass(slots=True)
class _File:
    """One rollout and what is known of it."""

    path: Path
    safe: list[int] = field(default_factory=lambda: [0] * _PRODUCERS)
    """By producer: how many items were acknowledged."""
    next: list[int] = field(default_factory=lambda: [0] * _PRODUCERS)


def kill_many(runs: int, *, seed: int, parallel: int = 2) -> Iterator[KillReport]:
    """Kill `runs` processes; gives the growing report after each file that was done with."""
    report = KillReport()
    base = Path(tempfile.mkdtemp(prefix="rollout-kill-"))
    seeds = [seed * 100_003 + i for i in range(runs)]
    chains = [seeds[i : i + _KILLS_OF_A_FILE] for i in range(0, runs, _KILLS_OF_A_FILE)]
    try:
        with ThreadPoolExecutor(parallel) as pool, asyncio.Runner() as loop:
            for file, kills, failure in pool.map(lambda chain: _kill_chain(base, chain), chains):
                if failure is None:
                    failure = _check_at_the_end(file, kills, loop)
                report.add(kills)
                if failure is not None:
                    report.failures.append(
                        (f"python -m tests.faults kill --of rollout --runs {runs} --seed {seed}", failure)
                    )
                yield report
    finally:
        shutil.rmtree(base, ignore_errors=True)


def _kill_chain(base: Path, seeds: list[int]) -> tuple[_File, KillReport, str | None]:
    """Kill one writer of a file after the other."""
    file, report = _File(base / f"{seeds[0]}.jsonl"), KillReport()
    for seed in seeds:
        rng = random.Random(seed)
        moment = rng.choice(_MOMENTS)
        try:
            report.runs += 1
            report.moments[moment] += 1
            _kill_one(file, moment, rng, seed)
            if not _check_after_kill(file, report):
                break
        except AssertionError as error:
            return file, report, f"seed {seed}, {moment}: {error}"
    return file, report, None


def _kill_one(file: _File, moment: str, rng: random.Random, seed: int) -> None:
    exists = file.path.exists()
    mode = "first" if moment == "first" and not exists else "open" if exists else "create"
    die_after = rng.choice(_DIES_AFTER) if moment == "itself" else 0
    command = [sys.executable, "-m", "tests.faults.kill_worker", file.path, mode, seed, die_after, *file.next]
    process = subprocess.Popen(
        [str(word) for word in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=PROJECT,
        bufsize=0,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    with process, process.stdout, process.stderr:
        told = _let_live(process.stdout.fileno(), moment if mode != "first" else "first", rng)
        process.send_signal(signal.SIGKILL)
        told += process.stdout.read()
        errors = process.stderr.read().decode(errors="replace")
    assert process.returncode == -signal.SIGKILL, f"it ended by itself:\n{errors}"
    _note_promises(file, told)


def _let_live(descriptor: int, moment: str, rng: random.Random) -> bytes:
    """Wait for the moment; returns what the process said until then."""
    told = read_until(descriptor, b"ready\n", READY_SECONDS)
    if moment == "creation":
        return told + read_until(descriptor, None, rng.uniform(0, 0.03))
    if moment == "itself":
        return told + read_until(descriptor, None, READY_SECONDS)
    if moment == "first":
        return told + read_until(descriptor, b"flush", READY_SECONDS)
    if moment == "big":
        told += read_until(descriptor, b"big", rng.uniform(0.3, 1.5))
        return told + read_until(descriptor, None, rng.uniform(0, 0.012))
    return told + read_until(descriptor, None, rng.uniform(0.01, 0.5))


def read_until(descriptor: int, word: bytes | None, seconds: float) -> bytes:
    """What comes until a word does (None: none), or the end, or the time is over."""
    told, deadline = b"", time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0 and (word is None or word not in told):
        if select.select([descriptor], [], [], left)[0]:
            part = os.read(descriptor, 1 << 16)
            if not part:
                break
            told += part
    return told


def _note_promises(file: _File, told: bytes) -> None:
    for line in told[: told.rfind(b"\n") + 1].decode().splitlines():
        kind, *numbers = line.split()
        if kind in ("flush", "sync"):
            producer, upto = map(int, numbers)
            file.safe[producer] = max(file.safe[producer], upto)


def _check_after_kill(file: _File, report: KillReport) -> bool:
    """Whether the next one can go on with the file."""
    if not file.path.exists():
        assert not any(file.safe), f"{file.safe} items were acknowledged, and there is no file"
        report.absent += 1
        return True
    data = file.path.read_bytes()
    found = look_at(data)
    assert not found.damaged, f"damaged lines at {found.damaged}"
    report.torn += bool(found.tail) and not found.tail_is_valid
    read_back(file.path)
    numbers = numbers_of(data)
    for producer in range(_PRODUCERS):
        mine = [number % PRODUCER for number in numbers if number // PRODUCER == producer]
        assert mine == list(range(len(mine))), f"items of producer {producer} are lost, doubled or disordered"
        assert len(mine) >= file.safe[producer], (
            f"{file.safe[producer]} items of producer {producer} were acknowledged, {len(mine)} are there"
        )
        file.next[producer] = len(mine)
    if found.has_meta:
        return True
    assert not any(file.safe), "items were acknowledged in a file without a meta line"
    report.headless += 1
    return False


def _check_at_the_end(file: _File, report: KillReport, loop: asyncio.Runner) -> str | None:
    """Open it, append, close, read: everything is still there."""
    report.acknowledged += sum(file.safe)
    report.found += sum(file.next)
    try:
        restarted = run_restart(loop, file.path)
        if restarted.after is not None:
            assert len(restarted.after.numbers) == sum(file.next) + 1, "the restart lost or doubled items"
    except AssertionError as error:
        return f"{file.path.name}: {error}"
    return None
