"""Lines of old formats, raised to the envelope.

Invariant: an upcaster judges one line by its own bytes, so that reading from either end
gives the same records; it only names type, time and payload, the bytes stay. What is no old
format is left as it is, without a type.

The formats, oldest first (`RolloutLine.upcast_from` names them):

* `bare-header`: the first line was the thread's header without an envelope.
* `record-type`: marks between items, `{"record_type": "state"}`.
* `bare-item`: items of the model track stood without an envelope, and without a time.

One document that holds a whole thread is not a matter of lines: see `protocol.document`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import Raw

from protocol.validity import parse_object

if TYPE_CHECKING:
    from protocol.line import RolloutLine

__all__ = ["UPCASTERS", "FormatName", "is_bare_item", "upcast_line"]


class FormatName(str):
    """The name of an old format. A type of its own: no JSON value decodes to it."""

    __slots__ = ()


# The keys without which an object is no item of that type: other programs use the names too.
_ITEM_KEYS: dict[str, frozenset[str]] = {
    "message": frozenset({"role", "content"}),
    "reasoning": frozenset({"summary"}),
    "function_call": frozenset({"name", "call_id"}),
    "function_call_output": frozenset({"call_id", "output"}),
    "custom_tool_call": frozenset({"name", "call_id"}),
    "custom_tool_call_output": frozenset({"call_id", "output"}),
    "local_shell_call": frozenset({"action"}),
    "local_shell_call_output": frozenset({"call_id", "output"}),
    "web_search_call": frozenset({"status"}),
    "ghost_snapshot": frozenset({"ghost_commit"}),
}


def is_bare_item(value: dict[str, Any]) -> bool:
    """Whether an object is an item of the model track without an envelope."""
    kind = value.get("type")
    keys = _ITEM_KEYS.get(kind) if isinstance(kind, str) else None
    return keys is not None and keys <= value.keys()


def _upcast_header(line: RolloutLine, value: dict[str, Any]) -> str | None:
    known = isinstance(value.get("id"), str) and isinstance(value.get("timestamp"), str)
    if not known or "type" in value or not ({"instructions", "git"} & value.keys()):
        return None
    line.type = "session_meta"
    return "bare-header"


def _upcast_record_type(line: RolloutLine, value: dict[str, Any]) -> str | None:
    kind = value.get("record_type")
    if not isinstance(kind, str) or "type" in value:
        return None
    line.type = kind
    return "record-type"


def _upcast_item(line: RolloutLine, value: dict[str, Any]) -> str | None:
    if not is_bare_item(value):
        return None
    line.type = "response_item"
    return "bare-item"


UPCASTERS: tuple[Callable[[RolloutLine, dict[str, Any]], str | None], ...] = (
    _upcast_header,
    _upcast_record_type,
    _upcast_item,
)


def upcast_line(line: RolloutLine, data: bytes) -> RolloutLine:
    """Raise a line without a whole envelope to the current format, if it is one of an old format.

    The payload of such a line is the whole object, unless it has one.
    """
    value = parse_object(data)
    for upcast in UPCASTERS:
        name = upcast(line, value)
        if name is not None:
            line.upcast_from = FormatName(name)
            if not line.payload:
                line.payload = Raw(data.strip(b" \t\r\n"))
            break
    return line
