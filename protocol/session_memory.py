"""Session memory: what an agent must still know when its context is gone, in bounded space.

Invariant: a pure fold, O(1) a record, and the same whether it went through all records or on from
a snapshot. The newest entries stay; warnings are never cut. A roll-back takes back what was said
(goals, plans, what the agent reported) and nothing that was done: effects stay, and so does what
tells of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import to_builtins

from protocol.approvals import Approval
from protocol.call_facts import count_of, text_of
from protocol.checks import Check
from protocol.damage import Damage
from protocol.decoding import convert_plain
from protocol.line import RolloutLine
from protocol.memory_entries import ENTRY_CHARS_MAX, Entry, Place
from protocol.memory_state import MemoryState
from protocol.memory_text import render_memory
from protocol.plain_values import squeezed
from protocol.plans import PLAN_TOOLS, Plan, Todo, plan_of_arguments, plan_of_event
from protocol.tool_calls import CallChange, ToolCall
from protocol.tool_safety import Effect
from protocol.tool_verdicts import ToolVerdict
from protocol.user_texts import typed_text

__all__ = ["SessionMemory"]

_FAILED_STATES = ("failed", "model_recovery_failed", "error")


class SessionMemory:
    """The bounded memory of a session. `add` takes its lines in order; calls, checks, approvals and
    damage are noted by whoever folds those (`protocol.thread_fold`)."""

    def __init__(self) -> None:
        self._state = MemoryState()

    # -- what is remembered

    @property
    def goal(self) -> str | None:
        """The last message that the user typed."""
        return self._state.goals[-1].text if self._state.goals else None

    @property
    def todos(self) -> list[Todo]:
        """The steps of the newest plan."""
        return list(self._state.plans[-1].plan.steps) if self._state.plans else []

    @property
    def state(self) -> str | None:
        """The state that the newest `x_state` went to."""
        return self._state.state

    @property
    def completed(self) -> list[Entry]:
        """Turns, steps of plans, and declared side effects that were completed; newest last."""
        return list(self._state.completed)

    @property
    def decisions(self) -> list[Entry]:
        """What was decided: approvals, uncertain calls, why the plan is as it is; newest last."""
        return list(self._state.decisions)

    @property
    def failures(self) -> list[Entry]:
        """What failed: calls, turns, the recovery of the model; newest last."""
        return list(self._state.failures)

    @property
    def transitions(self) -> list[Entry]:
        """Changes of state with their reasons; newest last."""
        return list(self._state.transitions)

    @property
    def warnings(self) -> list[Entry]:
        """All warnings, oldest first: none is ever cut."""
        return list(self._state.warnings)

    @property
    def verifications(self) -> list[Entry]:
        """The state of each check, those that changed last at the end."""
        return list(self._state.verifications)

    # -- what goes in

    def add(self, line: RolloutLine, offset: int | None = None) -> None:
        """Take the next line, which stands at `offset` (bytes)."""
        payload = line.payload_object()
        self.take(line, payload if isinstance(payload, dict) else {}, Place(line.ordinal, offset))

    def take(self, line: RolloutLine, payload: Mapping[str, Any], place: Place) -> None:
        """The same for a line whose payload is decoded, and whose place is known."""
        typed = typed_text(line.type, payload)
        if typed is not None:
            self._state.take_message(*typed, place)
            return
        variant = text_of(payload.get("type")) if line.type in ("event_msg", "response_item") else None
        take = _TAKERS.get((line.type or "", variant))
        if take is not None:
            take(self, payload, place)

    def _turn_started(self, payload: Mapping[str, Any], place: Place) -> None:
        del payload
        self._state.turn_began = place

    def _turn_completed(self, payload: Mapping[str, Any], place: Place) -> None:
        began = self._state.turn_began
        self._state.turn_began = None
        error = payload.get("error")
        if error:
            message = text_of(error.get("message")) if isinstance(error, Mapping) else text_of(error)
            self._state.fail(f"turn failed: {message or 'no message'}", place, began)
        elif last := text_of(payload.get("last_agent_message")):
            self._state.complete(last, place, began, said=True)

    def _turn_aborted(self, payload: Mapping[str, Any], place: Place) -> None:
        began = self._state.turn_began
        self._state.turn_began = None
        self._state.move(f"turn aborted: {text_of(payload.get('reason')) or 'no reason given'}", place, began)

    def _rolled_back(self, payload: Mapping[str, Any], place: Place) -> None:
        turns, marks = count_of(payload.get("num_turns")), self._state.turn_marks
        if turns is None:
            return
        if marks:
            self._state.take_back(marks[-min(turns, len(marks))])
        self._state.move(f"{turns} turns rolled back; their side effects stay", place)

    def _compacted(self, payload: Mapping[str, Any], place: Place) -> None:
        del payload
        self._state.move("context compacted", place)

    def _function_call(self, payload: Mapping[str, Any], place: Place) -> None:
        name = text_of(payload.get("name"))
        if name is not None and name in PLAN_TOOLS and not payload.get("namespace"):
            self._take_plan(plan_of_arguments(name, payload.get("arguments")), place)

    def _plan_update(self, payload: Mapping[str, Any], place: Place) -> None:
        self._take_plan(plan_of_event(payload), place)

    def _take_plan(self, plan: Plan | None, place: Place) -> None:
        if plan is not None:
            self._state.take_plan(plan, place)

    def _state_changed(self, payload: Mapping[str, Any], place: Place) -> None:
        to, before = text_of(payload.get("to")), text_of(payload.get("from"))
        reason = text_of(payload.get("reason"))
        if to is None:
            return
        self._state.state = squeezed(to, ENTRY_CHARS_MAX)
        text = f"{before} → {to}" if before else to
        text += f": {reason}" if reason else ""
        self._state.move(text, place)
        if to in _FAILED_STATES or reason in _FAILED_STATES:
            self._state.fail(text, place)

    def _error(self, payload: Mapping[str, Any], place: Place) -> None:
        if message := text_of(payload.get("message")):
            self._state.fail(message, place)

    def _warning(self, payload: Mapping[str, Any], place: Place) -> None:
        if message := text_of(payload.get("message")):
            self.warn(message, place)

    def _writer(self, payload: Mapping[str, Any], place: Place) -> None:
        event = text_of(payload.get("event"))
        if event in ("recovered", "repaired"):
            reason = text_of(payload.get("reason"))
            self._state.move(f"rollout {event}" + (f": {reason}" if reason else ""), place)

    # -- what other folds found out

    def note_call(self, change: CallChange, place: Place) -> None:
        """A call went on: its failure, its declared side effect, or what was decided of it, stays."""
        if not change.has_ended and not change.is_decided:
            return
        call = change.call
        first = place if call.request_offset is None else Place(call.request_ordinal, call.request_offset)
        if change.is_decided:
            self._state.decide(_decision_text(call), place, first)
        elif call.verdict is not ToolVerdict.COMPLETED:
            if change.before is not None:
                self._state.drop_failure(f"{_call_name(call)} {change.before}")
            detail = f": {call.error}" if call.error else ""
            self._state.fail(f"{_call_name(call)} {call.verdict}{detail}", place, first)
        elif call.effect is Effect.UNSAFE and call.effect_declared:
            self._state.complete(f"{_call_name(call)} completed", place, first)

    def note_approval(self, approval: Approval, place: Place) -> None:
        """An answer is a decision."""
        if approval.state in ("approved", "declined"):
            by = f" by {approval.by}" if approval.by else ""
            reason = f": {approval.reason}" if approval.reason else ""
            about = approval.call_id or approval.approval_id
            self._state.decide(f"call {about} {approval.state}{by}{reason}", place)

    def note_check(self, check: Check, place: Place) -> None:
        """The state of a check is the newest that was noted."""
        text = f"{check.what or check.check_id}: {check.state}"
        text += f" ({check.evidence})" if check.evidence else ""
        self._state.verify(check, text, place)

    def note_damage(self, damage: Damage, place: Place) -> None:
        """A range that can't be read is a warning, one for each reason."""
        told = "it may have hidden a tool call" if damage.hides_calls else "it hides no tool call"
        self.warn(f"part of the rollout is missing or can't be read ({damage.reason}); {told}", place)

    def warn(self, message: str, place: Place) -> None:
        """Keep a warning."""
        self._state.warn(message, place)

    # -- what goes out

    def render(self) -> str:
        """The block of text that stands between the system prompt and the history."""
        return render_memory(self)

    def to_plain(self) -> dict[str, Any]:
        """As plain values, fit for JSON."""
        plain: dict[str, Any] = to_builtins(self._state)
        return plain

    @classmethod
    def from_plain(cls, plain: Any) -> SessionMemory:
        """From what `to_plain` gave. Raises `msgspec.ValidationError` if it doesn't fit."""
        memory = cls()
        memory._state = convert_plain(plain, MemoryState)
        return memory

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SessionMemory) and self._state == other._state

    __hash__ = None  # type: ignore[assignment]  # it changes


def _call_name(call: ToolCall) -> str:
    return f"{call.name or call.kind or 'call'} ({call.call_id})"


def _decision_text(call: ToolCall) -> str:
    decision = call.decision
    if decision is None:
        return f"{_call_name(call)} was decided"
    by = f" by {decision.by}" if decision.by else ""
    note = f": {decision.note}" if decision.note else ""
    return f"{_call_name(call)} was decided{by}: {decision.outcome}{note}"


_Taker = Callable[[SessionMemory, Mapping[str, Any], Place], None]

_TAKERS: dict[tuple[str, str | None], _Taker] = {
    ("event_msg", "task_started"): SessionMemory._turn_started,
    ("event_msg", "turn_started"): SessionMemory._turn_started,
    ("event_msg", "task_complete"): SessionMemory._turn_completed,
    ("event_msg", "turn_complete"): SessionMemory._turn_completed,
    ("event_msg", "turn_aborted"): SessionMemory._turn_aborted,
    ("event_msg", "thread_rolled_back"): SessionMemory._rolled_back,
    ("event_msg", "plan_update"): SessionMemory._plan_update,
    ("event_msg", "error"): SessionMemory._error,
    ("event_msg", "warning"): SessionMemory._warning,
    ("response_item", "function_call"): SessionMemory._function_call,
    ("compacted", None): SessionMemory._compacted,
    ("x_state", None): SessionMemory._state_changed,
    ("x_writer", None): SessionMemory._writer,
}
"""Beside the messages of the user, by type and variant."""
