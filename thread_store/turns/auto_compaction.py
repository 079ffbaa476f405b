"""Compaction of a thread's context: the framework's summary takes the place of what the model saw.

Invariant: cancellation and errors leave the thread before the checkpoint or behind it, never with a part
of it; what other tasks record meanwhile stays in the context (`thread_store.turns.compaction_draft`).

Theory of operation. The checkpoint is accepted only if nothing was accepted since the file was read (a
question that the queue answers under its lock); else what came is read, and put behind the summary.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from protocol.errors import CompactionRefused, PendingQueueFull
from thread_store.context.model_item import ModelItem
from thread_store.turns.compaction_draft import TRIES_MAX, Budget, Compaction, Draft

if TYPE_CHECKING:
    from rollout.pending import Pending
    from rollout.recorder import RolloutRecorder
    from thread_store.thread_reading import ReadContext, ThreadReading

__all__ = ["Budget", "Compaction", "Compactor", "Summarise"]

Summarise = Callable[[Sequence[ModelItem]], Awaitable[Compaction]]
"""Gets what the model sees; a call that still runs has a result that says so."""


class Compactor:
    """Compacts one open thread."""

    def __init__(self, recorder: RolloutRecorder, pending: Pending, reading: ThreadReading) -> None:
        self._recorder = recorder
        self._pending = pending
        self._reading = reading
        self._is_busy = False

    async def compact(self, summarise: Summarise, *, beyond: Budget | None = None) -> bool:
        """Ask for a summary and record the checkpoint; on return that is on stable storage.

        `beyond`: only if this budget is passed. Returns whether there is a new checkpoint.

        Raises: as `Thread.compact`.
        """
        if self._is_busy:
            raise CompactionRefused(path=self._recorder.path, reason="it is being compacted")
        self._is_busy = True
        try:
            position, read = await self._read()
            if not read.items or (beyond is not None and not beyond.is_passed(read)):
                return False
            draft = Draft(read.items)
            draft.take_summary(await summarise(draft.view))
            await self._record(draft, position)
        finally:
            self._is_busy = False
        await self._recorder.sync()
        return True

    async def _read(self) -> tuple[int, ReadContext]:
        """The context, and the stream position up to which it surely holds everything."""
        position = self._pending.position()[0]
        await self._recorder.flush()
        return position, await asyncio.to_thread(self._reading.context)

    async def _record(self, draft: Draft, position: int) -> None:
        for _ in range(TRIES_MAX):
            try:
                if self._pending.append_if_last(position, draft.records(self._recorder.path)):
                    return
            except PendingQueueFull:
                await self._recorder.sync()  # room comes with what is durable
            position, read = await self._read()
            draft.take_later(read.items, self._recorder.path)
        raise CompactionRefused(path=self._recorder.path, reason="it is recorded to without a pause")
