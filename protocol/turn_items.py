"""Turn items: what a person sees of a turn, the `item` of `item_completed`.

Invariant: keys, and the spelling of each status, are Codex's (FORMAT.md, Records): it passes
over a record whose item has an unknown type or misses a key, so tools without a type of
their own are a `DynamicToolCallItem`. An item that comes again with the same id replaces the
earlier one.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import count
from os import urandom
from typing import Any
from urllib.parse import quote

from msgspec import Struct

from protocol.items import written

__all__ = [
    "AgentMessageItem",
    "AgentText",
    "AnyTurnItem",
    "CommandExecutionItem",
    "ContextCompactionItem",
    "DynamicToolCallItem",
    "FileChangeItem",
    "McpToolCallItem",
    "PlanItem",
    "ReasoningItem",
    "SubAgentActivityItem",
    "TimeSpan",
    "TurnItem",
    "UserImage",
    "UserLocalImage",
    "UserMessageItem",
    "UserText",
    "WebSearchItem",
    "new_item_id",
]

_process = urandom(4).hex()
_numbers = count()


def new_item_id() -> str:
    """A fresh id, unique over threads, processes and forks of a process."""
    return f"item-{time.time_ns():x}-{_process}{next(_numbers):x}"


class TimeSpan(Struct, gc=False):
    """How long something took, as Codex writes it."""

    secs: int
    nanos: int

    @classmethod
    def of_seconds(cls, seconds: float) -> TimeSpan:
        """The span of so many seconds."""
        secs, nanos = divmod(round(seconds * 1_000_000_000), 1_000_000_000)
        return cls(secs, nanos)


class TurnItem(Struct, tag_field="type", omit_defaults=True):
    """The base of turn items, and constructors of the common ones."""

    @staticmethod
    def user_message(
        text: str, *, images: Sequence[str] = (), local_images: Sequence[str] = (), item_id: str | None = None
    ) -> UserMessageItem:
        """What the user typed, with images by URL and by path."""
        content: list[UserText | UserImage | UserLocalImage] = [UserText(text)]
        if images or local_images:
            content += [UserImage(url) for url in images]
            content += [UserLocalImage(path) for path in local_images]
        return UserMessageItem(item_id or new_item_id(), content)

    @staticmethod
    def agent_message(text: str, *, phase: str | None = None, item_id: str | None = None) -> AgentMessageItem:
        """What the agent said."""
        return AgentMessageItem(item_id or new_item_id(), [AgentText(text)], phase)

    @staticmethod
    def command_execution(
        *,
        call_id: str,
        command: Sequence[str],
        cwd: str,
        status: str = "in_progress",
        output: str | None = None,
        exit_code: int | None = None,
        seconds: float | None = None,
    ) -> CommandExecutionItem:
        """A command of the shell. `status`: in_progress, completed, failed or declined."""
        return CommandExecutionItem(
            id=call_id,
            command=list(command),
            cwd=_file_uri(cwd),
            status=status,
            aggregated_output=output,
            exit_code=exit_code,
            duration=None if seconds is None else TimeSpan.of_seconds(seconds),
        )

    @staticmethod
    def tool_call(
        *,
        call_id: str,
        name: str,
        arguments: Any,
        status: str = "in_progress",
        output: str | None = None,
        error: str | None = None,
    ) -> DynamicToolCallItem:
        """A call of any other tool. `status`: in_progress, completed or failed."""
        return DynamicToolCallItem(
            id=call_id,
            tool=name,
            arguments=arguments,
            status=status,
            content_items=None if output is None else [{"type": "inputText", "text": output}],
            success=None if status == "in_progress" else status == "completed",
            error=error,
        )


def _file_uri(path: str) -> str:
    return path if path.startswith("file://") else "file://" + quote(path)


class UserText(Struct, tag_field="type", tag="text", gc=False):
    """A text that the user typed."""

    text: str


class UserImage(Struct, tag_field="type", tag="image", gc=False):
    """An image by its URL (also `data:`)."""

    image_url: str


class UserLocalImage(Struct, tag_field="type", tag="local_image", gc=False):
    """An image by its path."""

    path: str


class UserMessageItem(TurnItem, tag="UserMessage"):
    """What the user typed."""

    id: str
    content: list[UserText | UserImage | UserLocalImage]
    client_id: str | None = None

    @property
    def text(self) -> str:
        """The texts of its parts, joined by newlines."""
        return "\n".join(part.text for part in self.content if isinstance(part, UserText))


class AgentText(Struct, tag_field="type", tag="Text", gc=False):
    """A text that the agent said."""

    text: str


class AgentMessageItem(TurnItem, tag="AgentMessage"):
    """What the agent said."""

    id: str
    content: list[AgentText]
    phase: str | None = None

    @property
    def text(self) -> str:
        """The texts of its parts, joined by newlines."""
        return "\n".join(part.text for part in self.content)


class ReasoningItem(TurnItem, tag="Reasoning", kw_only=True):
    """What the agent thought."""

    id: str
    summary_text: list[str]
    raw_content: list[str] = []


class PlanItem(TurnItem, tag="Plan", kw_only=True):
    """The document of a plan."""

    id: str
    text: str


class CommandExecutionItem(TurnItem, tag="CommandExecution", kw_only=True):
    """A command of the shell; `cwd` is a file URI."""

    id: str
    process_id: str | None = None
    command: list[str]
    cwd: str
    parsed_cmd: list[Any] = written([])
    source: str = written("agent")
    status: str
    stdout: str | None = None
    stderr: str | None = None
    aggregated_output: str | None = None
    exit_code: int | None = None
    duration: TimeSpan | None = None


class DynamicToolCallItem(TurnItem, tag="DynamicToolCall", kw_only=True):
    """A call of a tool that has no type of its own."""

    id: str
    namespace: str | None = None
    tool: str
    arguments: Any
    status: str
    content_items: list[Any] | None = None
    success: bool | None = None
    error: str | None = None
    duration: TimeSpan | None = None


class McpToolCallItem(TurnItem, tag="McpToolCall", kw_only=True):
    """A call of an MCP tool. `status`: inProgress, completed or failed."""

    id: str
    server: str
    tool: str
    arguments: Any
    status: str
    result: dict[str, Any] | None = None
    error: Any = None
    duration: TimeSpan | None = None


class FileChangeItem(TurnItem, tag="FileChange", kw_only=True):
    """A patch; `changes` by path. `status`: completed, failed or declined."""

    id: str
    changes: dict[str, Any]
    status: str | None = None
    stdout: str | None = None
    stderr: str | None = None


class WebSearchItem(TurnItem, tag="WebSearch", kw_only=True):
    """A search of the web."""

    id: str
    query: str
    action: Any


class SubAgentActivityItem(TurnItem, tag="SubAgentActivity", kw_only=True):
    """What a sub-agent does. `kind`: started, interacted, interrupted or completed."""

    id: str
    kind: str
    agent_thread_id: str | None = None
    agent_path: str | None = None


class ContextCompactionItem(TurnItem, tag="ContextCompaction"):
    """The context was compacted."""

    id: str


AnyTurnItem = (
    UserMessageItem
    | AgentMessageItem
    | ReasoningItem
    | PlanItem
    | CommandExecutionItem
    | DynamicToolCallItem
    | McpToolCallItem
    | FileChangeItem
    | WebSearchItem
    | SubAgentActivityItem
    | ContextCompactionItem
)
