"""One turn: its ends, its calls and what is still open in it, decided without waiting.

Invariant: a turn that was begun is ended, whatever happens in its body: `task_complete` when it returns
or raises, `turn_aborted` when it is cancelled or interrupted. In the same breath questions that nobody
answered are withdrawn, and calls that were asked for and never begun are declined: the marker of the
turn and the states of its calls say the same.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from protocol import tracks
from protocol.call_facts import kind_of_tool
from protocol.call_state import ToolCall
from protocol.errors import CallRefused
from protocol.events import EventMsg, PlanStep
from protocol.ids import ThreadId
from protocol.items import RolloutItem
from protocol.timestamps import now_ms
from protocol.tool_safety import DEFAULT_TOOL_SAFETY, Effect, ToolSafety
from thread_store.turns.approval_records import ApprovalRecords
from thread_store.turns.call_records import CallPhase, CallRecords, args_sha256
from thread_store.turns.call_tracks import CALL_KINDS, CallSpec
from thread_store.turns.check_records import CheckRecords

if TYPE_CHECKING:
    from protocol.context import TurnContext

__all__ = ["TurnRecords", "retry_spec"]

_TURN_ENDED = "not run: the turn ended before it began"


class TurnRecords:
    """What a turn leaves."""

    def __init__(
        self,
        turn_id: str,
        *,
        cwd: str,
        context: TurnContext | None = None,
        safety: ToolSafety = DEFAULT_TOOL_SAFETY,
    ) -> None:
        self.turn_id = turn_id
        self.last_agent_message: str | None = None
        self._cwd = cwd
        self._context = context
        self._safety = safety
        self._started_ms = 0
        self._calls: dict[str, CallRecords] = {}
        self._questions: list[ApprovalRecords] = []

    def begin(self) -> list[RolloutItem]:
        """Its start, with its settings."""
        self._started_ms = now_ms()
        return tracks.turn_started(self.turn_id, context=self._context)

    def end(self, error: BaseException | None) -> list[RolloutItem]:
        """Its end, where the body raised `error`, and before it the ends of what is open."""
        return [*self._left_open(), *self._marker(error)]

    def _left_open(self) -> list[RolloutItem]:
        items: list[RolloutItem] = []
        for question in self._questions:
            if question.is_open:
                items += question.answer("withdrawn", reason="the turn ended")
                question.note_answered("withdrawn")
        for call in self._calls.values():
            if call.phase is CallPhase.INTENDED:
                items += call.decline(_TURN_ENDED)
                call.note(CallPhase.ENDED)
        return items

    def _marker(self, error: BaseException | None) -> list[RolloutItem]:
        if error is not None and not isinstance(error, Exception):  # cancelled, or Ctrl-C
            return tracks.turn_aborted(self.turn_id, started_ms=self._started_ms)
        return tracks.turn_completed(
            self.turn_id,
            last_agent_message=self.last_agent_message,
            started_ms=self._started_ms,
            error=None if error is None else f"{type(error).__name__}: {error}",
        )

    # Calls

    def spec(
        self,
        name: str,
        arguments: str | Mapping[str, Any],
        *,
        effect: Effect | str | None,
        call_id: str | None,
        kind: str | None,
        namespace: str | None,
        free_text: bool,
        key: str | None,
        attempt: int,
    ) -> CallSpec:
        """What is called; see `Turn.tool_call`."""
        kind = kind or kind_of_tool(name, namespace)
        if kind not in CALL_KINDS:
            raise ValueError(f"{kind!r} is no kind of tool: {', '.join(CALL_KINDS)}")
        if kind == "mcp" and not (namespace or "").startswith("mcp__"):
            raise ValueError("a tool of an MCP server needs the namespace mcp__<server>")
        return CallSpec(
            turn_id=self.turn_id,
            call_id=call_id or f"call-{ThreadId.new()}",
            name=name,
            arguments=arguments if isinstance(arguments, str) else dict(arguments),
            kind=kind,
            cwd=os.path.abspath(self._cwd),
            namespace=namespace,
            free_text=free_text,
            effect=self._known_effect(kind, name, namespace) if effect is None else Effect(effect),
            key=key,
            attempt=attempt,
        )

    def _known_effect(self, kind: str, name: str, namespace: str | None) -> Effect | None:
        """What the registry says. The name of a command is no tool's name."""
        return None if kind in ("shell", "patch") else self._safety.find(name, namespace)

    def take_call(self, call: CallRecords) -> None:
        """A call of this turn, so that its end isn't forgotten."""
        self._calls[call.call_id] = call

    # Questions and checks

    def question(self, call: CallRecords | str, approval_id: str | None) -> ApprovalRecords:
        """A question about a call, or about one that the agent recorded by itself, by its id."""
        known = call if isinstance(call, CallRecords) else self._calls.get(call)
        call_id = call.call_id if isinstance(call, CallRecords) else call
        question = ApprovalRecords(approval_id or f"approval-{ThreadId.new()}", call_id, self.turn_id, known)
        self._questions.append(question)
        return question

    def check(self, what: str, call_ids: Sequence[str], check_id: str | None) -> CheckRecords:
        """A verification."""
        return CheckRecords(check_id or f"check-{ThreadId.new()}", self.turn_id, what, call_ids)

    def plan(
        self, steps: Sequence[PlanStep | Mapping[str, str] | tuple[str, str]], explanation: str | None
    ) -> list[RolloutItem]:
        """The plan as a person is shown it."""
        return [EventMsg.plan_update(steps, explanation=explanation)]


def retry_spec(call: ToolCall, arguments: str | Mapping[str, Any] | None) -> dict[str, Any]:
    """What is to be called if that call is run again, as arguments of `Turn.tool_call`.

    Raises:
        CallRefused: it must not run again, or its arguments are not known any more, or are others.
    """
    if not call.may_run_again:
        raise CallRefused(
            call.call_id,
            f"it must not run again: {call.reason} ({call.verdict}, {call.effect})",
            hint="Somebody who knows what happened decides it: resolve_call",
        )
    if arguments is None and not call.arguments_cut:
        arguments = call.arguments
    if arguments is None or call.name is None:
        raise CallRefused(call.call_id, "what was called is not known here", hint="Give its arguments")
    if call.args_sha256 not in (None, args_sha256(arguments)):
        raise CallRefused(call.call_id, "these are not the arguments that it was called with")
    return {
        "name": call.name,
        "arguments": arguments,
        "effect": call.effect if call.effect_declared else None,
        "kind": call.kind,
        "namespace": call.namespace,
        "key": call.key or call.call_id,
        "attempt": call.attempt + 1,
    }
