"""Decisions on uncertain calls: which call is meant, and the record that says what was decided.

Invariant: pure. Only a call whose outcome nobody knows is decided on, and an id that may mean two of them
is refused. A decision to try again always has a key, so that the further attempt takes the place of this
one and nothing is run a third time.
"""

from __future__ import annotations

from typing import Literal, get_args

from protocol.errors import CallNotResolvable
from protocol.own import CallItem
from protocol.timestamps import now_ms
from protocol.tool_calls import ToolCall
from protocol.tool_verdicts import ToolVerdict
from thread_store.resume.resume_state import ResumeState

__all__ = ["Outcome", "decision_item", "find_uncertain"]

Outcome = Literal["happened", "not_happened", "retry"]


def find_uncertain(state: ResumeState, call_id: str, *, turn_id: str | None = None) -> ToolCall:
    """The call that a decision is meant for.

    Raises:
        CallNotResolvable: there is none of that id, it isn't uncertain, or several are.
    """
    uncertain = [each for each in state.open_calls if each.verdict is ToolVerdict.UNCERTAIN]
    named = [each for each in state.calls if each.call_id == call_id and turn_id in (None, each.turn_id)]
    meant = [each for each in named if each in uncertain]
    if len(meant) == 1 and state.can_name(meant[0]):
        return meant[0]
    reason, hint, candidates = _why_not(call_id, named, meant, uncertain)
    raise CallNotResolvable(
        call_id,
        reason,
        hint=hint,
        thread_id=state.thread_id,
        candidates=[(each.turn_id, each.call_id) for each in candidates],
    )


def _why_not(
    call_id: str, named: list[ToolCall], meant: list[ToolCall], uncertain: list[ToolCall]
) -> tuple[str, str, list[ToolCall]]:
    waiting = ", ".join(each.call_id for each in uncertain)
    hint = f"A decision is wanted on: {waiting}" if uncertain else "No call of the thread is uncertain"
    if len(meant) > 1:
        turns = ", ".join(str(each.turn_id) for each in meant)
        return f"several uncertain calls have that id, in the turns {turns}", "Name the turn too", meant
    if meant:
        reason = "it stands outside any turn, and another call has its id"
        return reason, "End the turn that is open first", meant
    if named:
        return f"it is {named[-1].verdict}: {named[-1].reason}", hint, uncertain
    return "the thread has no such call", hint, uncertain


def decision_item(call: ToolCall, outcome: Outcome, *, by: str, note: str | None = None) -> CallItem:
    """The record of a decision on a call.

    Raises:
        ValueError: there is no such outcome.
    """
    if outcome not in get_args(Outcome):
        raise ValueError(f"{outcome!r} is no outcome: one of {', '.join(get_args(Outcome))}")
    key = call.key
    if key is None and outcome == "retry":
        key = f"{call.turn_id or ''}/{call.call_id}"
    return CallItem(
        call_id=call.call_id,
        turn_id=call.turn_id,
        state="resolved",
        kind=call.kind,
        name=call.name,
        attempt=call.attempt,
        effect=call.effect if call.effect_declared else None,
        key=key,
        outcome=outcome,
        by=by,
        note=note,
        at_ms=now_ms(),
    )
