"""A conversation as messages of the OpenAI Chat Completions API.

Invariant: each message of the assistant with `tool_calls` is followed at once by one `tool` message for each
of them. A result's pictures can't be sent there and are named instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from protocol.codec import encode_value
from thread_store.context.conversation import Conversation, Exchange, Image, Said, Text, ToolUse

__all__ = ["openai_messages"]


def openai_messages(conversation: Conversation, *, system: Sequence[str] = ()) -> list[dict[str, Any]]:
    """The messages. `system`: texts that go before the history."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": text} for text in system]
    for step in conversation.steps:
        if isinstance(step, Exchange):
            messages += _exchange(step)
        else:
            messages.append({"role": step.role, "content": _content(step)})
    return messages


def _exchange(exchange: Exchange) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": None, "tool_calls": [_call(each) for each in exchange.uses]}
    for use in exchange.uses:
        yield {"role": "tool", "tool_call_id": use.call_id, "content": _text(use.result)}


def _call(use: ToolUse) -> dict[str, Any]:
    arguments = encode_value({"input": use.arguments}).decode() if use.takes_text else use.arguments or "{}"
    return {"id": use.call_id, "type": "function", "function": {"name": use.name, "arguments": arguments}}


def _content(said: Said) -> str | list[dict[str, Any]]:
    """Text where it is nothing else; only users send pictures."""
    if said.role == "user" and any(isinstance(part, Image) for part in said.parts):
        return [_part(each) for each in said.parts]
    return _text(said.parts)


def _part(part: Text | Image) -> dict[str, Any]:
    if isinstance(part, Image):
        return {"type": "image_url", "image_url": {"url": part.url}}
    return {"type": "text", "text": part.text}


def _text(parts: Sequence[Text | Image]) -> str:
    return "\n".join("[image]" if isinstance(part, Image) else part.text for part in parts)
