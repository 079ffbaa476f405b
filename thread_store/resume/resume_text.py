"""A resume state in words: what would be resumed, what is open, and why it isn't done automatically.

Invariant: each recorded text stands on one line of its own statement. Control characters are left to
whoever shows it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from protocol.tool_calls import ToolCall
from protocol.tool_safety import Effect
from protocol.tool_verdicts import ToolVerdict

if TYPE_CHECKING:
    from thread_store.resume.resume_refusals import Refusal
    from thread_store.resume.resume_state import ResumeState

__all__ = ["advice_on", "explain_state"]

_CHARS_MAX = 200


def explain_state(state: ResumeState) -> str:
    """All of it, as lines of text."""
    lines = [*_heads(state), *_open_calls(state), *_aside(state), *_verdict(state)]
    return "\n".join(lines)


def _heads(state: ResumeState) -> Iterator[str]:
    yield f"Thread {state.thread_id or 'without an id'} in {_line(state.cwd) or 'no folder'}"
    yield f"  {state.path}"
    memory = state.memory
    for title, text in (("Goal", memory.goal), ("State", memory.state)):
        if text:
            yield f"  {title}: {_line(text)}"
    since = "from its beginning" if state.checkpoint is None else "from a checkpoint on"
    yield f"  History: {len(state.items)} items, {since}"
    if state.passed_over:
        yield f"  Newer checkpoints that can't be read: {len(state.passed_over)}"
    if not state.whole:
        yield f"  Looked at from byte {state.examined_from.offset:,} on; what is older is not known"
    if state.base_problem is not None:
        yield f"  {_line(state.base_problem.message)}"
    done = [each for each in state.todos if each.status == "completed"]
    if state.todos:
        yield f"  Plan: {len(done)} of {len(state.todos)} steps done"


def _open_calls(state: ResumeState) -> Iterator[str]:
    if state.open_calls:
        yield "Open calls:"
    for call in state.open_calls:
        named = " ".join(filter(None, (call.name or call.kind, f"({call.call_id})")))
        yield f"  {_line(named)}, {call.effect}: {call.verdict}; {_line(call.reason)}"
        yield f"    {advice_on(call, state.thread_id or '')}"


def advice_on(call: ToolCall, thread_id: str) -> str:
    """What may be done with an open call."""
    if call.decision is not None and call.may_run_again:
        return f"It may run again, as attempt {call.attempt + 1}{_with_key(call)}"
    if call.verdict is ToolVerdict.PENDING:
        return "It has not begun: a resume tells the model so, which may ask for it again"
    if call.effect is not Effect.UNSAFE:
        return (
            f"Running it twice does no harm: it may run again, as attempt {call.attempt + 1}{_with_key(call)}"
        )
    return (
        "Find out whether it happened, then: "
        f"rollout tools {thread_id} --resolve {call.call_id} happened|not_happened|retry"
    )


def _with_key(call: ToolCall) -> str:
    return f" with the key {_line(call.key)}" if call.key else ""


def _aside(state: ResumeState) -> Iterator[str]:
    if state.turn_id is not None:
        yield f"The turn {_line(state.turn_id)} was not ended: it counts as interrupted"
    for approval in state.pending_approvals:
        about = approval.call_id or approval.approval_id
        yield f"The question about {_line(about)} was not answered: it is withdrawn, not executed"
    for approval in state.standing_approvals:
        yield f"Allowed for the {approval.scope}: {_line(approval.reason or approval.approval_id)}"


def _verdict(state: ResumeState) -> Iterator[str]:
    if not state.refusals:
        yield "Nothing stands against resuming it"
        return
    yield "It is not resumed automatically:"
    for each in state.refusals:
        yield from _refusal(each)


def _refusal(refusal: Refusal) -> Iterator[str]:
    yield f"  {_line(str(refusal))}"
    if refusal.hint:
        yield f"    {_line(refusal.hint)}"


def _line(text: str) -> str:
    line = " ".join(text[: 4 * _CHARS_MAX].split())
    return line if len(line) <= _CHARS_MAX else line[: _CHARS_MAX - 1] + "…"
