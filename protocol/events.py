"""`event_msg`: the display track, what a person sees, and the borders of turns.

Invariant: keys are Codex's own (FORMAT.md, Records). Times that end in `_at` are seconds,
those that end in `_ms` milliseconds. `context_compacted` and `plan_update` have no keys
beyond the ones here: Codex passes over a record of theirs that has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from msgspec import Struct, ValidationError, convert, structs, to_builtins

from protocol.errors import ItemNotEncodable
from protocol.items import RolloutItem, require_text
from protocol.turn_items import (
    AgentMessageItem,
    AgentText,
    AnyTurnItem,
    TimeSpan,
    TurnItem,
    UserMessageItem,
    UserText,
)

__all__ = [
    "AgentMessageEvent",
    "AgentReasoningEvent",
    "ContextCompacted",
    "EventMsg",
    "ItemCompleted",
    "McpToolCallEnd",
    "MessageCompleted",
    "PatchApplyEnd",
    "PlanStep",
    "PlanUpdate",
    "TaskComplete",
    "TaskStarted",
    "ThreadRolledBack",
    "TokenCount",
    "TokenUsage",
    "TokenUsageInfo",
    "TurnAborted",
    "UserMessageEvent",
    "WebSearchEnd",
]


class EventMsg(RolloutItem, tag_field="type"):
    """The base of the display track, and its constructors."""

    record_type: ClassVar[str] = "event_msg"

    @staticmethod
    def user_message(
        text: str, *, images: Sequence[str] | None = None, local_images: Sequence[str] | None = None
    ) -> UserMessageEvent:
        """What the user typed, with images by URL and by path."""
        if images is None and local_images is None:
            return UserMessageEvent(text)
        return UserMessageEvent(text, list(images or ()), list(local_images or ()))

    @staticmethod
    def agent_message(text: str, *, phase: str | None = None) -> AgentMessageEvent:
        """What the agent said. `phase`: commentary, partial_answer or final_answer."""
        return AgentMessageEvent(text, phase)

    @staticmethod
    def agent_reasoning(text: str) -> AgentReasoningEvent:
        """A text of what the agent thought."""
        return AgentReasoningEvent(text)

    @staticmethod
    def task_started(
        turn_id: str, *, started_at: float | None = None, model_context_window: int | None = None
    ) -> TaskStarted:
        """A turn begins. `started_at`: seconds since the epoch."""
        return TaskStarted(
            turn_id=turn_id, started_at=_whole(started_at), model_context_window=model_context_window
        )

    @staticmethod
    def task_complete(
        turn_id: str,
        *,
        last_agent_message: str | None = None,
        completed_at: float | None = None,
        duration_ms: float | None = None,
        error: str | None = None,
    ) -> TaskComplete:
        """A turn ends; with an `error` it reads as failed. `completed_at`: seconds since the epoch."""
        return TaskComplete(
            turn_id=turn_id,
            last_agent_message=last_agent_message,
            completed_at=_whole(completed_at),
            duration_ms=_whole(duration_ms),
            error=None if error is None else {"message": error},
        )

    @staticmethod
    def turn_aborted(
        turn_id: str | None = None,
        *,
        reason: str = "interrupted",
        completed_at: float | None = None,
        duration_ms: float | None = None,
    ) -> TurnAborted:
        """A turn was cut short. `reason`: interrupted, replaced, review_ended or budget_limited; Codex
        knows no other."""
        return TurnAborted(
            turn_id=turn_id,
            reason=reason,
            completed_at=_whole(completed_at),
            duration_ms=_whole(duration_ms),
        )

    @staticmethod
    def token_count(
        total: TokenUsage,
        *,
        last: TokenUsage | None = None,
        model_context_window: int | None = None,
        rate_limits: Mapping[str, Any] | None = None,
    ) -> TokenCount:
        """Tokens used so far (cumulative: a later record replaces an earlier one) and lately."""
        info = TokenUsageInfo(total, last or total, model_context_window)
        return TokenCount(info, None if rate_limits is None else dict(rate_limits))

    @staticmethod
    def item_completed(
        item: TurnItem,
        *,
        thread_id: str | None = None,
        turn_id: str | None = None,
        started_at_ms: int | None = None,
        completed_at_ms: int | None = None,
    ) -> ItemCompleted:
        """An item as a person sees it. Thread and turn are filled in when it is recorded."""
        kind = MessageCompleted if item.__class__ in _MESSAGES else ItemCompleted
        return kind(
            thread_id=thread_id,
            turn_id=turn_id,
            item=item,  # type: ignore[arg-type]  # the union of all that derive from TurnItem
            started_at_ms=started_at_ms,
            completed_at_ms=completed_at_ms,
        )

    @staticmethod
    def plan_update(
        plan: Sequence[PlanStep | Mapping[str, str] | tuple[str, str]], *, explanation: str | None = None
    ) -> PlanUpdate:
        """The plan as it stands. Each step: a `PlanStep`, a dict, or (step, status)."""
        return PlanUpdate(plan=[_plan_step(each) for each in plan], explanation=explanation)

    @staticmethod
    def context_compacted() -> ContextCompacted:
        """The context was compacted."""
        return ContextCompacted()

    @staticmethod
    def patch_apply_end(
        *,
        call_id: str,
        turn_id: str | None = None,
        status: str,
        changes: Mapping[str, Any],
        stdout: str = "",
        stderr: str = "",
    ) -> PatchApplyEnd:
        """A patch was applied, or not. `status`: completed, failed or declined."""
        return PatchApplyEnd(
            call_id=call_id,
            turn_id=turn_id,
            stdout=stdout,
            stderr=stderr,
            success=status == "completed",
            status=status,
            changes=dict(changes),
        )

    @staticmethod
    def mcp_tool_call_end(
        *,
        call_id: str,
        server: str,
        tool: str,
        arguments: Any,
        seconds: float = 0.0,
        result: Mapping[str, Any] | None = None,
        error: str | None = None,
    ) -> McpToolCallEnd:
        """A call of an MCP tool ended. `result`: {content, isError, …}; or else an `error` text."""
        return McpToolCallEnd(
            call_id=call_id,
            invocation={"server": server, "tool": tool, "arguments": arguments},
            duration=TimeSpan.of_seconds(seconds),
            result={"Ok": dict(result)} if result is not None else {"Err": error or ""},
        )

    @staticmethod
    def web_search_end(*, call_id: str, query: str) -> WebSearchEnd:
        """A search of the web ended."""
        return WebSearchEnd(call_id=call_id, query=query, action={"type": "search", "query": query})

    @staticmethod
    def thread_rolled_back(num_turns: int) -> ThreadRolledBack:
        """The newest turns are dropped. For legacy rollouts only: in a paginated one it shows nothing."""
        return ThreadRolledBack(num_turns=num_turns)


def _whole(number: float | None) -> int | None:
    return None if number is None else int(number)


class UserMessageEvent(EventMsg, tag="user_message"):
    """What the user typed."""

    checks_values: ClassVar[bool] = True

    message: str
    images: list[str] | None = None
    local_images: list[str] | None = None
    client_id: str | None = None
    kind: str | None = None
    """Old writers marked injected texts here."""

    def __post_init__(self) -> None:
        if self.message.__class__ is not str or self.client_id is not None or self.kind is not None:
            require_text(self, "message")
            require_text(self, "client_id", "kind", optional=True)
        for listed in (self.images, self.local_images):
            if listed is not None and not all(each.__class__ is str for each in listed):
                raise ItemNotEncodable("its images must be a list of texts", item_type="event_msg")


class AgentMessageEvent(EventMsg, tag="agent_message"):
    """What the agent said."""

    checks_values: ClassVar[bool] = True

    message: str
    phase: str | None = None

    def __post_init__(self) -> None:
        if self.message.__class__ is not str or self.phase is not None:
            require_text(self, "message")
            require_text(self, "phase", optional=True)


class PlanStep(Struct, gc=False):
    """A step of a plan. `status`: pending, in_progress or completed."""

    step: str
    status: str


class PlanUpdate(EventMsg, tag="plan_update"):
    """The plan as it stands."""

    plan: list[PlanStep]
    explanation: str | None = None


def _plan_step(step: PlanStep | Mapping[str, str] | tuple[str, str]) -> PlanStep:
    if isinstance(step, PlanStep):
        return step
    return PlanStep(step["step"], step["status"]) if isinstance(step, Mapping) else PlanStep(*step)


class ContextCompacted(EventMsg, tag="context_compacted"):
    """The context was compacted."""


class ThreadRolledBack(EventMsg, tag="thread_rolled_back"):
    """The newest turns are dropped (legacy rollouts)."""

    num_turns: int


class PatchApplyEnd(EventMsg, tag="patch_apply_end", kw_only=True):
    """A patch was applied, or not; `changes` by path."""

    call_id: str
    turn_id: str | None = None
    stdout: str
    stderr: str
    success: bool
    status: str
    changes: dict[str, Any]


class McpToolCallEnd(EventMsg, tag="mcp_tool_call_end", kw_only=True):
    """A call of an MCP tool ended. `result`: {"Ok": {…}} or {"Err": text}."""

    call_id: str
    invocation: dict[str, Any]
    duration: TimeSpan
    result: dict[str, Any]


class WebSearchEnd(EventMsg, tag="web_search_end", kw_only=True):
    """A search of the web ended."""

    call_id: str
    query: str
    action: Any


class AgentReasoningEvent(EventMsg, tag="agent_reasoning"):
    """A text of what the agent thought."""

    text: str


class TaskStarted(EventMsg, tag="task_started", kw_only=True):
    """A turn begins. A recorder notes its id, for the items that name their turn."""

    needs_binding: ClassVar[bool] = True

    turn_id: str
    started_at: int | str | None = None
    model_context_window: int | None = None
    collaboration_mode_kind: str | None = None
    root_turn_id: str | None = None


class TaskComplete(EventMsg, tag="task_complete", kw_only=True):
    """A turn ended; with `error` it failed."""

    turn_id: str
    last_agent_message: str | None = None
    started_at: int | str | None = None
    completed_at: int | str | None = None
    duration_ms: int | None = None
    error: dict[str, Any] | None = None
    root_turn_id: str | None = None


class TurnAborted(EventMsg, tag="turn_aborted", kw_only=True):
    """A turn was cut short."""

    turn_id: str | None = None
    reason: str | None = None
    started_at: int | str | None = None
    completed_at: int | str | None = None
    duration_ms: int | None = None
    error: Any = None


class TokenUsage(Struct, gc=False):
    """Tokens of one or more responses. Every key is written: Codex wants them all."""

    input_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_input_tokens: int = 0
    output_tokens: int = 0
    reasoning_output_tokens: int = 0
    total_tokens: int = 0


class TokenUsageInfo(Struct, omit_defaults=True):
    """Tokens of the thread so far, and of the last response."""

    total_token_usage: TokenUsage
    last_token_usage: TokenUsage | None = None
    model_context_window: int | None = None


class TokenCount(EventMsg, tag="token_count"):
    """Tokens used; a record that comes again repeats the total."""

    info: TokenUsageInfo | None = None
    rate_limits: dict[str, Any] | None = None


class ItemCompleted(EventMsg, tag="item_completed", kw_only=True):
    """An item as a person sees it; Codex wants both ids (see `protocol.bind`)."""

    needs_binding: ClassVar[bool] = True

    thread_id: str | None = None
    turn_id: str | None = None
    item: AnyTurnItem
    started_at_ms: int | None = None
    completed_at_ms: int | None = None

    def bound(self, thread_id: str, turn_id: str | None) -> ItemCompleted:
        """This item with its thread and turn filled in where they are unset."""
        if self.thread_id is not None and self.turn_id is not None:
            return self
        return structs.replace(self, thread_id=self.thread_id or thread_id, turn_id=self.turn_id or turn_id)


class MessageCompleted(ItemCompleted, tag="item_completed", kw_only=True):
    """A message as a person sees it: the frequent case, which holds no free values."""

    checks_values: ClassVar[bool] = True

    item: UserMessageItem | AgentMessageItem

    def __post_init__(self) -> None:
        item: Any = self.item
        kind = item.__class__
        extra = item.client_id if kind is UserMessageItem else item.phase if kind is AgentMessageItem else 0
        at_ms = self.completed_at_ms
        if (
            (extra is not None and extra.__class__ is not str)
            or item.id.__class__ is not str
            or (at_ms is not None and at_ms.__class__ is not int)
            or self.started_at_ms is not None
            or not (self.thread_id is None or isinstance(self.thread_id, str))
            or not (self.turn_id is None or isinstance(self.turn_id, str))
        ):
            _require_fit(self)
        for part in item.content:
            if part.__class__ not in _TEXTS or part.text.__class__ is not str:
                _require_fit(self)


_MESSAGES: frozenset[Any] = frozenset({UserMessageItem, AgentMessageItem})
_TEXTS: frozenset[Any] = frozenset({UserText, AgentText})


class _MessageFields(ItemCompleted, tag="item_completed", kw_only=True):
    item: UserMessageItem | AgentMessageItem


def _require_fit(completed: MessageCompleted) -> None:
    try:
        convert(to_builtins(completed, enc_hook=str), _MessageFields)
    except ValidationError as error:
        raise ItemNotEncodable(str(error), item_type="event_msg") from None
