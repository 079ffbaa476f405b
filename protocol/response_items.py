"""`response_item`: the model track, what the model saw and said.

Invariant: the keys are Codex's own (FORMAT.md, Records). What the constructors make is
written as it was given: arguments that come as text keep their text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from msgspec import Struct

from protocol.codec import encode_value
from protocol.content import (
    ContentPart,
    InputText,
    OutputPart,
    OutputText,
    join_text,
    require_parts,
    typed_parts,
)
from protocol.items import RolloutItem, require_text

__all__ = [
    "CustomToolCall",
    "CustomToolCallOutput",
    "FreeCustomToolCallOutput",
    "FreeFunctionCallOutput",
    "FreeMessage",
    "FunctionCall",
    "FunctionCallOutput",
    "LocalShellCall",
    "Message",
    "Reasoning",
    "ReasoningText",
    "ResponseItem",
    "SummaryText",
    "TurnTag",
    "WebSearchCall",
]


class ResponseItem(RolloutItem, tag_field="type"):
    """The base of the model track, and its constructors."""

    record_type: ClassVar[str] = "response_item"

    @staticmethod
    def message(role: str, content: str | Sequence[Any], *, phase: str | None = None) -> Message:
        """A message. `role`: user, developer, system or assistant (any text passes).

        A text becomes one part, `output_text` for the assistant and `input_text` else. A list holds
        typed parts or dicts; dicts that no typed part can hold are kept as they are (`FreeMessage`).
        """
        if isinstance(content, str):
            part = OutputText(content) if role == "assistant" else InputText(content)
            return Message(role, [part], phase)
        parts = typed_parts(content, ContentPart)
        return FreeMessage(role, list(content), phase) if parts is None else Message(role, parts, phase)

    @staticmethod
    def function_call(
        *, name: str, arguments: str | Mapping[str, Any], call_id: str, namespace: str | None = None
    ) -> FunctionCall:
        """The model asks for a tool. `arguments`: the model's own text (kept as it is), or a dict,
        serialised here once.

        Raises:
            ItemNotEncodable: the arguments can't be written as JSON.
        """
        return FunctionCall(name, _as_text(arguments), call_id, namespace)

    @staticmethod
    def function_call_output(*, call_id: str, output: str | Sequence[Any] | Any) -> FunctionCallOutput:
        """What a tool gave back: a text, or a list of parts. Anything else is written as JSON text.

        Raises:
            ItemNotEncodable: the output can't be written as JSON.
        """
        return FunctionCallOutput(call_id, _as_output(output))

    @staticmethod
    def custom_tool_call(*, name: str, input: str, call_id: str, status: str | None = None) -> CustomToolCall:
        """The model asks for a tool that takes free text (such as a patch)."""
        return CustomToolCall(call_id, name, input, status)

    @staticmethod
    def custom_tool_call_output(*, call_id: str, output: str | Sequence[Any] | Any) -> CustomToolCallOutput:
        """What such a tool gave back; see `function_call_output`."""
        return CustomToolCallOutput(call_id, _as_output(output))

    @staticmethod
    def local_shell_call(
        *, call_id: str, command: Sequence[str], status: str = "in_progress", cwd: str | None = None
    ) -> LocalShellCall:
        """The model asks for a command of the local shell; its output is a `function_call_output`."""
        action: dict[str, Any] = {"type": "exec", "command": list(command)}
        if cwd is not None:
            action["working_directory"] = cwd
        return LocalShellCall(status=status, action=action, call_id=call_id)

    @staticmethod
    def reasoning(
        summary: str | Sequence[str] = (), *, encrypted_content: str | None = None, item_id: str | None = None
    ) -> Reasoning:
        """What the model thought: texts of its summary, and the block that only the provider reads."""
        texts = [summary] if isinstance(summary, str) else summary
        return Reasoning(
            [SummaryText(text) for text in texts], encrypted_content=encrypted_content, id=item_id
        )

    @staticmethod
    def web_search_call(*, query: str, status: str = "completed") -> WebSearchCall:
        """The model searched the web; there is never an output record."""
        return WebSearchCall(status=status, action={"type": "search", "query": query})


def _as_text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else encode_value(arguments, "response_item").decode()


def _as_output(output: Any) -> Any:
    if isinstance(output, str):
        return output
    parts = typed_parts(output, OutputPart) if isinstance(output, list | tuple) and output else None
    return _as_text(output) if parts is None else parts


class TurnTag(Struct, omit_defaults=True, gc=False):
    """Codex's tag on items of the model track: the turn they belong to."""

    turn_id: str | None = None


class Message(ResponseItem, tag="message"):
    """A message in typed parts."""

    checks_values: ClassVar[bool] = True

    role: str
    content: list[ContentPart]
    phase: str | None = None
    id: str | None = None
    status: str | None = None
    internal_chat_message_metadata_passthrough: TurnTag | None = None

    def __post_init__(self) -> None:
        require_parts(self.content, ContentPart)
        phase = self.phase
        if (
            self.role.__class__ is not str
            or (phase is not None and phase.__class__ is not str)
            or self.id is not None
            or self.status is not None
        ):
            require_text(self, "role")
            require_text(self, "phase", "id", "status", optional=True)

    @property
    def text(self) -> str:
        """The texts of its parts, joined by newlines."""
        return join_text(self.content)


class FreeMessage(Message, tag="message"):
    """A message with parts that no typed part can hold, as they are."""

    checks_values: ClassVar[bool] = False

    content: list[Any]

    def __post_init__(self) -> None:
        pass


class SummaryText(Struct, tag_field="type", tag="summary_text", gc=False):
    """One text of the summary of a reasoning."""

    text: str


class ReasoningText(Struct, tag_field="type", tag="reasoning_text", gc=False):
    """One text of the reasoning itself."""

    text: str


class Reasoning(ResponseItem, tag="reasoning"):
    """What the model thought."""

    summary: list[SummaryText]
    content: list[Any] | None = None
    encrypted_content: str | None = None
    id: str | None = None
    internal_chat_message_metadata_passthrough: TurnTag | None = None


class FunctionCall(ResponseItem, tag="function_call"):
    """The model asks for a tool. `arguments` is JSON as text, as the model wrote it."""

    checks_values: ClassVar[bool] = True

    name: str
    arguments: str
    call_id: str
    namespace: str | None = None
    id: str | None = None
    status: str | None = None
    internal_chat_message_metadata_passthrough: TurnTag | None = None

    def __post_init__(self) -> None:
        if (
            self.name.__class__ is not str
            or self.arguments.__class__ is not str
            or self.call_id.__class__ is not str
        ):
            require_text(self, "name", "arguments", "call_id")
        if self.namespace is not None or self.id is not None or self.status is not None:
            require_text(self, "namespace", "id", "status", optional=True)


class FunctionCallOutput(ResponseItem, tag="function_call_output"):
    """What a tool gave back: a text, or typed parts."""

    checks_values: ClassVar[bool] = True

    call_id: str
    output: str | list[OutputPart]
    id: str | None = None
    internal_chat_message_metadata_passthrough: TurnTag | None = None

    def __post_init__(self) -> None:
        if self.output.__class__ is not str or self.call_id.__class__ is not str or self.id is not None:
            _require_output(self)

    @property
    def text(self) -> str:
        """The output as text: its parts' texts joined by newlines."""
        return _output_text(self.output)


class FreeFunctionCallOutput(FunctionCallOutput, tag="function_call_output"):
    """An output that is neither a text nor typed parts (old writers wrote objects), as it is."""

    checks_values: ClassVar[bool] = False

    output: Any

    def __post_init__(self) -> None:
        pass


class CustomToolCall(ResponseItem, tag="custom_tool_call"):
    """The model asks for a tool that takes free text."""

    checks_values: ClassVar[bool] = True

    call_id: str
    name: str
    input: str
    status: str | None = None
    id: str | None = None
    namespace: str | None = None
    internal_chat_message_metadata_passthrough: TurnTag | None = None

    def __post_init__(self) -> None:
        require_text(self, "call_id", "name", "input")
        if self.namespace is not None or self.id is not None or self.status is not None:
            require_text(self, "namespace", "id", "status", optional=True)


class CustomToolCallOutput(ResponseItem, tag="custom_tool_call_output"):
    """What such a tool gave back: a text, or typed parts."""

    checks_values: ClassVar[bool] = True

    call_id: str
    output: str | list[OutputPart]
    id: str | None = None
    internal_chat_message_metadata_passthrough: TurnTag | None = None

    def __post_init__(self) -> None:
        if self.output.__class__ is not str or self.call_id.__class__ is not str or self.id is not None:
            _require_output(self)

    @property
    def text(self) -> str:
        """The output as text: its parts' texts joined by newlines."""
        return _output_text(self.output)


class FreeCustomToolCallOutput(CustomToolCallOutput, tag="custom_tool_call_output"):
    """An output that is neither a text nor typed parts, as it is."""

    checks_values: ClassVar[bool] = False

    output: Any

    def __post_init__(self) -> None:
        pass


def _require_output(item: FunctionCallOutput | CustomToolCallOutput) -> None:
    require_text(item, "call_id")
    require_text(item, "id", optional=True)
    if isinstance(item.output, list):
        require_parts(item.output, OutputPart)
    else:
        require_text(item, "output")


def _output_text(output: Any) -> str:
    if isinstance(output, str):
        return output
    return join_text(output) if isinstance(output, list) else encode_value(output).decode()


class LocalShellCall(ResponseItem, tag="local_shell_call", kw_only=True):
    """The model asks for a command of the local shell. `action`: {type exec, command, …}."""

    status: str
    action: dict[str, Any]
    call_id: str | None = None
    id: str | None = None


class WebSearchCall(ResponseItem, tag="web_search_call", kw_only=True):
    """The model searched the web. It never gets an output record."""

    status: str | None = None
    action: dict[str, Any] | None = None
    id: str | None = None
