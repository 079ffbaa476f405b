"""What the tests of the folds share: lines made of payloads, as a reader would give them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from protocol import CODEX_TYPES, RolloutItem, RolloutLine, bind, decode_line, encode_item, encode_line

Pair = tuple[RolloutLine, int]

STAMP = "2026-11-29T10:11:12.345Z"


def line(record_type: str, payload: dict[str, Any], ordinal: int | None = None) -> RolloutLine:
    """One line of a type and a payload."""
    return decode_line(encode_item(RolloutItem.raw(record_type, payload), timestamp=STAMP, ordinal=ordinal))


def response(variant: str, **keys: Any) -> RolloutLine:
    """A line of the model track."""
    return line("response_item", {"type": variant, **keys})


def event(variant: str, **keys: Any) -> RolloutLine:
    """A line of the display track."""
    return line("event_msg", {"type": variant, **keys})


def item(kind: str, call_id: str, *, turn_id: str = "t1", **keys: Any) -> RolloutLine:
    """An `item_completed`."""
    shown = {"type": kind, "id": call_id, **keys}
    return event("item_completed", thread_id="T", turn_id=turn_id, item=shown)


def request(call_id: str = "c1", name: str = "send_mail", **keys: Any) -> RolloutLine:
    """A `function_call`."""
    return response("function_call", name=name, arguments='{"to":"x"}', call_id=call_id, **keys)


def output(call_id: str = "c1", text: str = "done", **keys: Any) -> RolloutLine:
    """A `function_call_output`."""
    return response("function_call_output", call_id=call_id, output=text, **keys)


def own(state: str, call_id: str = "c1", **keys: Any) -> RolloutLine:
    """An `x_call` of turn t1, unless the keys say otherwise."""
    return line("x_call", {"call_id": call_id, "state": state, **keys})


def writer(what: str, **keys: Any) -> RolloutLine:
    """An `x_writer`."""
    return line("x_writer", {"event": what, **keys})


def begin(turn_id: str = "t1") -> RolloutLine:
    """A `task_started`."""
    return event("task_started", turn_id=turn_id)


def recorded(items: Iterable[RolloutItem], turn_id: str = "t1") -> list[Pair]:
    """The items as a recorder writes them: numbered, each with its offset."""
    pairs, offset, ordinal = [], 0, 0
    for each in items:
        numbered = each.record_type in CODEX_TYPES
        data = encode_item(bind(each, "T", turn_id), timestamp=STAMP, ordinal=ordinal if numbered else None)
        pairs.append((decode_line(data), offset))
        offset, ordinal = offset + len(data), ordinal + numbered
    return pairs


def placed(lines: Iterable[RolloutLine]) -> Iterator[Pair]:
    """The lines one after another, each with its offset; Codex's numbered where the type is known."""
    offset, ordinal = 0, 0
    for each in lines:
        if each.type in CODEX_TYPES and each.ordinal is None:
            data = encode_line(each).replace(b',"type":', b',"ordinal":%d,"type":' % ordinal, 1)
            each = decode_line(data)
            ordinal += 1
        yield each, offset
        offset += len(encode_line(each))
