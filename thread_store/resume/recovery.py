"""Recovery: what is recorded when a thread is taken over from an agent that died.

Invariant: pure, and a second recovery of what a first one left has nothing to say. It tells the truth: a
call whose outcome nobody knows is `unknown` and stays so until somebody decides, one that never began was
not executed, one whose end is known gets the output that was missing. It accepts the damage before it
(FORMAT.md, Tool calls), so it is recorded only once nothing stands against the resume.
"""

from __future__ import annotations

from collections.abc import Iterator

from protocol import tracks
from protocol.approvals import Approval
from protocol.items import RolloutItem
from protocol.own import ApprovalItem, CallItem
from protocol.timestamps import now_ms
from protocol.tool_calls import ToolCall
from protocol.tool_verdicts import ToolVerdict
from rollout.core import writer_note
from thread_store.context.model_view import made_result
from thread_store.resume.resume_outputs import NOT_EXECUTED, dangling_calls, missing_outputs
from thread_store.resume.resume_state import ResumeState

__all__ = ["recovery_items"]

_SAID_ENOUGH = ("unknown", "aborted", "superseded", "resolved")
"""Last own states of uncertain calls that a recovery has nothing to add to."""


def recovery_items(state: ResumeState, *, epoch: int) -> list[RolloutItem]:
    """What to record behind the end of a thread before it goes on, in this order; empty if nothing is open.

    `epoch`: that of the writer who takes it over.
    """
    calls = [each for each in state.open_calls if _has_news(each)]
    items = [
        *(_call_record(each, epoch) for each in calls if state.can_name(each)),
        *_outputs(state),
        *(_withdrawn(each) for each in state.pending_approvals),
        *(tracks.turn_aborted(state.turn_id) if state.turn_id is not None else ()),
        # Only once that turn has ended a record without a turn means them.
        *(_call_record(each, epoch) for each in calls if not state.can_name(each)),
    ]
    if not items and not _has_blocking_damage(state):
        return []
    return [writer_note("recovered", epoch, reason=_reason(state)), *items]


def _has_blocking_damage(state: ResumeState) -> bool:
    return any(each.hides_calls and not each.accepted for each in state.damage)


def _reason(state: ResumeState) -> str:
    allowed = sorted({each.reason.value for each in state.waived})
    return "resumed" + (f" in spite of {', '.join(allowed)}" if allowed else "")


def _has_news(call: ToolCall) -> bool:
    return call.own == "intended" if call.verdict is ToolVerdict.PENDING else call.own not in _SAID_ENOUGH


def _call_record(call: ToolCall, epoch: int) -> CallItem:
    if call.verdict is ToolVerdict.PENDING:
        return _call_state(call, "declined", NOT_EXECUTED)
    return _call_state(call, "unknown", f"found open by the writer of epoch {epoch}: {call.reason}")


def _call_state(call: ToolCall, state: str, error: str) -> CallItem:
    return CallItem(
        call_id=call.call_id,
        turn_id=call.turn_id,
        state=state,
        kind=call.kind,
        name=call.name,
        attempt=call.attempt,
        effect=call.effect if call.effect_declared else None,
        key=call.key,
        args_sha256=call.args_sha256,
        approval_id=call.approval_id,
        error=error,
        at_ms=now_ms(),
    )


def _outputs(state: ResumeState) -> Iterator[RolloutItem]:
    """For the calls that the model sees and has no result of: else Codex would make one up."""
    texts = missing_outputs(state.items, state.calls)
    for item in dangling_calls(state.items):
        if item.call_id is not None:
            yield RolloutItem.raw("response_item", bytes(made_result(item, texts[item.call_id]).payload))


def _withdrawn(approval: Approval) -> ApprovalItem:
    return ApprovalItem(
        approval_id=approval.approval_id,
        call_id=approval.call_id,
        turn_id=approval.turn_id,
        state="withdrawn",
        scope=approval.scope,
        reason="the process ended before an answer",
        at_ms=now_ms(),
    )
