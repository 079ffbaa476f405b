"""Approvals: which questions are open, and which answers still hold.

Invariant: an answer that isn't recorded was not given. At a resume an open question is withdrawn
as not executed, and an answer holds on only if it was given for the session or as a rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, to_builtins

from protocol.call_facts import text_of
from protocol.decoding import convert_plain
from protocol.line import RolloutLine
from protocol.plain_values import clipped
from protocol.tool_calls import CallChange

__all__ = ["APPROVALS_MAX", "APPROVAL_EVENTS", "Approval", "ApprovalFold"]

APPROVALS_MAX = 128
"""The newest so many are kept. One that is let go counts as never answered: it is asked again."""

APPROVAL_EVENTS = frozenset(
    {"exec_approval_request", "apply_patch_approval_request", "request_permissions", "elicitation_request"}
)
"""Codex's questions. It records no answer: that the call began or ended is one."""

_LASTING = ("session", "rule")


class Approval(Struct, omit_defaults=True, kw_only=True):
    """A question whether a call may run, and its answer."""

    approval_id: str
    call_id: str | None = None
    turn_id: str | None = None
    state: str
    """requested, approved, declined, expired or withdrawn."""
    scope: str | None = None
    """once, session or rule."""
    by: str | None = None
    reason: str | None = None
    ordinal: int | None = None
    offset: int | None = None
    from_event: bool = False
    """Whether Codex asked, who records no answer."""


class ApprovalFold:
    """The approvals of a thread, record by record."""

    def __init__(self) -> None:
        self._approvals: dict[str, Approval] = {}

    @property
    def approvals(self) -> list[Approval]:
        """All that are kept, those that changed last at the end."""
        return list(self._approvals.values())

    @property
    def pending(self) -> list[Approval]:
        """Questions without an answer: a resume withdraws them as not executed."""
        return [each for each in self._approvals.values() if each.state == "requested"]

    @property
    def standing(self) -> list[Approval]:
        """Consents that outlive a resume, where the policy lets them."""
        return [
            each for each in self._approvals.values() if each.state == "approved" and each.scope in _LASTING
        ]

    def take(self, line: RolloutLine, payload: Mapping[str, Any], offset: int | None) -> Approval | None:
        """Take an `x_approval`, or one of `APPROVAL_EVENTS`; return it if it is a readable one."""
        from_event = line.type != "x_approval"
        call_id = text_of(payload.get("call_id"))
        approval_id = call_id if from_event else text_of(payload.get("approval_id"))
        state = "requested" if from_event else text_of(payload.get("state"))
        if approval_id is None or state is None:
            return None
        before = self._approvals.pop(approval_id, None)
        approval = Approval(
            approval_id=approval_id,
            call_id=call_id or (before.call_id if before else None),
            turn_id=text_of(payload.get("turn_id")) or (before.turn_id if before else None),
            state=state,
            scope=text_of(payload.get("scope")),
            by=text_of(payload.get("by")),
            reason=clipped(payload.get("reason")),
            ordinal=line.ordinal,
            offset=offset,
            from_event=from_event,
        )
        self._approvals[approval_id] = approval
        if len(self._approvals) > APPROVALS_MAX:
            del self._approvals[next(iter(self._approvals))]
        return approval

    def note_call(self, change: CallChange) -> None:
        """A call went on: what Codex asked about it was answered."""
        approval = self._approvals.get(change.call_id)
        if approval is not None and approval.from_event and (change.has_output or change.has_ended):
            del self._approvals[approval.approval_id]

    def to_plain(self) -> list[Any]:
        """As plain values, fit for JSON."""
        plain: list[Any] = to_builtins(list(self._approvals.values()))
        return plain

    @classmethod
    def from_plain(cls, plain: Any) -> ApprovalFold:
        """From what `to_plain` gave. Raises `msgspec.ValidationError` if it doesn't fit."""
        fold = cls()
        fold._approvals = {each.approval_id: each for each in convert_plain(plain, list[Approval])}
        return fold
