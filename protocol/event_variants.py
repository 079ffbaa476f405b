"""`event_msg`: its rarer kinds, and how any of them is decoded.

Invariant: the older spellings (`turn_started`, `turn_complete`) decode to the same classes.
What has no class here stays a `RawItem` with its bytes.
"""

from __future__ import annotations

from typing import Any

from msgspec import Raw, structs

from protocol.decoding import payload_decoder
from protocol.events import (
    AgentMessageEvent,
    AgentReasoningEvent,
    ContextCompacted,
    EventMsg,
    ItemCompleted,
    McpToolCallEnd,
    MessageCompleted,
    PatchApplyEnd,
    PlanUpdate,
    TaskComplete,
    TaskStarted,
    ThreadRolledBack,
    TokenCount,
    TurnAborted,
    UserMessageEvent,
    WebSearchEnd,
)
from protocol.items import RolloutItem
from protocol.turn_items import AgentMessageItem, TimeSpan, UserMessageItem

__all__ = [
    "DECODERS",
    "ErrorEvent",
    "ExecCommandEnd",
    "ItemStarted",
    "RawReasoningEvent",
    "SubAgentActivity",
    "ThreadNameUpdated",
    "ThreadSettingsApplied",
    "WarningEvent",
]


class RawReasoningEvent(EventMsg, tag="agent_reasoning_raw_content"):
    """A text of the reasoning itself."""

    text: str


class ErrorEvent(EventMsg, tag="error", kw_only=True):
    """An error that the user was shown."""

    message: str
    codex_error_info: Any = None


class WarningEvent(EventMsg, tag="warning"):
    """A warning that the user was shown."""

    message: str


class ItemStarted(ItemCompleted, tag="item_started", kw_only=True):
    """An item that began. Codex never shows one: record `item_completed` with an in_progress item."""


class ExecCommandEnd(EventMsg, tag="exec_command_end", kw_only=True):
    """A command of the shell ended (older rollouts; newer ones have the turn item)."""

    call_id: str
    turn_id: str | None = None
    command: list[str]
    cwd: str
    stdout: str = ""
    stderr: str = ""
    aggregated_output: str = ""
    exit_code: int
    duration: TimeSpan | None = None
    status: str | None = None


class SubAgentActivity(EventMsg, tag="sub_agent_activity", kw_only=True):
    """What a sub-agent does. `kind`: started, interacted, interrupted or completed."""

    event_id: str
    agent_thread_id: str
    agent_path: str
    kind: str
    occurred_at_ms: int | None = None


class ThreadNameUpdated(EventMsg, tag="thread_name_updated", kw_only=True):
    """The thread was named."""

    thread_id: str
    thread_name: str | None = None


class ThreadSettingsApplied(EventMsg, tag="thread_settings_applied", kw_only=True):
    """The settings in force; Codex writes them at each open."""

    thread_settings: dict[str, Any]
    thread_id: str | None = None


class _TurnStarted(TaskStarted, tag="turn_started", kw_only=True):
    pass


class _TurnComplete(TaskComplete, tag="turn_complete", kw_only=True):
    pass


_decode_any = payload_decoder(
    UserMessageEvent
    | AgentMessageEvent
    | AgentReasoningEvent
    | RawReasoningEvent
    | TokenCount
    | TaskStarted
    | _TurnStarted
    | TaskComplete
    | _TurnComplete
    | TurnAborted
    | ThreadRolledBack
    | ThreadNameUpdated
    | ThreadSettingsApplied
    | ContextCompacted
    | PlanUpdate
    | PatchApplyEnd
    | McpToolCallEnd
    | WebSearchEnd
    | ExecCommandEnd
    | SubAgentActivity
    | ItemCompleted
    | ItemStarted
    | ErrorEvent
    | WarningEvent
)


def _decode(payload: Raw | bytes) -> RolloutItem:
    item: RolloutItem = _decode_any(payload)
    if type(item) is ItemCompleted and isinstance(item.item, UserMessageItem | AgentMessageItem):
        return MessageCompleted(**structs.asdict(item))
    if type(item) is _TurnStarted:
        return TaskStarted(**structs.asdict(item))
    if type(item) is _TurnComplete:
        return TaskComplete(**structs.asdict(item))
    return item


DECODERS = {"event_msg": _decode}
