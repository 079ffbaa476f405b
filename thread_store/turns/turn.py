"""A turn of a thread, entered with `async with`: what the user asked and everything the agent did about it.

Invariant: what it records is decided in `thread_store.turns.turn_records`; here it is recorded, and waited
for. The end of a turn waits for room in the queue, and not for ever.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from protocol.call_state import ToolCall
from protocol.errors import RolloutError
from protocol.tool_safety import Effect
from thread_store.turns.approval import RecordedApproval
from thread_store.turns.call_records import CallRecords
from thread_store.turns.check import RecordedCheck
from thread_store.turns.file_snapshot import snapshot_file
from thread_store.turns.last_words import record_last_words
from thread_store.turns.tool_call import RecordedCall
from thread_store.turns.turn_handle import TurnHandle
from thread_store.turns.turn_records import retry_spec

if TYPE_CHECKING:
    from protocol.context import TurnContext
    from protocol.own import FilesItem
    from thread_store.thread import Thread

__all__ = ["Turn"]

_END_SECONDS_MAX = 10.0
"""How long the end of a turn waits for room in the queue."""


class Turn(TurnHandle):
    """One turn of a thread. Made by `Thread.turn`."""

    def __init__(self, thread: Thread, turn_id: str, context: TurnContext | None) -> None:
        super().__init__(thread, turn_id, context, meta=thread.meta, safety=thread.tool_safety)
        self.thread = thread

    async def __aenter__(self) -> Self:
        await self.thread.record(self._records.begin())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            end = self._records.end(error)
            await record_last_words(self.thread, end, timeout=_END_SECONDS_MAX)
        except RolloutError as failure:
            if error is None:
                raise
            # What happened in the body goes first: a cancelled task stays cancelled.
            error.add_note(f"the end of the turn was not recorded: {failure}")
        if error is None:
            await self.thread.compact_if_due()

    # Calls

    def tool_call(
        self,
        name: str,
        arguments: str | Mapping[str, Any],
        *,
        effect: Effect | str | None = None,
        call_id: str | None = None,
        kind: str | None = None,
        namespace: str | None = None,
        free_text: bool = False,
        key: str | None = None,
        attempt: int = 1,
    ) -> RecordedCall:
        """A tool call, to be entered with `async with`: its body runs when the request is on stable storage.

        Args:
            arguments: as the model gave them, JSON text or an object.
            effect: what running it again could do: none, idempotent or unsafe. By default what the
                store's registry of tools says; a tool that nobody knows is unsafe.
            call_id: the model's; by default a new one.
            kind: shell, patch, mcp, custom, web or agent; by default told by the names.
            namespace: `mcp__<server>` for a tool of an MCP server.
            free_text: the tool takes a text that is no JSON.
            key: the same for each attempt of one intent.

        Raises:
            ValueError: there is no such effect or kind, or the server is missing.
            RolloutWriteError, WriterFenced, RecorderClosed, PendingQueueFull: entering it, then the body does
                not run; or leaving it, then its end is not on stable storage.
            CallRefused: entering it, if it has begun before or its approval was not given.
        """
        spec = self._records.spec(
            name,
            arguments,
            effect=effect,
            call_id=call_id,
            kind=kind,
            namespace=namespace,
            free_text=free_text,
            key=key,
            attempt=attempt,
        )
        call = RecordedCall(self.thread, spec)
        self._records.take_call(call)
        return call

    def retry(
        self,
        call: ToolCall,
        *,
        arguments: str | Mapping[str, Any] | None = None,
        call_id: str | None = None,
        free_text: bool = False,
    ) -> RecordedCall:
        """Run again what a resume allows, as a further attempt with the same key, under a call id of its own.

        Args:
            call: as the fold of the thread has it, for example from a resume.
            arguments: needed where the fold has not kept the whole of them; must be the same.
            free_text: as `tool_call`.

        Raises:
            CallRefused: it must not run again without a decision; or its arguments are not known, or others.
        """
        how = retry_spec(call, arguments)
        spec = self._records.spec(**how, call_id=call_id, free_text=free_text)
        again = RecordedCall(self.thread, spec, replaces=call)
        self._records.take_call(again)
        return again

    async def request_approval(
        self, call: CallRecords | str, *, what: str | None = None, approval_id: str | None = None
    ) -> RecordedApproval:
        """Ask whether a call may run. On return the question is on stable storage, behind the call's request.

        Until it is approved the call can't be entered. A call that the agent recorded by itself is named by
        its id; its output is then the agent's to record.

        Args:
            what: what is asked, for people.

        Raises:
            CallRefused: the call has ended.
            RolloutWriteError, WriterFenced, RecorderClosed, PendingQueueFull: it is not on stable storage.
        """
        approval = RecordedApproval(self.thread, self._records.question(call, approval_id))
        await approval.ask(what)
        return approval

    def check(self, what: str, *, call_ids: Sequence[str] = (), check_id: str | None = None) -> RecordedCheck:
        """A verification, to be entered with `async with`. `call_ids`: the calls that it is made of.

        One that was left unfinished is ended by a further one with its `check_id`.

        Raises: as `tool_call`, entering and leaving it.
        """
        return RecordedCheck(self.thread, self._records.check(what, call_ids, check_id))

    # What was seen

    async def file_read(self, path: str | os.PathLike[str]) -> FilesItem:
        """Record that the agent read a file, as it is now: size, time and hash, taken off the loop.

        `path` is relative to the folder of the thread.

        Raises:
            OSError: it can't be read; nothing is recorded.
        """
        snapshot = await asyncio.to_thread(snapshot_file, os.path.join(self.thread.meta.cwd, path))
        await self.thread.record(snapshot)
        return snapshot
