"""An open thread of a store: a recorder that knows turns.

Invariant: a turn that was begun is ended, whatever happens in its body: `task_complete` when it
returns or raises, `turn_aborted` when it is cancelled or interrupted. A thread's lock is held until
its rollout is closed, and released before `aclose()` returns.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import os
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from protocol import tracks
from protocol.errors import PendingQueueFull, RolloutError
from protocol.ids import ThreadId
from protocol.timestamps import now_ms
from rollout.barrier import Receipt
from rollout.recorder import RolloutRecorder
from thread_store.file_snapshot import snapshot_file
from thread_store.tool_call import RecordedCall, ToolEffect

if TYPE_CHECKING:
    from protocol.context import TurnContext
    from protocol.items import RolloutItem
    from protocol.meta import SessionMeta
    from protocol.own import FilesItem
    from rollout.core import Core

__all__ = ["RELEASE_SECONDS_MAX", "OpenThread", "Thread", "Turn"]

_log = logging.getLogger("thread_store")

RELEASE_SECONDS_MAX = 5.0
"""A lock is not waited for longer: while a disk hangs, its writer's lock stays, and so it should."""


_END_SECONDS_MAX = 10.0
"""How long the end of a turn waits for room in the queue."""


class OpenThread(NamedTuple):
    """What stands behind the handle of an open thread."""

    core: Core
    meta: SessionMeta
    released: concurrent.futures.Future[None]
    """Done when its lock is free."""


class Thread(RolloutRecorder):
    """A thread that is open to write. Made by a store; used as `async with` or closed with `aclose()`.

    Everything a `RolloutRecorder` does, and turns.
    """

    def __init__(self, opened: OpenThread) -> None:
        super().__init__(opened.core)
        self._meta = opened.meta
        self._released = opened.released
        self._pid = os.getpid()

    @property
    def meta(self) -> SessionMeta:
        """The thread's own meta line."""
        return self._meta

    def turn(self, *, context: TurnContext | None = None, turn_id: str | None = None) -> Turn:
        """A turn, to be entered with `async with`. `context`: its settings. One at a time."""
        return Turn(self, turn_id or str(ThreadId.new()), context)

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


class Turn:
    """One turn of a thread: what the user asked and everything the agent did about it."""

    def __init__(self, thread: Thread, turn_id: str, context: TurnContext | None) -> None:
        self.thread = thread
        self.turn_id = turn_id
        self._context = context
        self._started_ms = 0
        self._last_agent_message: str | None = None

    async def __aenter__(self) -> Self:
        self._started_ms = now_ms()
        await self.thread.record(tracks.turn_started(self.turn_id, context=self._context))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        end = self._end_of(error)
        try:
            try:
                self.thread.record_nowait(end)
            except PendingQueueFull:
                await self.thread.record(end, timeout=_END_SECONDS_MAX)
        except RolloutError as failure:
            if error is None:
                raise
            # What happened in the body goes first: a cancelled task stays cancelled.
            error.add_note(f"the end of the turn was not recorded: {failure}")

    def _end_of(self, error: BaseException | None) -> list[RolloutItem]:
        if error is not None and not isinstance(error, Exception):  # cancelled, or Ctrl-C
            return tracks.turn_aborted(self.turn_id, started_ms=self._started_ms)
        return tracks.turn_completed(
            self.turn_id,
            last_agent_message=self._last_agent_message,
            started_ms=self._started_ms,
            error=None if error is None else f"{type(error).__name__}: {error}",
        )

    def tool_call(
        self,
        name: str,
        arguments: str | Mapping[str, Any],
        *,
        effect: ToolEffect | str = ToolEffect.UNSAFE,
        call_id: str | None = None,
        kind: str = "custom",
        key: str | None = None,
        attempt: int = 1,
    ) -> RecordedCall:
        """A tool call, to be entered with `async with`: its body runs when the request is on stable storage.

        Args:
            arguments: as the model gave them, JSON text or an object.
            effect: what running it again could do: none, idempotent or unsafe.
            call_id: the model's; by default a new one.
            kind: shell, patch, mcp, custom, web or agent.
            key: the same for each attempt of one intent.

        Raises:
            ValueError: there is no such effect.
            RolloutWriteError, WriterFenced, RecorderClosed, PendingQueueFull: entering it, then the body does
                not run; or leaving it, then its end is not on stable storage.
        """
        return RecordedCall(
            self,
            name,
            arguments,
            call_id=call_id or f"call-{ThreadId.new()}",
            effect=ToolEffect(effect),
            kind=kind,
            key=key,
            attempt=attempt,
        )

    async def file_read(self, path: str | os.PathLike[str]) -> FilesItem:
        """Record that the agent read a file, as it is now: size, time and hash, taken off the loop.

        `path` is relative to the folder of the thread.

        Raises:
            OSError: it can't be read; nothing is recorded.
        """
        snapshot = await asyncio.to_thread(snapshot_file, os.path.join(self.thread.meta.cwd, path))
        await self.thread.record(snapshot)
        return snapshot

    def user_message(self, text: str, *, images: Sequence[str] = ()) -> None:
        """What the user said, on both tracks. Raises as `record_nowait`."""
        self.thread.record_nowait(tracks.user_message(text, images=images))

    def agent_message(self, text: str, *, phase: str | None = None) -> None:
        """What the agent said, on both tracks. `phase`: commentary, partial_answer or final_answer."""
        self.thread.record_nowait(tracks.agent_message(text, phase=phase))
        self._last_agent_message = text

    def agent_reasoning(self, summary: str | Sequence[str]) -> None:
        """What the agent thought, as the texts of its summary, on both tracks."""
        self.thread.record_nowait(tracks.agent_reasoning(summary))
