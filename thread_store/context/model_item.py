"""One item of the model's context: a payload of the model track, and what must be known of it.

Invariant: the payload is the bytes that were recorded, whatever they hold; only a message between agents
that stands in a record of its own is put into the form that the model gets, and what bounded storage took
out of a payload is put back. What Codex hides from its
model is no item: retired and unknown kinds.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, Struct

from protocol.codec import encode_value
from protocol.errors import InvalidLine
from protocol.items import RolloutItem, decode_item
from protocol.line import RolloutLine
from protocol.validity import parse_value
from thread_store.chain.lineage import Place
from thread_store.context.injected_text import is_injected
from thread_store.transcript.payload_text import content_text

__all__ = ["ModelItem", "model_item_of", "payload_item"]

_KINDS = frozenset(
    {
        "additional_tools",
        "agent_message",
        "compaction",
        "compaction_summary",
        "configuration_update",
        "context_compaction",
        "custom_tool_call",
        "custom_tool_call_output",
        "function_call",
        "function_call_output",
        "image_generation_call",
        "local_shell_call",
        "message",
        "reasoning",
        "tool_search_call",
        "tool_search_output",
        "web_search_call",
    }
)


class ModelItem(Struct, frozen=True, gc=False):
    """One item that the model sees.

    `role` belongs to messages, `call_id` to calls and results. `segment` and `offset` say which record it
    came with (see `place`).
    """

    payload: Raw
    kind: str
    role: str | None = None
    call_id: str | None = None
    segment: int | None = None
    offset: int = 0

    @property
    def place(self) -> Place | None:
        """The border before the record that it came with (for an item of a checkpoint's history: before the
        checkpoint); None for one that was never recorded."""
        return None if self.segment is None else Place(self.segment, self.offset)

    @property
    def size_bytes(self) -> int:
        """How long its payload is."""
        return len(memoryview(self.payload))

    def item(self) -> RolloutItem:
        """The payload, decoded into its typed item."""
        return decode_item("response_item", self.payload)

    @property
    def is_injected(self) -> bool:
        """Whether it is a message that a program put before the model in the user's or developer's name."""
        return self.kind == "message" and self.role in ("user", "developer") and is_injected(self.text)

    @property
    def begins_turn(self) -> bool:
        """Whether a rollback counts it: what somebody typed, or another agent said (as Codex counts)."""
        if self.kind == "agent_message":
            return True
        return self.kind == "message" and self.role == "user" and not is_injected(self.text)

    @property
    def text(self) -> str:
        """The text of a message: of its parts, joined by newlines."""
        value = _value(self.payload)
        return content_text(value.get("content")) if isinstance(value, dict) else ""


class _Head(Struct, gc=False):
    type: str = ""
    role: str | None = None
    call_id: str | None = None


_decode_head = msgspec.json.Decoder(_Head).decode


def model_item_of(line: RolloutLine, segment: int, offset: int) -> ModelItem | None:
    """What a `response_item` or `inter_agent_communication` is for the model; None if hidden from it."""
    if line.type == "response_item":
        return payload_item(line.payload, segment, offset)
    return _agent_message(line.payload_object(), segment, offset)


def payload_item(payload: Raw, segment: int | None = None, offset: int = 0) -> ModelItem | None:
    """The item that a payload is; None if it is hidden from the model, or no such payload."""
    try:
        head = _decode_head(payload)
    except (msgspec.DecodeError, RecursionError):
        head = _loose_head(payload)
    if head.type not in _KINDS:
        return None
    return ModelItem(payload, head.type, head.role, head.call_id, segment, offset)


def _loose_head(payload: Raw) -> _Head:
    """Of a payload that is read by the rule of lines, or in which a key has a value of another type."""
    value = _value(payload)
    if not isinstance(value, dict):
        return _Head()
    kind = value.get("type")
    texts = (_text_or_none(value.get(key)) for key in ("role", "call_id"))
    return _Head(kind if isinstance(kind, str) else "", *texts)


def _value(payload: Raw) -> Any:
    try:
        return msgspec.json.decode(payload)
    except (msgspec.DecodeError, RecursionError):
        pass
    try:
        return parse_value(bytes(payload))
    except InvalidLine:
        return None


def _text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _agent_message(value: Any, segment: int, offset: int) -> ModelItem | None:
    """A message between agents, in the form in which Codex gives it to the model."""
    if not isinstance(value, dict):
        return None
    author, recipient, content = value.get("author"), value.get("recipient"), value.get("content")
    encrypted = value.get("encrypted_content")
    if not isinstance(author, str) or not isinstance(recipient, str):
        return None
    if isinstance(encrypted, str):
        part = {"type": "encrypted_content", "encrypted_content": encrypted}
    elif isinstance(content, str):
        part = {"type": "input_text", "text": content}
    else:
        return None
    payload = {"type": "agent_message", "author": author, "recipient": recipient, "content": [part]}
    return ModelItem(Raw(encode_value(payload)), "agent_message", segment=segment, offset=offset)
