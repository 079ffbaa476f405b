"""Many processes on one file system without flock, one system call at a time, killed between any two.

Each process is a thread that waits for its turn before each call; when all who live are waiting, a
seeded choice says whose turn it is. So a seed is a schedule. A kill is an exception out of a call and out
of every later one: nothing is cleaned up, and from then on the process counts as dead.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from msgspec.structs import replace

from tests.thread_store.locks.holding import NoFlock
from thread_store.locks import claims, holder, lease
from thread_store.locks.holder import LockHolder, describe_self

__all__ = ["Killed", "Simulation"]

_TURN_SECONDS_MAX = 60
_FIRST_PID = 1_000_001
_CALLS = (
    *("open", "open_new", "open_to_read", "make_private", "overwrite", "close", "fstat", "lstat"),
    *("read", "link", "replace", "unlink", "touch", "names_in"),
)


class Killed(BaseException):
    """This process is dead."""


class Simulation:
    """The processes, and whose turn it is."""

    def __init__(self, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rng = random.Random(seed)
        self.calls = _CallsInTurn(self)
        self.dead: set[int] = set()
        self.errors: list[BaseException] = []
        self._own = threading.local()
        self._works: dict[int, tuple[Callable[[], None], int]] = {}
        self._added = 0
        self._living: set[int] = set()
        self._waiting: set[int] = set()
        self._turn: int | None = None
        self._changed = threading.Condition()
        monkeypatch.setattr(holder, "is_dead", lambda pid, started: pid in self.dead)
        for module in (claims, lease):
            monkeypatch.setattr(module, "describe_self", self._describe)

    def _describe(self, *, fence: int, lease: bool = False) -> LockHolder:
        return replace(describe_self(fence=fence, lease=lease), pid=self.me)

    @property
    def me(self) -> int:
        """The number of the process that asks; outside of them all, the real one."""
        return int(getattr(self._own, "pid", os.getpid()))

    def add(self, work: Callable[[], None], *, calls_max: int = 1 << 30) -> int:
        """A process that does `work`, and is killed before it makes more than `calls_max` calls."""
        pid = _FIRST_PID + self._added
        self._added += 1
        self._works[pid] = (work, calls_max)
        return pid

    def run(self) -> None:
        """Let those who were added since the last run live to their ends."""
        works, self._works = self._works, {}
        self._living = set(works)
        with ThreadPoolExecutor(len(works)) as pool:
            lives = [pool.submit(self._live, pid, *works[pid]) for pid in works]
        self.errors += filter(None, (life.exception() for life in lives))

    def _live(self, pid: int, work: Callable[[], None], calls_max: int) -> None:
        self._own.pid, self._own.calls_left = pid, calls_max
        try:
            work()
        except Killed:
            self.dead.add(pid)
        finally:
            with self._changed:
                self._living.discard(pid)
                self._choose()

    def await_turn(self) -> None:
        """Before each call."""
        pid = self.me
        if self._own.calls_left <= 0:
            raise Killed
        self._own.calls_left -= 1
        with self._changed:
            self._waiting.add(pid)
            self._choose()
            assert self._changed.wait_for(lambda: self._turn == pid, _TURN_SECONDS_MAX)
            self._waiting.discard(pid)
            self._turn = None

    def _choose(self) -> None:
        if self._turn is None and self._waiting and self._waiting == self._living:
            self._turn = self.rng.choice(sorted(self._waiting))
            self._changed.notify_all()


class _CallsInTurn(NoFlock):
    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.later_seconds = 0.0

    def now(self) -> float:
        return super().now() + self.later_seconds


def _in_turn(name: str) -> Callable[..., Any]:
    def call(self: _CallsInTurn, *arguments: Any, **named: Any) -> Any:
        self.simulation.await_turn()
        return getattr(NoFlock, name)(self, *arguments, **named)

    return call


for _name in _CALLS:
    setattr(_CallsInTurn, _name, _in_turn(_name))
