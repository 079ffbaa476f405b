"""Turns, tool calls, approvals and checks for code without a loop: blocking waits instead of awaits.

Invariant: what is recorded, and what is on stable storage when, is the same as in `thread_store.turns.turn`
and beside it; here a Ctrl-C takes the place of a cancellation.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from protocol.call_state import ToolCall
from protocol.errors import RolloutError
from protocol.items import RolloutItem
from protocol.tool_safety import Effect
from thread_store.turns.approval_records import ApprovalRecords, require_scope
from thread_store.turns.call_records import CallPhase, CallRecords
from thread_store.turns.call_tracks import CallSpec
from thread_store.turns.check_records import CheckRecords
from thread_store.turns.file_snapshot import snapshot_file
from thread_store.turns.last_words import INTERRUPTED_SECONDS_MAX
from thread_store.turns.turn_handle import TurnHandle
from thread_store.turns.turn_records import retry_spec

if TYPE_CHECKING:
    from protocol.context import TurnContext
    from protocol.own import FilesItem
    from rollout.blocking import BlockingRecorder
    from thread_store.blocking_thread import BlockingThread

__all__ = ["BlockingApproval", "BlockingCall", "BlockingCheck", "BlockingTurn"]

_TURN_END_SECONDS_MAX = 10.0


class BlockingCall(CallRecords):
    """As `RecordedCall`, used as `with`."""

    def __init__(
        self, recorder: BlockingRecorder, spec: CallSpec, *, replaces: ToolCall | None = None
    ) -> None:
        super().__init__(spec, replaces=replaces)
        self._recorder = recorder

    def request(self) -> None:
        """As `RecordedCall.request`."""
        self._recorder.record(self.intend())
        self.note(CallPhase.INTENDED)

    def give_up(self, reason: str) -> None:
        """As `RecordedCall.give_up`."""
        self._recorder.record(self.decline(reason))
        self.note(CallPhase.ENDED)
        self._recorder.sync()

    def __enter__(self) -> Self:
        items = self.start()
        try:
            self._recorder.record(items)
            self.note(CallPhase.STARTED)
            self._recorder.sync()
        except BaseException as error:
            self._note_unbegun(error)
            raise
        return self

    def _note_unbegun(self, error: BaseException) -> None:
        if self.phase not in (CallPhase.INTENDED, CallPhase.STARTED):
            return
        try:
            self._recorder.record_nowait(self.never_begun(error))
            self.note(CallPhase.ENDED)
        except RolloutError as failure:
            error.add_note(f"that the call {self.call_id} was never begun is not on record: {failure}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        seconds = INTERRUPTED_SECONDS_MAX if not isinstance(error, Exception | None) else None
        try:
            self._recorder.record(self.end(error), timeout=seconds)
            self.note(CallPhase.ENDED)
            self._recorder.sync(seconds)
        except (RolloutError, TimeoutError) as failure:
            text = f"the end of the call {self.call_id} is not on stable storage"
            if error is None:
                failure.add_note(f"{text}; its tool has run")
                raise
            error.add_note(f"{text}: {failure}")


class BlockingApproval:
    """As `RecordedApproval`."""

    def __init__(self, recorder: BlockingRecorder, records: ApprovalRecords) -> None:
        self._recorder = recorder
        self._records = records

    @property
    def approval_id(self) -> str:
        """Its id: `x_call` names it."""
        return self._records.approval_id

    @property
    def state(self) -> str:
        """requested, approved, declined, expired or withdrawn."""
        return self._records.state

    @property
    def is_approved(self) -> bool:
        """Whether the call may run."""
        return self._records.is_approved

    def ask(self, what: str | None) -> None:
        """As `RecordedApproval.ask`."""
        self._recorder.record(self._records.ask(what))
        self._records.note_asked()
        self._recorder.sync()

    def approve(self, *, by: str, scope: str = "once", reason: str | None = None) -> None:
        """As `RecordedApproval.approve`."""
        require_scope(scope)
        self._answer("approved", self._records.answer("approved", by=by, scope=scope, reason=reason))

    def decline(self, *, by: str, reason: str | None = None) -> None:
        """As `RecordedApproval.decline`."""
        self._answer("declined", self._records.answer("declined", by=by, reason=reason))

    def expire(self, *, reason: str | None = None) -> None:
        """As `RecordedApproval.expire`."""
        self._answer("expired", self._records.answer("expired", reason=reason))

    def withdraw(self, *, reason: str | None = None) -> None:
        """As `RecordedApproval.withdraw`."""
        self._answer("withdrawn", self._records.answer("withdrawn", reason=reason))

    def _answer(self, state: str, items: list[RolloutItem]) -> None:
        self._recorder.record(items)
        self._records.note_answered(state)
        self._recorder.sync()


class BlockingCheck(CheckRecords):
    """As `RecordedCheck`, used as `with`."""

    def __init__(self, recorder: BlockingRecorder, records: CheckRecords) -> None:
        super().__init__(records.check_id, records.turn_id, records.what, records.call_ids)
        self._recorder = recorder

    def __enter__(self) -> Self:
        self._recorder.record(self.start())
        try:
            self._recorder.sync()
        except BaseException as error:
            self._note_unbegun(error)
            raise
        return self

    def _note_unbegun(self, error: BaseException) -> None:
        try:
            self._recorder.record_nowait(self.never_begun(error))
        except RolloutError as failure:
            error.add_note(f"that the check {self.check_id} was never begun is not on record: {failure}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        end = self.end(error)
        if end is None:
            return
        seconds = INTERRUPTED_SECONDS_MAX if not isinstance(error, Exception | None) else None
        try:
            self._recorder.record(end, timeout=seconds)
            self._recorder.sync(seconds)
        except (RolloutError, TimeoutError) as failure:
            if error is None:
                raise
            error.add_note(f"the end of the check {self.check_id} is not on stable storage: {failure}")


class BlockingTurn(TurnHandle):
    """As `Turn`, used as `with`. Made by `BlockingThread.turn`."""

    def __init__(self, thread: BlockingThread, turn_id: str, context: TurnContext | None) -> None:
        super().__init__(thread, turn_id, context, meta=thread.meta, safety=thread.tool_safety)
        self.thread = thread

    def __enter__(self) -> Self:
        self.thread.record(self._records.begin())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.thread.record(self._records.end(error), timeout=_TURN_END_SECONDS_MAX)
        except RolloutError as failure:
            if error is None:
                raise
            error.add_note(f"the end of the turn was not recorded: {failure}")
        if error is None:
            self.thread.compact_if_due()

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
    ) -> BlockingCall:
        """As `Turn.tool_call`, to be entered with `with`."""
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
        call = BlockingCall(self.thread, spec)
        self._records.take_call(call)
        return call

    def retry(
        self,
        call: ToolCall,
        *,
        arguments: str | Mapping[str, Any] | None = None,
        call_id: str | None = None,
        free_text: bool = False,
    ) -> BlockingCall:
        """As `Turn.retry`."""
        spec = self._records.spec(**retry_spec(call, arguments), call_id=call_id, free_text=free_text)
        again = BlockingCall(self.thread, spec, replaces=call)
        self._records.take_call(again)
        return again

    def request_approval(
        self, call: CallRecords | str, *, what: str | None = None, approval_id: str | None = None
    ) -> BlockingApproval:
        """As `Turn.request_approval`."""
        approval = BlockingApproval(self.thread, self._records.question(call, approval_id))
        approval.ask(what)
        return approval

    def check(self, what: str, *, call_ids: Sequence[str] = (), check_id: str | None = None) -> BlockingCheck:
        """As `Turn.check`, to be entered with `with`."""
        return BlockingCheck(self.thread, self._records.check(what, call_ids, check_id))

    def file_read(self, path: str | os.PathLike[str]) -> FilesItem:
        """As `Turn.file_read`."""
        snapshot = snapshot_file(os.path.join(self.thread.meta.cwd, path))
        self.thread.record(snapshot)
        return snapshot
