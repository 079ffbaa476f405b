"""One question whether a call may run, and its answer: what to record of them. No waiting.

Invariant: a question is answered once. Only `approved` lets its call begin: one that is open, declined,
expired or withdrawn doesn't. A declined or expired one ends its call as declined; after a withdrawn
one it can be asked again.
"""

from __future__ import annotations

from protocol.errors import ApprovalAnswered, CallRefused
from protocol.items import RolloutItem
from protocol.own import ApprovalItem, CallItem
from protocol.timestamps import now_ms
from thread_store.turns.call_records import CallPhase, CallRecords

__all__ = ["SCOPES", "ApprovalRecords", "require_scope"]

SCOPES = ("once", "session", "rule")
"""How far a consent reaches. One that was given once doesn't outlive a resume."""

_OUTPUTS = {
    "declined": "not run: it was declined",
    "expired": "not run: nobody allowed it in time",
}
"""What the model gets, before the reason, where the answer ends the call."""


class ApprovalRecords:
    """A question in the hands of whoever asks it."""

    def __init__(self, approval_id: str, call_id: str, turn_id: str, call: CallRecords | None) -> None:
        self.approval_id = approval_id
        self.call_id = call_id
        self.turn_id = turn_id
        self.state = "not asked"
        """Then requested, then approved, declined, expired or withdrawn."""
        self._call = call

    @property
    def is_approved(self) -> bool:
        """Whether the call may run."""
        return self.state == "approved"

    @property
    def is_open(self) -> bool:
        """Whether it was asked, and has no answer yet."""
        return self.state == "requested"

    def ask(self, what: str | None) -> list[RolloutItem]:
        """The question; before it the request of a call that isn't recorded yet.

        Raises:
            CallRefused: the call has ended.
        """
        call = self._call
        if call is not None and call.phase is CallPhase.ENDED:
            raise CallRefused(self.call_id, "it has ended")
        request = call.intend() if call is not None and call.phase is CallPhase.MADE else []
        return [*request, self._item("requested", reason=what)]

    def note_asked(self) -> None:
        """The question was accepted: its call waits for the answer."""
        self.state = "requested"
        if self._call is not None:
            if self._call.phase is CallPhase.MADE:
                self._call.note(CallPhase.INTENDED)
            self._call.note_approval(self)

    def answer(
        self, state: str, *, by: str | None = None, scope: str | None = None, reason: str | None = None
    ) -> list[RolloutItem]:
        """The answer, and the end of the call if it may not run.

        Raises:
            ApprovalAnswered: there is an answer already.
        """
        if not self.is_open:
            raise ApprovalAnswered(self.approval_id, self.state)
        answer = self._item(state, by=by, scope=scope, reason=reason)
        if state not in _OUTPUTS:
            return [answer]
        text = _OUTPUTS[state] + (f": {reason}" if reason else "")
        if self._call is None:
            return [answer, self._unknown_call(text)]
        return [answer, *(self._call.decline(text) if self._ends_call(state) else [])]

    def _unknown_call(self, text: str) -> CallItem:
        """That a call was not run which the agent recorded by itself. The form of its output isn't known."""
        return CallItem(
            call_id=self.call_id, turn_id=self.turn_id, state="declined", error=text, at_ms=now_ms()
        )

    def note_answered(self, state: str) -> None:
        """The answer was accepted."""
        if self._ends_call(state):
            assert self._call is not None
            self._call.note(CallPhase.ENDED)
        self.state = state

    def _ends_call(self, state: str) -> bool:
        return state in _OUTPUTS and self._call is not None and self._call.phase is CallPhase.INTENDED

    def _item(
        self, state: str, *, by: str | None = None, scope: str | None = None, reason: str | None = None
    ) -> ApprovalItem:
        return ApprovalItem(
            approval_id=self.approval_id,
            call_id=self.call_id,
            turn_id=self.turn_id,
            state=state,
            scope=scope,
            by=by,
            reason=reason,
            at_ms=now_ms(),
        )


def require_scope(scope: str) -> str:
    """The scope, if there is such a one. Raises ValueError."""
    if scope not in SCOPES:
        raise ValueError(f"{scope!r} is no scope of an approval: once, session or rule")
    return scope
