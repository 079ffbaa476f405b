"""An open thread of a store: a recorder that knows turns.

Invariant: a thread's lock is held until its rollout is closed, and released before `aclose()` returns.
What is read back of it (its context, its state) is read off the caller's loop.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import os
from typing import TYPE_CHECKING, NamedTuple

from protocol.errors import RolloutError
from protocol.ids import ThreadId
from protocol.own import StateItem
from protocol.tool_safety import DEFAULT_TOOL_SAFETY, ToolSafety
from rollout.barrier import Receipt
from rollout.recorder import RolloutRecorder
from thread_store.turns.auto_compaction import Budget, Compactor, Summarise
from thread_store.turns.turn import Turn

if TYPE_CHECKING:
    from protocol.context import TurnContext
    from protocol.meta import SessionMeta
    from protocol.session_memory import SessionMemory
    from rollout.core import Core
    from thread_store.thread_reading import ThreadReading

__all__ = ["RELEASE_SECONDS_MAX", "OpenThread", "Thread"]

_log = logging.getLogger("thread_store")

RELEASE_SECONDS_MAX = 5.0
"""A lock is not waited for longer: while a disk hangs, its writer's lock stays, and so it should."""


class OpenThread(NamedTuple):
    """What stands behind the handle of an open thread."""

    core: Core
    meta: SessionMeta
    released: concurrent.futures.Future[None]
    """Done when its lock is free."""
    reading: ThreadReading
    """Reads it back."""
    safety: ToolSafety = DEFAULT_TOOL_SAFETY
    """What its tools do, where a call doesn't say."""


class Thread(RolloutRecorder):
    """A thread that is open to write. Made by a store; used as `async with` or closed with `aclose()`.

    Everything a `RolloutRecorder` does, and turns, changes of state, and compactions.
    """

    def __init__(self, opened: OpenThread) -> None:
        super().__init__(opened.core)
        self._meta = opened.meta
        self._released = opened.released
        self._reading = opened.reading
        self._compactor = Compactor(self, opened.core.pending, opened.reading)
        self._automatic: tuple[Summarise, Budget] | None = None
        self._pid = os.getpid()
        self.tool_safety = opened.safety
        """The registry of tools that its store was given."""

    @property
    def meta(self) -> SessionMeta:
        """The thread's own meta line."""
        return self._meta

    def turn(self, *, context: TurnContext | None = None, turn_id: str | None = None) -> Turn:
        """A turn, to be entered with `async with`. `context`: its settings. One at a time."""
        return Turn(self, turn_id or str(ThreadId.new()), context)

    async def set_state(self, to: str, *, reason: str | None = None) -> None:
        """Record that the thread went to another state (`x_state`), and why. On return that is on stable
        storage; the state before is the one that was recorded last.

        Raises:
            RolloutWriteError, WriterFenced, RecorderClosed, PendingQueueFull: it is not.
        """
        await self.flush()
        memory = await asyncio.to_thread(self._reading.memory)
        await self.record(StateItem(from_=memory.state, to=to, reason=reason))
        await self.sync()

    async def model_recovery_failed(self, reason: str) -> None:
        """Record that the model could not be brought back: the thread's state is that now. As `set_state`."""
        await self.set_state("model_recovery_failed", reason=reason)

    async def memory(self) -> SessionMemory:
        """The session memory of all that was accepted so far, which is handed to the OS first. Its `render()`
        is the text to put between the system prompt and the history.

        Raises:
            RolloutWriteError, WriterFenced, RecorderClosed: what was accepted can't be written.
            RolloutUnreadable, RolloutReplaced: it can't be read back.
        """
        await self.flush()
        return await asyncio.to_thread(self._reading.memory)

    async def compact(self, summarise: Summarise) -> bool:
        """Let the framework's summary take the place of what the model saw so far, as a checkpoint.

        `summarise` gets the items that the model sees and returns a `Compaction`. What is recorded meanwhile
        stays in the context, behind the summary. Cancelled, or if the summariser raises, nothing was
        recorded. On return the checkpoint is on stable storage. False: there is nothing to sum up.

        Raises:
            CompactionRefused: the context was changed meanwhile, the summary is none, the thread is recorded
                to without a pause, or is being compacted already; nothing was recorded.
            RolloutWriteError, WriterFenced, RecorderClosed: the disk or the lock is in trouble.
            Whatever the summariser raises.
        """
        return await self._compactor.compact(summarise)

    def auto_compact(
        self, summarise: Summarise, *, budget_bytes: int | None = None, budget_tokens: int | None = None
    ) -> None:
        """From now on compact at the end of each turn after which the context passes a budget.

        Args:
            summarise: as for `compact`. What it raises leaves the turn, which is recorded as completed.
            budget_bytes: of the payloads that the model sees.
            budget_tokens: of its last response, input included, as recorded since the last checkpoint.

        Raises:
            ValueError: there is no budget.
        """
        self._automatic = summarise, Budget.of(budget_bytes, budget_tokens)

    async def compact_if_due(self) -> bool:
        """Compact if `auto_compact` asks for it; a turn calls this at its end. As `compact`, but where the
        store refuses it is put off until the next time, with a warning in the log."""
        if self._automatic is None:
            return False
        summarise, budget = self._automatic
        try:
            return await self._compactor.compact(summarise, beyond=budget)
        except RolloutError as error:
            _log.warning("%s: its context is not compacted this time: %s", self.path, error)
            return False

    async def aclose(self) -> Receipt:
        """As `RolloutRecorder.aclose`; then the thread's lock is free for the next writer."""
        try:
            receipt = await super().aclose()
        except RolloutError:
            await self._wait_for_release()
            raise
        await self._wait_for_release()
        return receipt

    async def _wait_for_release(self) -> None:
        if os.getpid() != self._pid:
            return  # the lock is the parent's
        done, _ = await asyncio.wait([asyncio.wrap_future(self._released)], timeout=RELEASE_SECONDS_MAX)
        if not done:
            _log.warning("%s: its lock is kept until the disk answers", self.path)
