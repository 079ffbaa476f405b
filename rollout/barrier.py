"""Barriers: calls that wait until everything accepted before them got somewhere.

Invariant: a barrier is answered exactly once, on whatever loop or thread its caller waits,
and a caller that stopped waiting costs nothing. The service answers many with one wake-up
of each loop.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import enum
from collections.abc import Iterable

from msgspec import Struct

__all__ = ["Barrier", "Goal", "Receipt", "answer_all"]


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
        """How many failures it survives before it is told; set by the writer."""
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
        """Tell the caller; on its own loop, or anywhere if it blocks."""
        if self._future.done():
            return
        if self.error is not None:
            self._future.set_exception(self.error)
        else:
            assert self.receipt is not None
            self._future.set_result(self.receipt)


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
