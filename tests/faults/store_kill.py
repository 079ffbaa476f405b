"""The kill harness of a store: a process with several open threads is killed in the midst of anything.

Invariant: after each kill the product itself starts again on the home: it lists each thread once, reads it,
goes on with it. What was handed over or acknowledged is there, once and in order; a fork, an archiving, a
deletion, an erasure is done or not begun, and stays done if that was said.
"""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.kill import PROJECT, READY_SECONDS, read_until
from tests.faults.restart import RESTART_NUMBER
from tests.faults.runner import fast_folder
from tests.faults.store_contract import check_thread, check_unknown, tree_of
from tests.faults.store_eye import holders_of_secret
from tests.faults.store_ledger import StoreLedger, Told
from tests.faults.store_restart import RestartedThread, restart_home

__all__ = ["StoreKillReport", "kill_stores"]

_KILLS_OF_A_HOME = 10
_MOMENTS = ("start", "any", "any", "itself", "itself", "operation", "operation", "operation")
_OPERATIONS = ("archive", "unarchive", "compress", "delete", "erase", "forking")
_NOTES_MAX = 120
"""So late it kills itself."""


@dataclass(slots=True)
class StoreKillReport:
    """What many kills left."""

    runs: int = 0
    moments: Counter[str] = field(default_factory=Counter)
    under_way: Counter[str] = field(default_factory=Counter)
    """What had been begun, and not ended, when the process died."""
    threads: int = 0
    """Threads that were restarted on, all kills together."""
    items: int = 0
    """Items that were acknowledged when their process died."""
    failures: list[tuple[str, str]] = field(default_factory=list)

    def add(self, other: StoreKillReport) -> None:
        """Count the kills of one more home."""
        self.runs += other.runs
        self.moments += other.moments
        self.under_way += other.under_way
        self.threads += other.threads
        self.items += other.items


def kill_stores(runs: int, *, seed: int, parallel: int = 2) -> Iterator[StoreKillReport]:
    """Kill `runs` processes; gives the growing report after each home that was done with."""
    report = StoreKillReport()
    base = Path(tempfile.mkdtemp(prefix="rollout-kill-", dir=fast_folder()))
    seeds = [seed * 100_003 + i for i in range(runs)]
    chains = [seeds[i : i + _KILLS_OF_A_HOME] for i in range(0, runs, _KILLS_OF_A_HOME)]
    try:
        with ThreadPoolExecutor(parallel) as pool:
            for kills, failure in pool.map(lambda chain: _Chain(base / str(chain[0])).kill(chain), chains):
                report.add(kills)
                if failure is not None:
                    command = f"python -m tests.faults kill --of store --runs {runs} --seed {seed}"
                    report.failures.append((command, failure))
                yield report
    finally:
        if not report.failures:  # else the homes are there to be looked at
            shutil.rmtree(base, ignore_errors=True)


class _Chain:
    """One home, and one process after the other that dies in it."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.ledger = StoreLedger()
        self.report = StoreKillReport()
        self._next_key = 1
        self._restarts = 0
        self._secrets: dict[str, str] = {}
        folder.mkdir()

    def kill(self, seeds: list[int]) -> tuple[StoreKillReport, str | None]:
        for seed in seeds:
            rng = random.Random(seed)
            moment = rng.choice(_MOMENTS)
            self.report.runs += 1
            self.report.moments[moment] += 1
            try:
                self._take(self._kill_one(rng, moment, seed))
                self._restart()
            except AssertionError as error:
                return self.report, f"seed {seed}, {moment}, in {self.home}: {error}"
        shutil.rmtree(self.home.parent)
        return self.report, None

    def _kill_one(self, rng: random.Random, moment: str, seed: int) -> bytes:
        die_after = rng.randint(2, _NOTES_MAX) if moment == "itself" else 0
        pens = [
            f"{told.key}:{told.thread_id}:{told.first}" for told in self.ledger.threads.values() if told.base
        ]
        command = [sys.executable, "-m", "tests.faults.store_kill_worker"]
        process = subprocess.Popen(
            [*command, *map(str, (self.home, seed, die_after, self._next_key)), *pens],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=PROJECT,
            bufsize=0,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        with process, process.stdout, process.stderr:
            told = _let_live(process.stdout.fileno(), moment, rng)
            process.send_signal(signal.SIGKILL)
            told += process.stdout.read()
            errors = process.stderr.read().decode(errors="replace")
        assert process.returncode == -signal.SIGKILL, f"it ended by itself:\n{errors}"
        assert "this is a bug" not in errors, errors
        return told

    def _take(self, told: bytes) -> None:
        """What the process said; the last line may be cut."""
        begun: str | None = None
        for line in told[: told.rfind(b"\n") + 1].decode().splitlines():
            note = json.loads(line)
            kind = note["kind"]
            operation = note.get("operation")
            if begun == "prune" and operation == "delete":
                pass  # it is what a prune does
            elif kind in ("begin", "forking"):
                begun = operation or kind
            elif kind in ("done", "forked"):
                begun = None
            if operation == "erase" and kind in ("begin", "done"):
                self._secrets[note["secret"]] = kind
            else:
                self.ledger.take(line)
            if "key" in note and note["key"] is not None:
                self._next_key = max(self._next_key, note["key"] + 1)
        self.report.under_way[begun or "nothing"] += 1
        wrong = [each for each in self.ledger.errors if each["operation"] not in _MAY_REFUSE]
        assert not wrong, f"something was refused: {wrong}"
        self.ledger.errors.clear()
        assert not self.ledger.listed, f"a list missed threads, or showed too many: {self.ledger.listed}"

    def _restart(self) -> None:
        """The product goes on with every thread, and from now on what it found is what must be there."""
        ledger = self.ledger
        for told in ledger.threads.values():
            told.synced = max(told.synced, told.flushed)  # a kill takes nothing that was handed over
            self.report.items += told.synced
        before = {secret: holders_of_secret(tree_of(self.home.parent), secret) for secret in self._secrets}
        self._restarts += 1
        number = RESTART_NUMBER + self._restarts
        found = restart_home(self.home, number=number) if self.home.exists() else {}
        self.report.threads += len(found)
        known = {told.thread_id for told in ledger.threads.values()}
        for told in ledger.threads.values():
            check_thread(told, found.get(told.thread_id))
        for thread_id in found.keys() - known:
            check_unknown(thread_id, found[thread_id], ledger)
        self._check_secrets(before)
        keys = {told.thread_id: (told.key, max(told.first, told.offered)) for told in ledger.threads.values()}
        ledger.threads = {}
        for thread_id, each in found.items():
            key, written = keys.get(thread_id) or (self._new_key(), 0)
            ledger.threads[key] = _as_found(key, thread_id, written, each)

    def _check_secrets(self, before: dict[str, list[str]]) -> None:
        state = tree_of(self.home.parent)
        for secret, kind in self._secrets.items():
            after = holders_of_secret(state, secret)
            if kind == "done":
                assert not after, f"{secret} was erased, and stands in {after}"
            else:
                half = len(after) not in (0, len(before[secret]))
                assert not half, f"{secret} was erased in part: it stood in {before[secret]}, now in {after}"
        self._secrets = {secret: kind for secret, kind in self._secrets.items() if kind == "done"}

    def _new_key(self) -> int:
        self._next_key += 1
        return self._next_key - 1


_MAY_REFUSE = frozenset(
    {"erase", "delete", "open", "compress", "archive", "unarchive", "fork", "compact", "prune"}
)
"""Somebody else of the same process has the thread, or rests on it."""


def _as_found(key: int, thread_id: str, written: int, each: RestartedThread) -> Told:
    if each.after is None:
        return Told(key, thread_id)
    base = tuple(each.after)
    return Told(key, thread_id, first=written, base=base, base_sure=len(base), begun=True)


def _let_live(descriptor: int, moment: str, rng: random.Random) -> bytes:
    """Wait for the moment; returns what the process said until then."""
    told = read_until(descriptor, b"ready", READY_SECONDS)
    if moment == "start":
        return told + read_until(descriptor, None, rng.uniform(0, 0.03))
    if moment == "itself":
        return told + read_until(descriptor, None, READY_SECONDS)
    if moment == "operation":
        told += read_until(descriptor, None, rng.uniform(0, 0.3))
        told += read_until(descriptor, f'"{rng.choice(_OPERATIONS)}"'.encode(), rng.uniform(0.3, 1.5))
        return told + read_until(descriptor, None, rng.uniform(0, 0.01))
    return told + read_until(descriptor, None, rng.uniform(0.01, 0.8))
