"""Fold blocks: many lines looked at by one call, to learn which of them the fold must see.

Invariant: a block is answered for only if every line in it is valid by the rule of `protocol.validity` and
the numbers in it have no gap; then the lines that are passed over are those of `fold_filter`. Whatever is
odd (an old format, a strange value, a blank line, too many brackets) makes it no block: its lines are
decoded one by one. So nothing depends on where blocks begin and end.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from protocol.errors import InvalidLine
from protocol.fold_filter import EVENTS, ITEMS, RESPONSES, TYPES
from protocol.validity import NESTING_MAX, require_utf8

__all__ = ["ScannedLine", "scan_block"]


class _Item(Struct, gc=False, frozen=True):
    type: str = ""


class _Tag(Struct, gc=False, frozen=True):
    type: str = ""
    role: str = ""
    item: _Item = _Item()


class ScannedLine(Struct, gc=False):
    """What is looked at of a line."""

    ordinal: int | None = None
    type: str = ""
    payload: _Tag | None = None


_decode_lines = msgspec.json.Decoder(ScannedLine).decode_lines
_WITH_ITEM = ("item_completed", "item_started")
_BEGIN = b'{"timestamp":"'
"""As all writers known begin a line."""
_CLOSERS_LEAST = 2
"""Of a line whose payload is an object."""


def scan_block(data: bytes, max_ordinal: int | None) -> list[tuple[int, int | None]] | None:
    """Which of these whole lines (each with its newline) matter: their numbers in the block, from 0, and the
    greatest ordinal before each; at last the number of lines, with the greatest ordinal of all.

    `max_ordinal`: before the block. None: the lines must be decoded one by one.
    """
    try:
        lines = _decode_lines(data)
        if not data.isascii():
            require_utf8(data)
    except (msgspec.MsgspecError, RecursionError, InvalidLine, UnicodeError):
        return None
    if not _is_one_a_line(data, len(lines)) or _may_nest_too_deep(data, len(lines)):
        return None
    numbers = [line.ordinal for line in lines if line.ordinal is not None]
    if numbers:
        first = numbers[0]
        begins = first >= 0 if max_ordinal is None else first == max_ordinal + 1
        if not begins or numbers != list(range(first, first + len(numbers))):
            return None
    last = numbers[-1] if numbers else max_ordinal
    try:
        # What the answer depends on, of each line; most are of a few kinds.
        kinds = {
            (line.type, (tag := line.payload).type, tag.role, tag.item.type)  # type: ignore[union-attr]
            for line in lines
        }
    except AttributeError:  # a line without a payload is of an old format
        return None
    if any(not kind[0] for kind in kinds):
        return None
    found = _select(lines, max_ordinal) if any(_matters(*kind) for kind in kinds) else []
    return [*found, (len(lines), last)]


def _matters(record_type: str, variant: str, role: str, item: str) -> bool:
    if record_type == "response_item":
        return variant in RESPONSES or (variant == "message" and role in ("user", ""))
    if record_type == "event_msg":
        return variant in EVENTS and (variant not in _WITH_ITEM or not item or item in ITEMS)
    return record_type in TYPES


def _select(lines: list[ScannedLine], before: int | None) -> list[tuple[int, int | None]]:
    found: list[tuple[int, int | None]] = []
    for number, line in enumerate(lines):
        tag = line.payload or _Tag()
        if _matters(line.type, tag.type, tag.role, tag.item.type):
            found.append((number, before))
        before = before if line.ordinal is None else line.ordinal
    return found


def _is_one_a_line(data: bytes, values: int) -> bool:
    """Whether each of these values is a line. msgspec takes any space between them, newlines in them too.

    A newline between `}` and `{` is never one in a value: there a comma, a colon or a bracket stands before
    it, and within a text the quote behind it would be its end.
    """
    newlines = len(data) - len(data.replace(b"\n", b""))
    return (
        newlines == values
        and data.startswith(_BEGIN)
        and data.endswith(b"}\n")
        and data.count(b"}\n" + _BEGIN) == values - 1
    )


def _may_nest_too_deep(data: bytes, lines: int) -> bool:
    """Whether one line may hold so many brackets: all but those that the others have at least."""
    closers = 2 * len(data) - len(data.replace(b"}", b"")) - len(data.replace(b"]", b""))
    return closers - _CLOSERS_LEAST * (lines - 1) > NESTING_MAX
