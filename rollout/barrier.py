"""Barriers: calls that wait until everything accepted before them got somewhere.

Invariant: a barrier is answered exactly once, on whatever loop or thread its caller waits,
and a caller that stopped waiting costs nothing. The service answers many with one wake-up
of each loop.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import enum
import threading
from collections.abc import Callable, Iterable

from msgspec import Struct

__all__ = ["Barrier", "BarrierQueue", "Goal", "Receipt", "answer_all"]


class Receipt(Struct, frozen=True):
    """What a barrier guarantees. `items`: how many items this recorder had accepted before the call,
    all covered. `offset_bytes`: where the file ended then."""

    items: int
    offset_bytes: int


class Goal(enum.Enum):
    """How far a barrier carries: `FLUSH` to the OS, `SYNC` to stable storage, `CLOSE` syncs and ends."""

    FLUSH = enum.auto()
    SYNC = enum.auto()
    CLOSE = enum.auto()
    ROOM = enum.auto()
    """Only waits until the queue has room again."""


class Barrier:
    """One waiting call."""

    __slots__ = ("_future", "_loop", "chances", "error", "goal", "items", "receipt", "target")

    def __init__(self, goal: Goal, *, loop: asyncio.AbstractEventLoop | None) -> None:
        self.goal = goal
        self.target = 0
        """Stream position to be covered."""
        self.items = 0
        self.chances = 0
        """How many failures it survives before it is told."""
        self.receipt: Receipt | None = None
        self.error: BaseException | None = None
        self._loop = loop
        self._future: asyncio.Future[Receipt] | concurrent.futures.Future[Receipt] = (
            concurrent.futures.Future() if loop is None else loop.create_future()
        )

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        return self._loop

    async def wait(self) -> Receipt:
        """Cancelling it cancels the waiting and nothing else."""
        assert isinstance(self._future, asyncio.Future)
        return await self._future

    def wait_blocking(self, timeout_seconds: float | None) -> Receipt:
        assert isinstance(self._future, concurrent.futures.Future)
        return self._future.result(timeout_seconds)

    @property
    def abandoned(self) -> bool:
        """Its caller was cancelled."""
        return self._future.cancelled()

    def deliver(self) -> None:
        """Tell the caller; on its own loop, or anywhere if it blocks. The first answer counts."""
        try:
            if self.error is not None:
                self._future.set_exception(self.error)
            else:
                assert self.receipt is not None
                self._future.set_result(self.receipt)
        except (asyncio.InvalidStateError, concurrent.futures.InvalidStateError):
            return  # cancelled, or answered by the writer and a sync at once


def _deliver_all(barriers: list[Barrier]) -> None:
    for barrier in barriers:
        barrier.deliver()


def answer_all(barriers: Iterable[Barrier]) -> None:
    """Deliver answered barriers, with one call into each of their loops."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Barrier]] = {}
    for barrier in barriers:
        if barrier.loop is None:
            barrier.deliver()
        else:
            by_loop.setdefault(barrier.loop, []).append(barrier)
    for loop, waiting in by_loop.items():
        try:
            loop.call_soon_threadsafe(_deliver_all, waiting)
        except RuntimeError:
            # That loop is closed: nobody waits there any more.
            continue


class BarrierQueue:
    """The barriers of one writer. `leave` may be called from any thread, the rest by the writer."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._arrivals: list[Barrier] = []
        self._closed = False
        self._waiting: list[Barrier] = []

    def leave(self, barrier: Barrier) -> bool:
        """Leave a barrier for the writer, who must be woken. False: it is closed and nobody will answer."""
        with self._lock:
            if not self._closed:
                self._arrivals.append(barrier)
            return not self._closed

    def receive(self, *, chances: int) -> list[Barrier]:
        """Take in what arrived; each survives `chances - 1` failures. Returns those that ask to close."""
        with self._lock:
            arrivals, self._arrivals = self._arrivals, []
        for barrier in arrivals:
            barrier.chances = chances
        self._waiting = [
            barrier
            for barrier in self._waiting + arrivals
            if barrier.goal is not Goal.CLOSE and barrier.receipt is None and not barrier.abandoned
        ]
        return [barrier for barrier in arrivals if barrier.goal is Goal.CLOSE]

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def wants(self, *goals: Goal) -> bool:
        """Whether any barrier has one of these goals."""
        return any(barrier.goal in goals for barrier in self._waiting)

    def select(self, goal: Goal, *, target_max: int) -> list[Barrier]:
        """Those of a goal whose target lies at or before a stream position; they stay in the queue."""
        return [each for each in self._waiting if each.goal is goal and each.target <= target_max]

    def met(self, is_met: Callable[[Barrier], bool]) -> list[Barrier]:
        """Those that are met and not answered yet; they stay in the queue."""
        return [barrier for barrier in self._waiting if barrier.receipt is None and is_met(barrier)]

    def answer(self, barriers: list[Barrier], offset_bytes: int) -> None:
        """Give these their receipts."""
        for barrier in barriers:
            barrier.receipt = Receipt(barrier.items, offset_bytes)
        self._waiting = [barrier for barrier in self._waiting if barrier.receipt is None]
        answer_all(barriers)

    def lose_chance(self, make_error: Callable[[], BaseException]) -> None:
        """A try failed: who had no chance left is told. Who waits for room goes on waiting."""
        for barrier in self._waiting:
            barrier.chances -= 1
            if barrier.chances <= 0 and barrier.goal is not Goal.ROOM and barrier.receipt is None:
                barrier.error = make_error()
        told = [barrier for barrier in self._waiting if barrier.error is not None]
        self._waiting = [barrier for barrier in self._waiting if barrier.error is None]
        answer_all(told)

    def fail_all(self, make_error: Callable[[], BaseException]) -> None:
        """Tell everybody."""
        failed, self._waiting = self._waiting, []
        for barrier in failed:
            barrier.error = make_error()
        answer_all(failed)

    def close(self) -> list[Barrier]:
        """Take no more; returns everybody who still waits."""
        with self._lock:
            self._closed = True
            arrivals, self._arrivals = self._arrivals, []
        waiting, self._waiting = self._waiting, []
        return [barrier for barrier in waiting + arrivals if barrier.receipt is None]

    def reset_after_fork(self) -> None:
        """In a forked child: nobody waits here, nobody will be answered."""
        self._lock = threading.Lock()
        self._arrivals, self._waiting, self._closed = [], [], True
