"""What a model is told of a call whose result it never got.

Invariant: it is told what is known and no more. A text of a call whose outcome nobody knows begins with
`outcome unknown`, which no fold takes for an end; one of a call that never ran says that it didn't.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from protocol.tool_calls import ToolCall
from protocol.tool_verdicts import ToolVerdict
from thread_store.context.model_item import ModelItem
from thread_store.context.model_view import UNKNOWN_OUTCOME, pair_calls

__all__ = ["NOT_EXECUTED", "call_by_id", "dangling_calls", "missing_outputs", "output_text"]

NOT_EXECUTED = "not executed: the process ended before this call began"

_DECIDED = {
    "happened": "the output is lost; it was decided that the call happened",
    "not_happened": "not executed: it was decided that the call did not happen",
    "retry": "outcome unknown; it was decided to try again",
}
_KNOWN = {
    ToolVerdict.COMPLETED: "completed; its output is not at hand",
    ToolVerdict.FAILED: "failed; its output is not at hand",
    ToolVerdict.DECLINED: "declined: not executed",
    ToolVerdict.PENDING: NOT_EXECUTED,
    ToolVerdict.UNCERTAIN: UNKNOWN_OUTCOME,
}


def output_text(call: ToolCall | None) -> str:
    """What to say in the place of the output that is missing; None: nothing is known of the call."""
    if call is None:
        return UNKNOWN_OUTCOME
    decision = call.decision
    if decision is not None and decision.outcome in _DECIDED:
        by = f" (by {decision.by})" if decision.by else ""
        note = f": {decision.note}" if decision.note else ""
        return f"{_DECIDED[decision.outcome]}{by}{note}"
    text = _KNOWN[call.verdict]
    told = call.error if call.verdict in (ToolVerdict.FAILED, ToolVerdict.DECLINED) else None
    return f"{text}: {told}" if told else text


def dangling_calls(items: Sequence[ModelItem]) -> list[ModelItem]:
    """The calls among the items of a context that have no result, in their order."""
    numbers = sorted(pair.call for pair in pair_calls(items) if pair.call is not None and pair.result is None)
    return [items[number] for number in numbers]


def missing_outputs(items: Sequence[ModelItem], calls: Iterable[ToolCall]) -> Mapping[str, str]:
    """By call id, what to say of the calls in a context that have no result."""
    known = call_by_id(calls)
    return {
        each.call_id: output_text(known.get(each.call_id))
        for each in dangling_calls(items)
        if each.call_id is not None
    }


def call_by_id(calls: Iterable[ToolCall]) -> dict[str, ToolCall]:
    """Of several calls with one id the least certain counts, else the newest: an output names no turn, and
    one that tells an end must not be taken for that of another call."""
    known: dict[str, ToolCall] = {}
    for call in calls:  # those whose end is known come first
        before = known.get(call.call_id)
        if before is None or not _is_uncertain(before):
            known[call.call_id] = call
    return known


def _is_uncertain(call: ToolCall) -> bool:
    return call.is_open and call.verdict is ToolVerdict.UNCERTAIN
