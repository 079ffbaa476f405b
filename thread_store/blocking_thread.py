"""An open thread for code without a loop: blocking waits instead of awaits.

Invariant: as `thread_store.thread.Thread` has it: the thread's lock is held until its rollout is closed,
and is free when `close()` returns.
"""

from __future__ import annotations

import concurrent.futures
import logging
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from protocol.errors import CompactionRefused, PendingQueueFull, RolloutError
from protocol.ids import ThreadId
from protocol.meta import SessionMeta
from protocol.own import StateItem
from rollout.barrier import Receipt
from rollout.blocking import BlockingRecorder
from thread_store.context.model_item import ModelItem
from thread_store.thread import RELEASE_SECONDS_MAX, OpenThread
from thread_store.turns.blocking_turn import BlockingTurn
from thread_store.turns.compaction_draft import TRIES_MAX, Budget, Compaction, Draft

if TYPE_CHECKING:
    from protocol.context import TurnContext
    from protocol.session_memory import SessionMemory
    from thread_store.thread_reading import ReadContext

__all__ = ["BlockingSummarise", "BlockingThread"]

BlockingSummarise = Callable[[Sequence[ModelItem]], Compaction]
"""As `Summarise`, without a wait."""

_log = logging.getLogger("thread_store")


class BlockingThread(BlockingRecorder):
    """What `LocalThreads` opens, as a handle: `with BlockingThread(threads.open(thread_id)) as thread`."""

    def __init__(self, opened: OpenThread) -> None:
        super().__init__(opened.core)
        self._meta = opened.meta
        self._released = opened.released
        self._reading = opened.reading
        self._automatic: tuple[BlockingSummarise, Budget] | None = None
        self._pid = os.getpid()
        self.tool_safety = opened.safety
        """The registry of tools that its store was given."""

    @property
    def meta(self) -> SessionMeta:
        """The thread's own meta line."""
        return self._meta

    def turn(self, *, context: TurnContext | None = None, turn_id: str | None = None) -> BlockingTurn:
        """A turn, to be entered with `with`. `context`: its settings. One at a time."""
        return BlockingTurn(self, turn_id or str(ThreadId.new()), context)

    def set_state(self, to: str, *, reason: str | None = None) -> None:
        """As `Thread.set_state`."""
        self.flush()
        self.record(StateItem(from_=self._reading.memory().state, to=to, reason=reason))
        self.sync()

    def model_recovery_failed(self, reason: str) -> None:
        """As `Thread.model_recovery_failed`."""
        self.set_state("model_recovery_failed", reason=reason)

    def memory(self) -> SessionMemory:
        """As `Thread.memory`."""
        self.flush()
        return self._reading.memory()

    def compact(self, summarise: BlockingSummarise) -> bool:
        """As `Thread.compact`, with a summariser that blocks."""
        return self._compact(summarise, None)

    def auto_compact(
        self,
        summarise: BlockingSummarise,
        *,
        budget_bytes: int | None = None,
        budget_tokens: int | None = None,
    ) -> None:
        """As `Thread.auto_compact`."""
        self._automatic = summarise, Budget.of(budget_bytes, budget_tokens)

    def compact_if_due(self) -> bool:
        """As `Thread.compact_if_due`."""
        if self._automatic is None:
            return False
        try:
            return self._compact(*self._automatic)
        except RolloutError as error:
            _log.warning("%s: its context is not compacted this time: %s", self.path, error)
            return False

    def _compact(self, summarise: BlockingSummarise, beyond: Budget | None) -> bool:
        position, read = self._read()
        if not read.items or (beyond is not None and not beyond.is_passed(read)):
            return False
        draft = Draft(read.items)
        draft.take_summary(summarise(draft.view))
        for _ in range(TRIES_MAX):
            try:
                if self._core.pending.append_if_last(position, draft.records(self.path)):
                    self.sync()
                    return True
            except PendingQueueFull:
                self.sync()
            position, read = self._read()
            draft.take_later(read.items, self.path)
        raise CompactionRefused(path=self.path, reason="it is recorded to without a pause")

    def _read(self) -> tuple[int, ReadContext]:
        position = self._core.pending.position()[0]
        self.flush()
        return position, self._reading.context()

    def close(self) -> Receipt:
        """As `Thread.aclose`: drained, synced, and the lock given back."""
        try:
            return super().close()
        finally:
            self._wait_for_release()

    def _wait_for_release(self) -> None:
        if os.getpid() != self._pid:
            return  # the lock is the parent's
        done, _ = concurrent.futures.wait([self._released], timeout=RELEASE_SECONDS_MAX)
        if not done:
            _log.warning("%s: its lock is kept until the disk answers", self.path)
