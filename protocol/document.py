"""One JSON document that holds a whole thread, as the oldest rollouts do: `{session, items}`.

Invariant: each line made here is one that stands in the document; its payload is the
document's own JSON without the white space between tokens (numbers keep their text), and its
place is where that JSON stands.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from msgspec import Raw

from protocol.codec import drop_space
from protocol.errors import InvalidLine
from protocol.line import RolloutLine
from protocol.places import Places
from protocol.upcast import FormatName
from protocol.validity import parse_value

__all__ = ["DOCUMENT_FORMAT", "PlacedLine", "place_document", "upcast_document"]

DOCUMENT_FORMAT = FormatName("one-document")


class PlacedLine(NamedTuple):
    """A line and where its JSON stands in the document, in bytes."""

    line: RolloutLine
    offset: int
    size: int


def upcast_document(data: bytes) -> list[RolloutLine] | None:
    """The lines of such a document: its session as `session_meta`, then its items. None if `data`
    is anything else (rollouts are: try this when the first line is no record, or has no type)."""
    placed = place_document(data)
    return None if placed is None else [each.line for each in placed]


def place_document(data: bytes) -> list[PlacedLine] | None:
    """As `upcast_document`, with the place of each line."""
    if not data.lstrip(b" \t\r\n").startswith(b"{"):
        return None
    try:
        value = parse_value(data)
    except InvalidLine:
        return None
    if not _is_document(value):
        return None
    places = Places(data.decode())
    found = [(places.member("session"), "session_meta", value["session"])]
    elements = places.elements(places.member("items")[0])
    found += [(place, "response_item", item) for place, item in zip(elements, value["items"], strict=True)]
    return _placed(places.text, [each for each in found if isinstance(each[2], dict)])


def _is_document(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("session"), dict)
        and isinstance(value.get("items"), list)
    )


def _placed(text: str, found: list[tuple[tuple[int, int], str, dict[str, Any]]]) -> list[PlacedLine]:
    placed = []
    for (begin, end), record_type, value in found:
        data = text[begin:end].encode()
        timestamp = value.get("timestamp")
        line = RolloutLine(
            timestamp=timestamp if isinstance(timestamp, str) else None,
            type=record_type,
            payload=Raw(drop_space(data)),
            upcast_from=DOCUMENT_FORMAT,
        )
        placed.append((begin, line, len(data)))
    offsets = _byte_offsets(text, sorted(begin for begin, _, _ in placed))
    return [PlacedLine(line, offsets[begin], size) for begin, line, size in placed]


def _byte_offsets(text: str, positions: list[int]) -> dict[int, int]:
    """The byte offset of each position, in one pass over the text."""
    offsets, characters, size = {}, 0, 0
    for position in positions:
        size += len(text[characters:position].encode())
        characters = position
        offsets[position] = size
    return offsets
