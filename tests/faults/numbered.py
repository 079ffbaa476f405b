"""Numbered items, and an independent eye on the bytes of a file: which of them stand there, whole.

Invariant: nothing here uses the product's reader or its validity rule; an item carries its own
checksum, so a line that was merged, cut or repeated can't pass for a good one.
"""

from __future__ import annotations

import functools
import json
import random
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from protocol.events import EventMsg
from protocol.items import RolloutItem
from protocol.response_items import ResponseItem

__all__ = ["PRODUCER", "Contents", "look_at", "numbered_item", "numbers_in", "numbers_of"]

PRODUCER = 1_000_000
"""Item numbers of producer `p` begin at `p * PRODUCER`."""

_SHORT_BYTES = 8192

_LETTERS = 'abcdefghij klmnop"\\\n\té漢🜁'


def numbered_item(number: int, size: int) -> RolloutItem:
    """An item whose line is about `size` bytes; its kind and its letters depend on the number."""
    letters = random.Random(number)
    filler = "".join(letters.choices(_LETTERS, k=min(size, 64)))
    filler += "x" * (size - len(filler))
    text = f"#{number} {zlib.crc32(filler.encode()):08x} {filler}"
    kind = number % 4
    if kind == 0:
        return ResponseItem.message("user", text)
    if kind == 1:
        return EventMsg.agent_message(text)
    if kind == 2:
        return ResponseItem.function_call_output(call_id=f"call-{number}", output=text)
    return RolloutItem.raw("x_note", {"text": text})


_RETELLING = frozenset({"compacted", "x_memory"})
"""Records that repeat the texts of others."""


@dataclass(slots=True)
class Contents:
    """What stands in a file, by json and checksums alone."""

    numbers: list[int] = field(default_factory=list)
    """Of the items on whole lines, in file order."""
    ends: dict[int, int] = field(default_factory=dict)
    """Behind which offset an item's line is over."""
    ordinals: list[int] = field(default_factory=list)
    types: list[str] = field(default_factory=list)
    calls_begun: set[str] = field(default_factory=set)
    calls_ended: set[str] = field(default_factory=set)
    """Tool calls whose start, or output, stands there."""
    damaged: list[int] = field(default_factory=list)
    """Offsets of lines that end with a newline and are none."""
    tail: bytes = b""
    """What stands behind the last newline."""
    tail_is_valid: bool = False
    tail_number: int | None = None

    @property
    def has_meta(self) -> bool:
        return "session_meta" in self.types


def look_at(data: bytes) -> Contents:
    """Parse a file's bytes."""
    found = Contents()
    offset = 0
    *lines, found.tail = data.split(b"\n")
    for line in lines:
        seen = _see(line)
        if seen is None:
            if line.strip(b" \t\r"):
                found.damaged.append(offset)
        else:
            if seen.number is not None:
                found.numbers.append(seen.number)
                found.ends[seen.number] = offset + len(line) + 1
            if seen.call is not None:
                (found.calls_begun if seen.type == "x_call" else found.calls_ended).add(seen.call)
            found.types.append(seen.type)
            if seen.ordinal is not None:
                found.ordinals.append(seen.ordinal)
        offset += len(line) + 1
    tail = _see(found.tail)
    if tail is not None:
        found.tail_is_valid, found.tail_number = True, tail.number
    return found


class _Seen(NamedTuple):
    """What counts of one line."""

    type: str
    ordinal: int | None
    number: int | None
    call: str | None
    """Of which it tells that it was started, or what came out."""


def _see(line: bytes) -> _Seen | None:
    """None: it is no valid line. Lines are looked at again and again: at each state of their file."""
    return _see_short(line) if len(line) <= _SHORT_BYTES else _see_any(line)


def _see_any(line: bytes) -> _Seen | None:
    parsed = _parse(line)
    if parsed is None:
        return None
    ordinal = parsed.get("ordinal")
    number = None if parsed.get("type") in _RETELLING else _number_in(parsed)
    ordinal = ordinal if isinstance(ordinal, int) else None
    return _Seen(str(parsed.get("type")), ordinal, number, _call_in(parsed))


_see_short = functools.lru_cache(maxsize=20_000)(_see_any)


def numbers_in(path: Path) -> list[int]:
    """The same of a file, which is read line by line."""
    found: list[int] = []
    with path.open("rb") as file:
        for line in file:
            found += numbers_of(line)
    return found


def numbers_of(data: bytes) -> list[int]:
    """The numbers of the items in a file, a valid last line without newline included."""
    found = look_at(data)
    return found.numbers + ([] if found.tail_number is None else [found.tail_number])


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(line.decode())
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _call_in(line: dict[str, Any]) -> str | None:
    payload = line.get("payload")
    if not isinstance(payload, dict) or not isinstance(payload.get("call_id"), str):
        return None
    started = line.get("type") == "x_call" and payload.get("state") == "started"
    returned = line.get("type") == "response_item" and payload.get("type") == "function_call_output"
    return payload["call_id"] if started or returned else None


def _number_in(line: dict[str, Any]) -> int | None:
    """The number of the item in a line; None for a line of another kind."""
    for text in _texts(line.get("payload")):
        if text.startswith("#"):
            head, checksum, filler = text.split(" ", 2)
            assert f"{zlib.crc32(filler.encode()):08x}" == checksum, f"item {head} is not what was recorded"
            return int(head[1:])
    return None


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for part in parts for text in _texts(part)]
