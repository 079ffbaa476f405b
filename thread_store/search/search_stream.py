"""A search as an asynchronous iterator: hits as they are found.

Invariant: the caller's loop does no I/O. A cancelled step loses no hit: the next one gives it. Left early, it
is ended by `aclose`, by the end of its `async with`, or when nobody has it any more.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType
from typing import Self

from rollout.executor import DaemonExecutor
from thread_store.search.search_hit import SearchHit, SearchReport
from thread_store.search.thread_search import ThreadSearch

__all__ = ["SearchStream"]

_BATCH = 64


class SearchStream:
    """Iterate over it with `async for`, once, from any loop. `report` says how far it got."""

    def __init__(
        self,
        begin: Callable[[], ThreadSearch],
        report: SearchReport,
        *,
        shown: Callable[[SearchHit], SearchHit] | None = None,
    ) -> None:
        """`begin` makes the search, in a thread of its own; it fills `report`. `shown` may change hits."""
        self.report = report
        self._shown = shown
        self._begin = begin
        self._executor = DaemonExecutor(1, "rollout-search")
        self._search: ThreadSearch | None = None
        self._ready: deque[SearchHit] = deque()
        self._step: Future[list[SearchHit]] | None = None
        self._over = False
        self._end: Callable[[], Future[None] | None] = weakref.finalize(self, self._executor.close)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SearchHit:
        while not self._ready:
            if self._over:
                raise StopAsyncIteration
            if self._step is None:
                self._step = self._executor.submit(self._take)
            try:
                hits = await asyncio.shield(asyncio.wrap_future(self._step))
            except asyncio.CancelledError:
                raise  # the step goes on, and the next call waits for it
            except BaseException:
                await self.aclose()
                raise
            self._step = None
            self._ready.extend(hits)
            if not hits:
                await self.aclose()
        hit = self._ready.popleft()
        return hit if self._shown is None else self._shown(hit)

    def _take(self) -> list[SearchHit]:
        if self._search is None:
            self._search = self._begin()
            self._end = weakref.finalize(self, _end, self._search, self._executor)
            if self._over:
                self._end()
                return []
        return self._search.take(_BATCH)

    async def aclose(self) -> None:
        """End the search. What was found and not taken is dropped; may be called again.

        On return nothing is left of it; cancelled, it comes to its end all the same.
        """
        ended = self._stop()
        if ended is not None:
            await asyncio.shield(asyncio.wrap_future(ended))

    def close(self) -> None:
        """The same, without a loop. Never blocks: it ends soon."""
        self._stop()

    def _stop(self) -> Future[None] | None:
        self._over = True
        if self._ready:
            self.report.finished = False
            self._ready.clear()
        return self._end()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def _end(search: ThreadSearch, executor: DaemonExecutor) -> Future[None]:
    search.stop()
    ended = executor.submit(search.close)  # it removes files
    executor.close()
    return ended
