"""The soak: many threads of one home, written for long by processes that are killed, on a disk that fills up.

Invariant: at the end each thread is opened by the product itself, and holds what its producer's own log says:
everything that was acknowledged, each item once, in order; it is read alike from both ends, nothing is
locked, and the process that lived through all of it uses no more than after its first while.

    python -m tests.faults.soak '{"seconds": …}'            see `Plan`; in a mount namespace of its own
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults import mutants
from tests.faults.mounts import detach, enter_mount_namespace, mount_tmpfs
from tests.faults.shim import FOREVER, Action, Fault, build_shim, encode_plan
from tests.faults.soak_check import check_growth, check_home
from tests.faults.soak_log import Ledger
from tests.faults.soak_worker import Orders

__all__ = ["Plan", "SoakReport", "soak"]

_PROJECT = Path(__file__).resolve().parents[2]
_END_SECONDS = 120.0
_SYSTEM_ERRNOS = (5, 28, 122)
"""EIO, ENOSPC, EDQUOT."""
_FREQUENT = {"write": 4000, "fdatasync": 600, "open": 1500, "fstat": 6000, "lstat": 6000, "pread": 8000}
"""Of these calls so many are made while a process lives; of all others some hundreds."""
_FAULTY = ("write", "write", "write", "fdatasync", "fdatasync", "open", "pwrite", "fsync", "ftruncate",
           "rename", "unlink", "link", "mkdir", "flock", "fstat", "lstat", "pread")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Plan:
    """How long, and how much."""

    seconds: float
    seed: int = 1
    threads: int = 200
    processes: int = 4
    pause_seconds: float = 0.7
    """Between two steps of a producer, on average."""
    strike_seconds: float = 1.5
    """Between two blows, on average."""
    disk_mb: int = 256

    @classmethod
    def decode(cls, text: str) -> Plan:
        return cls(**json.loads(text))


@dataclass(slots=True)
class SoakReport:
    """What a soak showed."""

    threads: int = 0
    items: int = 0
    """In the files at the end."""
    acknowledged: int = 0
    calls: int = 0
    """Tool calls whose end was acknowledged."""
    kills: int = 0
    lives: int = 0
    """Processes of producers that were begun."""
    fills: int = 0
    torn: int = 0
    """Torn tails that were set aside."""
    entries: dict[str, int] = field(default_factory=dict)
    """What producers and others told of, by its kind."""
    errors: dict[str, int] = field(default_factory=dict)
    """What the product raised, by what was done."""
    growth: dict[str, tuple[float, float]] = field(default_factory=dict)
    """MB resident, descriptors, threads, items of the process that lived: after a while, and at the end."""
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)


class _Ground:
    """The disk, the processes on it, and what befalls them."""

    def __init__(self, base: Path, plan: Plan) -> None:
        self.plan = plan
        self.rng = random.Random(plan.seed)
        self.disk, self.logs, self.spill = base / "disk", base / "logs", base / "spill"
        self.home, self.ballast = self.disk / "home", self.disk / "ballast"
        for folder in (self.disk, self.logs, self.spill):
            folder.mkdir()
        mount_tmpfs(self.disk, f"size={plan.disk_mb}m")
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self.report = SoakReport(threads=plan.threads)
        self.stranger: subprocess.Popen[bytes] | None = None

    # Processes

    def orders(self, slot: int, *, seed: str, plan: str = "") -> Orders:
        each = self.plan.threads // self.plan.processes
        last = slot == self.plan.processes - 1
        return Orders(
            home=os.fspath(self.home),
            log=os.fspath(self.logs / f"{slot}.log"),
            spill=os.fspath(self.spill),
            samples=os.fspath(self.logs / f"{slot}.samples"),
            first=slot * each,
            threads=self.plan.threads - slot * each if last else each,
            seed=seed,
            pause_seconds=self.plan.pause_seconds,
            plan=plan,
        )

    def start(self, slot: int) -> None:
        """The first process is never killed and has no faults below Python: it shows what grows."""
        self.report.lives += 1
        plan = encode_plan(self._faults()) if slot and self.rng.random() < 0.7 else ""
        orders = self.orders(slot, seed=f"{self.plan.seed} {self.report.lives}", plan=plan)
        environment = {**os.environ, "LD_PRELOAD": str(build_shim())} if plan else dict(os.environ)
        self.processes[slot] = self._start("soak_worker", orders, environment)

    def _start(self, module: str, orders: Orders, environment: dict[str, str]) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-X", "faulthandler", "-m", f"tests.faults.{module}"]
        with (self.logs / "errors").open("ab") as errors:
            return subprocess.Popen(
                [*words, json.dumps(dataclasses.asdict(orders))],
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                env=environment,
                cwd=_PROJECT,
            )

    def _faults(self) -> list[Fault]:
        """Some that pass, and sometimes one that kills."""
        found = []
        for _ in range(self.rng.randint(3, 12)):
            call = self.rng.choice(_FAULTY)
            nth = self._nth(call)
            count = self.rng.choice((1, 1, 3, 10))
            if call in ("write", "pwrite") and self.rng.random() < 0.6:
                found.append(Fault(call, nth, Action.SHORT, self.rng.choice((1, -1, -2)), count))
            else:
                after = call not in ("open", "fstat", "lstat", "pread") and self.rng.random() < 0.2
                action = Action.AFTER if after else Action.ERRNO
                found.append(Fault(call, nth, action, self.rng.choice(_SYSTEM_ERRNOS), count))
        if self.rng.random() < 0.5:  # dead inside a line
            nth = self._nth("write")
            found += [Fault("write", nth, Action.SHORT, -1), Fault("write", nth, Action.KILL_AFTER)]
        elif self.rng.random() < 0.4:
            call = self.rng.choice(_FAULTY[:11])
            action = self.rng.choice((Action.KILL_BEFORE, Action.KILL_AFTER))
            found.append(Fault(call, self._nth(call), action))
        if self.rng.random() < 0.3:
            found.append(
                Fault("fdatasync", self.rng.randint(1, 300), Action.DELAY, 400, self.rng.choice((1, 5)))
            )
        assert all(each.count != FOREVER for each in found)
        return found

    def _nth(self, call: str) -> int:
        """Small ones as often as large ones: many processes don't live for long."""
        return int(math.exp(self.rng.uniform(0, math.log(_FREQUENT.get(call, 200)))))

    def start_stranger(self) -> None:
        orders = self.orders(0, seed=f"{self.plan.seed} stranger {self.report.kills}")
        orders = dataclasses.replace(
            orders, log=os.fspath(self.logs / "stranger.log"), threads=self.plan.threads, pause_seconds=0.2
        )
        self.stranger = self._start("soak_stranger", orders, dict(os.environ))

    # What befalls them

    def strike(self) -> None:
        choice = self.rng.random()
        if choice < 0.4:
            self.kill_one()
        elif choice < 0.5 and self.stranger is not None:
            self.kill(self.stranger)
        elif choice < 0.85:
            self.fill_up()
        self.tend()

    def kill_one(self) -> None:
        self.kill(self.processes[self.rng.randrange(1, self.plan.processes)])

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait()
        self.report.kills += 1

    def tend(self) -> None:
        """Whoever ended is followed by the next one."""
        for slot, process in list(self.processes.items()):
            if process.poll() is None:
                continue
            if process.returncode not in (-signal.SIGKILL,):
                self.report.failures.append(f"process {slot} ended by itself with {process.returncode}")
            self.start(slot)
        if self.stranger is None or self.stranger.poll() is not None:
            self.start_stranger()

    def fill_up(self) -> None:
        """Nothing fits any more, for a while. Somebody may be killed meanwhile."""
        self.report.fills += 1
        with self.ballast.open("wb", buffering=0) as file:
            size = 1 << 20
            while size:
                try:
                    written = file.write(bytes(size))
                except OSError:
                    written = 0
                size = size if written == size else size // 16
        time.sleep(self.rng.uniform(0.1, 2.5))
        if self.rng.random() < 0.5:
            self.kill_one()
        self.ballast.unlink()

    # The end

    def run(self) -> None:
        begin = time.monotonic()
        for slot in range(self.plan.processes):
            self.start(slot)
        while time.monotonic() - begin < self.plan.seconds:
            time.sleep(self.rng.expovariate(1 / self.plan.strike_seconds))
            self.strike()
        self.ballast.unlink(missing_ok=True)
        self.stop()
        self.report.seconds = time.monotonic() - begin

    def stop(self) -> None:
        if self.stranger is not None:
            self.kill(self.stranger)
        for process in self.processes.values():
            process.send_signal(signal.SIGTERM)
        until = time.monotonic() + _END_SECONDS
        for slot, process in self.processes.items():
            try:
                process.wait(max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGABRT)
                process.wait()
                self.report.failures.append(f"process {slot} doesn't end:\n{self.errors()}")

    def errors(self) -> str:
        return (self.logs / "errors").read_text(encoding="utf-8", errors="replace")[-6000:]

    def check(self) -> None:
        report = self.report
        ledger = Ledger.read(self.logs)
        report.failures += ledger.failures
        report.entries, report.errors = dict(ledger.counts), dict(ledger.errors)
        report.acknowledged = sum(told.safe for told in ledger.threads.values())
        report.calls = sum(len(told.calls) for told in ledger.threads.values())
        with asyncio.Runner() as loop:
            report.items = check_home(self.home, ledger, loop, report.failures)
        report.torn = len(list(self.home.glob("thread-store/kept/*.torn")))
        free = shutil.disk_usage(self.disk).free / (1 << 20)
        if free < self.plan.disk_mb / 20:
            report.failures.append(f"only {free:.0f} MB of the disk are left: it was too small")
        report.growth = check_growth(self.logs / "0.samples", report.failures)

    def end(self) -> None:
        for process in (*self.processes.values(), *([self.stranger] if self.stranger else ())):
            if process.poll() is None:
                process.kill()
                process.wait()


def main() -> None:
    """Run one in this process, which must have one thread and be of no use afterwards."""
    mutants.plant_from_environment()
    plan = Plan.decode(sys.argv[1])
    build_shim()
    enter_mount_namespace()
    base = Path(tempfile.mkdtemp(prefix="rollout-soak-"))
    ground = _Ground(base, plan)
    tempfile.tempdir = os.fspath(ground.spill)
    try:
        ground.run()
        ground.check()
        if ground.report.failures:
            ground.report.failures.append(f"the processes said:\n{ground.errors()}")
    finally:
        ground.end()
        detach(ground.disk)
        shutil.rmtree(base, ignore_errors=True)
    print(json.dumps(dataclasses.asdict(ground.report)))


def soak(plan: Plan) -> SoakReport:
    """Run one in a process of its own. Raises RuntimeError if that broke down."""
    command = [sys.executable, "-m", "tests.faults.soak", json.dumps(dataclasses.asdict(plan))]
    result = subprocess.run(command, cwd=_PROJECT, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if result.returncode:
        raise RuntimeError(f"the soak ended with {result.returncode}:\n{result.stderr}")
    told: dict[str, Any] = json.loads(result.stdout)
    return SoakReport(**told)


if __name__ == "__main__":
    main()
