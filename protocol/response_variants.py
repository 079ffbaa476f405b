"""`response_item`: its rarer kinds, and how any of them is decoded.

Invariant: a payload whose parts or output no typed class can hold comes back as the free
form of its kind (`FreeMessage`, …); only what fits neither is left to `RawItem`.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from protocol.decoding import payload_decoder
from protocol.items import RolloutItem
from protocol.response_items import (
    CustomToolCall,
    CustomToolCallOutput,
    FreeCustomToolCallOutput,
    FreeFunctionCallOutput,
    FreeMessage,
    FunctionCall,
    FunctionCallOutput,
    LocalShellCall,
    Message,
    Reasoning,
    ResponseItem,
    WebSearchCall,
)

__all__ = [
    "DECODERS",
    "AgentToAgentMessage",
    "EncryptedCompaction",
    "ImageGenerationCall",
    "ToolSearchCall",
    "ToolSearchOutput",
]


class AgentToAgentMessage(ResponseItem, tag="agent_message"):
    """A message from one agent to another."""

    author: str
    recipient: str
    content: list[Any]
    id: str | None = None


class ImageGenerationCall(ResponseItem, tag="image_generation_call", kw_only=True):
    """The model made an image. It never gets an output record."""

    status: str
    result: str
    revised_prompt: str | None = None
    id: str | None = None


class ToolSearchCall(ResponseItem, tag="tool_search_call", kw_only=True):
    """The model looked for tools."""

    execution: str
    arguments: Any
    call_id: str | None = None
    status: str | None = None
    id: str | None = None


class ToolSearchOutput(ResponseItem, tag="tool_search_output", kw_only=True):
    """The tools that were found."""

    status: str
    execution: str
    tools: list[Any]
    call_id: str | None = None
    id: str | None = None


class EncryptedCompaction(ResponseItem, tag="compaction", kw_only=True):
    """A compaction that the provider made and only it can read."""

    encrypted_content: str
    id: str | None = None


class _CompactionSummary(EncryptedCompaction, tag="compaction_summary", kw_only=True):
    pass  # the older spelling


_OTHERS = (
    AgentToAgentMessage
    | Reasoning
    | FunctionCall
    | CustomToolCall
    | LocalShellCall
    | WebSearchCall
    | ImageGenerationCall
    | ToolSearchCall
    | ToolSearchOutput
    | EncryptedCompaction
    | _CompactionSummary
)
_decode_typed = payload_decoder(Message | FunctionCallOutput | CustomToolCallOutput | _OTHERS)
_decode_free = payload_decoder(FreeMessage | FreeFunctionCallOutput | FreeCustomToolCallOutput)


def _decode(payload: Raw | bytes) -> RolloutItem:
    try:
        item: RolloutItem = _decode_typed(payload)
    except msgspec.ValidationError:
        item = _decode_free(payload)
    return item


DECODERS = {"response_item": _decode}
