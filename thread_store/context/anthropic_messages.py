"""A conversation as messages of the Anthropic Messages API.

Invariant: roles alternate and the user begins; each message with `tool_use` is followed by one of the user
that begins with a `tool_result` for each of them; no text is empty. What a program said in the system's or
developer's name goes into `system` if it stands before everything else, otherwise to the user's side.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Any

from protocol.codec import encode_value
from protocol.errors import InvalidLine, ItemNotEncodable
from protocol.validity import parse_value
from thread_store.context.conversation import Conversation, Exchange, Image, Said, Text, ToolUse

__all__ = ["anthropic_messages"]

_BEGINNING = "[The conversation goes on from here.]"
_NO_OUTPUT = "(no output)"
_DATA_URL = re.compile(r"data:(image/[\w.+-]+);base64,(.+)\Z", re.DOTALL)

_Block = dict[str, Any]


def anthropic_messages(
    conversation: Conversation, *, system: Sequence[str] = ()
) -> tuple[str, list[dict[str, Any]]]:
    """The system prompt, empty if there is none, and the messages. `system`: texts before the history."""
    heads = list(takewhile(_is_instruction, conversation.steps))
    texts = [*system, *(_text(each.parts) for each in heads if isinstance(each, Said))]
    turns = _merged(_turns(conversation.steps[len(heads) :]))
    if turns and turns[0]["role"] != "user":
        turns.insert(0, {"role": "user", "content": [_text_block(_BEGINNING)]})
    return "\n\n".join(filter(str.strip, texts)), turns


def _is_instruction(step: Said | Exchange) -> bool:
    return isinstance(step, Said) and step.role in ("system", "developer")


def _turns(steps: Iterable[Said | Exchange]) -> Iterator[tuple[str, list[_Block]]]:
    for step in steps:
        if isinstance(step, Exchange):
            yield "assistant", [_use(each) for each in step.uses]
            yield "user", [_result(each) for each in step.uses]
        elif step.role == "assistant":
            yield "assistant", _blocks([Text(_text(step.parts))])
        else:
            yield "user", _blocks(step.parts)


def _merged(turns: Iterable[tuple[str, list[_Block]]]) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for role, blocks in turns:
        if not blocks:
            continue
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"] += blocks
        else:
            messages.append({"role": role, "content": blocks})
    return messages


def _use(use: ToolUse) -> _Block:
    return {"type": "tool_use", "id": use.call_id, "name": use.name, "input": _input(use)}


def _input(use: ToolUse) -> _Block:
    """An object in any case; arguments that are none, or that JSON can't hold at that depth, as text."""
    if use.takes_text:
        return {"input": use.arguments}
    try:
        value = parse_value(use.arguments.encode("utf-8", "surrogatepass")) if use.arguments else {}
        encode_value([[[[[value]]]]])
    except (InvalidLine, ItemNotEncodable):
        value = None
    return value if isinstance(value, dict) else {"arguments": use.arguments}


def _result(use: ToolUse) -> _Block:
    blocks = _blocks(use.result) or [_text_block(_NO_OUTPUT)]
    return {"type": "tool_result", "tool_use_id": use.call_id, "content": blocks}


def _blocks(parts: Iterable[Text | Image]) -> list[_Block]:
    blocks = (_image(each.url) if isinstance(each, Image) else _text_block(each.text) for each in parts)
    return [each for each in blocks if each["type"] != "text" or each["text"].strip()]


def _text_block(text: str) -> _Block:
    return {"type": "text", "text": text.rstrip() or text}


def _image(url: str) -> _Block:
    found = _DATA_URL.match(url)
    if found is None:
        return {"type": "image", "source": {"type": "url", "url": url}}
    return {"type": "image", "source": {"type": "base64", "media_type": found[1], "data": found[2]}}


def _text(parts: Iterable[Text | Image]) -> str:
    return "\n".join("[image]" if isinstance(part, Image) else part.text for part in parts)
