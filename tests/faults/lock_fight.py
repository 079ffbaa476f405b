"""A fight of many processes for the lock of one thread, with kills, stops and take-overs by force.

Invariant: no two acquisitions are ever proved to hold at one time; every refusal names the holder; the lock
of whoever is killed is there for the next one at once; a holder that was stopped and taken over from never
holds again; and at the end no file is left.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from protocol.errors import ActiveWriter, WriterFenced
from protocol.ids import ThreadId
from tests.faults.lock_worker import NoFlock, prove_held
from thread_store.locks import LockCalls, LocksBusy, LockState, ThreadLocks

__all__ = ["KINDS", "TAKER", "FightReport", "Hold", "check_history", "fight"]

KINDS = ("flock", "lease")
"""By flock, and by leases as on a file system without it."""

_PROJECT = Path(__file__).resolve().parents[2]
_GRACE_PASSED_SECONDS = 120.0
TAKER = "taker"
_TAKER_WAITS_SECONDS = 0.5
_TAKE_OVERS, _STOPS = 0.2, 0.3
"""Of all blows, so many stop the holder and take over from it, and so many (less those) stop the holder, or
somebody, for a while; of the others half kill the holder, half anybody."""
_STOPPED_SECONDS_MAX = 0.6


@dataclass(slots=True)
class FightReport:
    """What a fight showed."""

    acquisitions: int = 0
    refusals: int = 0
    killed: int = 0
    killed_holding: int = 0
    """Killed while the lock was proved to be theirs, with nothing given back since."""
    stopped: int = 0
    """Stopped for a while, and not taken over from."""
    taken_over: int = 0
    fenced: int = 0
    """Holders that found out."""
    longest_gap_ms: float = 0
    """Between the last proof of a killed holder and the first one of the next."""
    failures: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Hold:
    """One acquisition: the first and last time at which it was proved to hold."""

    token: str
    first: int
    last: int
    log: str
    killed: bool = False
    fenced: bool = False
    """It ended because the lock was taken over."""


class _Fight:
    """Processes, logs and the lock they fight for."""

    def __init__(self, base: Path, kind: str, seed: int) -> None:
        self.home, self.logs = base / "home", base / "logs"
        self.logs.mkdir()
        self.kind = kind
        self.thread_id = ThreadId.new()
        self.locks = ThreadLocks(self.home, calls=_calls(kind), coordination_seconds=_TAKER_WAITS_SECONDS)
        self.lock_path = self.home / "thread-writer-locks" / f"{self.thread_id}.lock"
        self.workers: dict[int, tuple[subprocess.Popen[bytes], int]] = {}
        self.rng = random.Random(seed)
        self.report = FightReport()
        self._started = 0
        self._stopped: dict[int, float] = {}
        """When those that are stopped go on."""
        self._log = os.open(self.logs / TAKER, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def start_one(self) -> None:
        self._started += 1
        log = self.logs / f"{self._started}"
        command = [sys.executable, "-m", "tests.faults.lock_worker", self.home, self.thread_id, log]
        with self._error_path(self._started).open("wb") as errors:
            process = subprocess.Popen(
                [*map(str, command), self.kind, str(self._started)],
                stdin=subprocess.DEVNULL,
                stderr=errors,
                cwd=_PROJECT,
            )
        self.workers[process.pid] = (process, self._started)

    def _error_path(self, name: int) -> Path:
        return self.logs.with_name(f"errors-{name}")

    def kill(self, pid: int) -> None:
        process, name = self.workers.pop(pid)
        self._stopped.pop(pid, None)
        if process.poll() is not None:
            said = self._error_path(name).read_text(errors="replace")
            self.report.failures.append(f"worker {name} ended by itself:\n{said}")
        process.kill()
        process.wait()
        self.report.killed += 1

    def holder(self) -> int | None:
        """A worker that the lock names at the moment."""
        seen = [each.writer.pid for each in self.locks.holders() if each.state is LockState.LIVE]
        return next((pid for pid in seen if pid in self.workers), None)

    def strike(self) -> None:
        self.let_go_on(time.monotonic())
        holder, blow = self.holder(), self.rng.random()
        if holder is not None and blow < _TAKE_OVERS:
            self.take_over_from(holder)
        elif blow < _STOPS:
            self.stop(holder or self.rng.choice(list(self.workers)))
        else:
            anybody = self.rng.choice(list(self.workers))
            self.kill(holder if holder is not None and blow < (1 + _STOPS) / 2 else anybody)
            self.start_one()

    def stop(self, pid: int) -> None:
        """For a while: whoever holds the lock holds it still, and nobody else comes by it."""
        self.workers[pid][0].send_signal(signal.SIGSTOP)
        self._stopped.setdefault(pid, time.monotonic() + self.rng.uniform(0, _STOPPED_SECONDS_MAX))
        self.report.stopped += 1

    def let_go_on(self, now: float) -> None:
        """Those whose while is over."""
        for pid in [pid for pid, until in self._stopped.items() if until <= now]:
            del self._stopped[pid]
            self.workers[pid][0].send_signal(signal.SIGCONT)

    def take_over_from(self, pid: int) -> None:
        process, _ = self.workers[pid]
        process.send_signal(signal.SIGSTOP)
        try:
            lock, old = self.locks.take_over(self.thread_id)
        except (ActiveWriter, LocksBusy):
            return  # it was stopped where it holds up everybody: with the coordination lock, or a claim
        finally:
            self._stopped.pop(pid, None)
            process.send_signal(signal.SIGCONT)
        try:
            self.report.taken_over += old is not None
            prove_held(lock, self._log)
            time.sleep(0.003)
            prove_held(lock, self._log)
        except WriterFenced as error:
            self.report.failures.append(f"the one who took over was fenced: {error}")
        finally:
            lock.release()

    def end(self) -> None:
        for pid in list(self.workers):
            self.kill(pid)
        os.close(self._log)


def _calls(kind: str) -> LockCalls:
    return NoFlock() if kind == "lease" else LockCalls()


class _LaterCalls(NoFlock):
    """Long after everything happened: what was half made has no grace left."""

    def now(self) -> float:
        return super().now() + _GRACE_PASSED_SECONDS


def fight(*, seconds: float, processes: int = 20, seed: int = 1, kind: str = "flock") -> FightReport:
    """Let them fight. `kind`: one of `KINDS`."""
    with _a_fight(kind, seed) as ring:
        for _ in range(processes):
            ring.start_one()
        until = time.monotonic() + seconds
        while time.monotonic() < until or ring.report.killed == 0:
            time.sleep(ring.rng.uniform(0, 0.15))
            ring.strike()
        ring.end()
        _check_reclaimed(ring)
        _check_logs(ring)
        return ring.report


@contextmanager
def _a_fight(kind: str, seed: int) -> Iterator[_Fight]:
    base = Path(tempfile.mkdtemp(prefix="rollout-locks-"))
    ring = _Fight(base, kind, seed)
    try:
        yield ring
    finally:
        for process, _ in ring.workers.values():
            process.kill()
            process.wait()
        shutil.rmtree(base, ignore_errors=True)


def _check_reclaimed(ring: _Fight) -> None:
    """All are dead: the lock is free at the first try, and then nothing is left."""
    try:
        ring.locks.acquire(ring.thread_id).release()
    except ActiveWriter as error:
        ring.report.failures.append(f"a dead holder kept its lock: {error}")
    if ring.kind == "lease":
        ThreadLocks(ring.home, calls=_LaterCalls()).sweep()
    left = sorted(os.listdir(ring.lock_path.parent))
    if left != [".coordination.lock"]:
        ring.report.failures.append(f"left behind: {left}")


def _check_logs(ring: _Fight) -> None:
    check_history([_read_log(log, ring.report) for log in sorted(ring.logs.iterdir())], ring.report)


def check_history(logs: list[list[Hold]], report: FightReport) -> None:
    """Put the holds of all processes into one order. Two that overlap are a failure; so is one that was
    ended by somebody who used no force.
    """
    holds = sorted((hold for log in logs for hold in log), key=lambda hold: hold.first)
    report.acquisitions = len(holds)
    for before, after in pairwise(holds):
        if after.first <= before.last:
            report.failures.append(f"two held at once: {before} and {after}")
            after.last = max(before.last, after.last)
        if before.fenced and after.log != TAKER:
            report.failures.append(f"taken over without force: {before}, then {after}")
        if before.killed:
            report.killed_holding += 1
            gap_ms = (after.first - before.last) / 1e6
            report.longest_gap_ms = max(report.longest_gap_ms, gap_ms)


def _read_log(log: Path, report: FightReport) -> list[Hold]:
    holds: dict[str, Hold] = {}
    last = ""
    for line in log.read_text().splitlines():
        last, _, rest = line.partition(" ")
        if last == "held":
            at, token = rest.split()
            holds.setdefault(token, Hold(token, int(at), int(at), log.name)).last = int(at)
        elif last == "refused":
            report.refusals += int(rest)
        elif last == "fenced":
            report.fenced += 1
            if rest in holds:
                holds[rest].fenced = True
        else:
            report.failures.append(f"worker {log.name}: {line}")
    found = list(holds.values())
    if found and last == "held" and log.name != TAKER:
        found[-1].killed = True  # they all end so
    return found
