"""A model's context as a conversation for any chat API: what was said, and calls with their results.

Invariant: each call is followed by all its results and by nothing else before them; ids are unique, and ids
and names hold no character that an API refuses. What has no counterpart is left out and counted, never
turned into something else.

It is made from the valid view of a context (`thread_store.context.model_view`), where each call has its
result. Calls that stand together form one exchange. A result that was recorded later moves up to its call;
what was said meanwhile stands behind it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from protocol.decoding import payload_decoder
from thread_store.context.model_item import ModelItem
from thread_store.context.model_view import pair_calls
from thread_store.transcript.payload_text import as_text

__all__ = ["Conversation", "Exchange", "Image", "Said", "Text", "ToolUse", "read_conversation"]

CALL_ID_CHARACTERS_MAX = 40
"""Chat Completions refuses longer ids."""
_SHORT_ID_CHARACTERS = 36
"""So much is kept of the end of a longer one: a whole UUID, if it ends in one."""
NAME_CHARACTERS_MAX = 64

_REFUSED = re.compile("[^a-zA-Z0-9_-]")


class Text(NamedTuple):
    """A part of what was said: text, never empty."""

    text: str


class Image(NamedTuple):
    """A part of what was said: a picture, by its URL (`data:` too)."""

    url: str


class Said(NamedTuple):
    """A message. `role`: user, assistant, system or developer."""

    role: str
    parts: tuple[Text | Image, ...]


class ToolUse(NamedTuple):
    """A call and its result. `arguments`: JSON as the model wrote it, or the text, if the tool takes text."""

    call_id: str
    name: str
    arguments: str
    takes_text: bool
    result: tuple[Text | Image, ...]


class Exchange(NamedTuple):
    """Calls that were made together."""

    uses: tuple[ToolUse, ...]


class Conversation(NamedTuple):
    """What was said and done, in order. `left_out`: how many items of each kind are not in it."""

    steps: list[Said | Exchange]
    left_out: dict[str, int]


def read_conversation(items: Sequence[ModelItem]) -> Conversation:
    """The conversation that the items of a valid view hold."""
    return _Reading(items).run()


_decode: Any = payload_decoder(Any)
_ROLES = ("user", "assistant", "system", "developer")
_PASSED = "reasoning"
"""Stands between calls without parting them."""


class _Reading:
    def __init__(self, items: Sequence[ModelItem]) -> None:
        self._items = items
        self._results = {pair.call: pair.result for pair in pair_calls(items) if pair.call is not None}
        self._answers = {result for result in self._results.values() if result is not None}
        self._left_out: Counter[str] = Counter()
        self._ids: set[str] = set()
        self._steps: list[Said | Exchange] = []
        self._uses: list[ToolUse] = []

    def run(self) -> Conversation:
        for index, item in enumerate(self._items):
            result = self._results.get(index)
            if result is not None:
                self._uses.append(self._use(item, self._items[result]))
            elif item.kind == _PASSED:
                self._left_out[item.kind] += 1
            else:
                self._end_exchange()
                if index not in self._answers:
                    self._take(item)
        self._end_exchange()
        return Conversation(self._steps, dict(self._left_out))

    def _end_exchange(self) -> None:
        if self._uses:
            self._steps.append(Exchange(tuple(self._uses)))
            self._uses = []

    def _take(self, item: ModelItem) -> None:
        said = _said(item.kind, _payload(item))
        if said is None:
            self._left_out[item.kind] += 1
        elif said.parts:
            self._steps.append(said)

    def _use(self, call: ModelItem, result: ModelItem) -> ToolUse:
        payload = _payload(call)
        name, arguments, takes_text = _CALLS[call.kind](payload)
        namespace = payload.get("namespace")
        named = f"{namespace}__{name}" if isinstance(namespace, str) and namespace else name
        return ToolUse(
            self._unique(call.call_id or ""),
            _REFUSED.sub("_", named)[-NAME_CHARACTERS_MAX:] or "tool",
            arguments,
            takes_text,
            _result_parts(_payload(result)),
        )

    def _unique(self, call_id: str) -> str:
        """The id, or one like it where an API would refuse it or it was used before."""
        clean = _REFUSED.sub("_", call_id) or "call"
        if len(clean) > CALL_ID_CHARACTERS_MAX:
            clean = clean[-_SHORT_ID_CHARACTERS:]
        found, count = clean, 1
        while found in self._ids:
            count += 1
            suffix = f"-{count}"
            found = clean[: CALL_ID_CHARACTERS_MAX - len(suffix)] + suffix
        self._ids.add(found)
        return found


def _payload(item: ModelItem) -> dict[str, Any]:
    value = _decode(item.payload)
    return value if isinstance(value, dict) else {}


def _said(kind: str, payload: Mapping[str, Any]) -> Said | None:
    if kind == "message":
        role = payload.get("role")
        return Said(role if role in _ROLES else "user", _parts(payload.get("content")))
    if kind == "agent_message":
        return _from_agent(payload)
    return None


def _from_agent(payload: Mapping[str, Any]) -> Said | None:
    """What another agent said, with its name; None if only its model's maker can read it."""
    content = payload.get("content")
    listed = content if isinstance(content, list) else [content]
    if any(isinstance(part, dict) and part.get("type") == "encrypted_content" for part in listed):
        return None
    parts = _parts(content)
    return Said(
        "user", (Text(f"[{as_text(payload.get('author')) or 'another agent'}]"), *parts) if parts else ()
    )


# Calls, by the kind of the item: name, arguments, and whether these are free text


def _function(payload: Mapping[str, Any]) -> tuple[str, str, bool]:
    return as_text(payload.get("name")), as_text(payload.get("arguments")), False


def _custom(payload: Mapping[str, Any]) -> tuple[str, str, bool]:
    return as_text(payload.get("name")), as_text(payload.get("input")), True


def _local_shell(payload: Mapping[str, Any]) -> tuple[str, str, bool]:
    return "local_shell", as_text(payload.get("action")), False


def _tool_search(payload: Mapping[str, Any]) -> tuple[str, str, bool]:
    return "tool_search", as_text(payload.get("arguments")), False


_CALLS = {
    "function_call": _function,
    "custom_tool_call": _custom,
    "local_shell_call": _local_shell,
    "tool_search_call": _tool_search,
}


# Parts


def _result_parts(payload: Mapping[str, Any]) -> tuple[Text | Image, ...]:
    output = payload.get("output", payload.get("tools"))
    if isinstance(output, dict) and "content" in output:
        output = output["content"]  # old writers wrote {content, success}
    is_content = isinstance(output, list) and payload.get("type") != "tool_search_output"
    return _parts(output) if is_content else _parts(as_text(output))


def _parts(content: Any) -> tuple[Text | Image, ...]:
    if not isinstance(content, list):
        text = as_text(content)
        return (Text(text),) if text else ()
    return tuple(part for each in content if (part := _part(each)) is not None)


def _part(value: Any) -> Text | Image | None:
    if not isinstance(value, dict):
        text = as_text(value)
        return Text(text) if text else None
    if isinstance(value.get("text"), str):
        return Text(value["text"]) if value["text"] else None
    image = value.get("image_url")
    url = image.get("url") if isinstance(image, dict) else image
    if isinstance(url, str) and url:
        return Image(url)
    return Text(f"[{as_text(value.get('type')).removeprefix('input_') or 'content'}]")
