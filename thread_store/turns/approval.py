"""A question whether a call may run, asked while the call waits, and its answer.

Invariant: question and answer are on stable storage when the call that records them returns; an answer
that isn't recorded was not given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.items import RolloutItem
from thread_store.turns.approval_records import ApprovalRecords, require_scope

if TYPE_CHECKING:
    from rollout.recorder import RolloutRecorder

__all__ = ["RecordedApproval"]


class RecordedApproval:
    """Made by `Turn.request_approval`. Answer it once; one that is open when its turn ends is withdrawn."""

    def __init__(self, recorder: RolloutRecorder, records: ApprovalRecords) -> None:
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

    async def ask(self, what: str | None) -> None:
        """Record the question, after the request of its call. `Turn.request_approval` does it."""
        await self._recorder.record(self._records.ask(what))
        self._records.note_asked()
        await self._recorder.sync()

    async def approve(self, *, by: str, scope: str = "once", reason: str | None = None) -> None:
        """The call may run.

        Args:
            by: who said so: user, policy, a name.
            scope: once, session or rule; the last two may outlive a resume.

        Raises:
            ApprovalAnswered: there is an answer already.
            ValueError: there is no such scope.
            RolloutWriteError, WriterFenced, RecorderClosed, PendingQueueFull: it is not on stable storage.
        """
        require_scope(scope)
        await self._answer("approved", self._records.answer("approved", by=by, scope=scope, reason=reason))

    async def decline(self, *, by: str, reason: str | None = None) -> None:
        """The call may not run: it ends here, as declined, and the model's output says so. Raises as
        `approve`."""
        await self._answer("declined", self._records.answer("declined", by=by, reason=reason))

    async def expire(self, *, reason: str | None = None) -> None:
        """Nobody answered in time: the call ends as declined. Raises as `approve`."""
        await self._answer("expired", self._records.answer("expired", reason=reason))

    async def withdraw(self, *, reason: str | None = None) -> None:
        """The question is taken back. Its call waits on, and can be asked for again. Raises as `approve`."""
        await self._answer("withdrawn", self._records.answer("withdrawn", reason=reason))

    async def _answer(self, state: str, items: list[RolloutItem]) -> None:
        await self._recorder.record(items)
        self._records.note_answered(state)
        await self._recorder.sync()
