"""The lines of a foreign JSONL file, one object after the other.

Invariant: a line that is no JSON object is told and passed over, whatever it is; no other is lost by it.
Lines end at line feeds alone: a raw U+2028 is part of a text.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from protocol.codec import encode_value
from protocol.errors import InvalidLine, ItemNotEncodable
from protocol.validity import NESTING_MAX, is_blank, parse_object, require_shallow
from rollout.source import raise_unreadable
from thread_store.importing.source import SourceDamage

__all__ = ["JsonLine", "parse_json", "read_json_lines"]

LINE_BYTES_MAX = 256 << 20
_BLOCK_BYTES = 1 << 20
_BOM = b"\xef\xbb\xbf"
_NESTING_MAX = NESTING_MAX - 8
"""A record that is kept as it was stands some levels deeper in ours."""
_decode = msgspec.json.Decoder().decode


class JsonLine(NamedTuple):
    """One object, with where it stands: lines are counted from 1, offsets in bytes."""

    number: int
    offset: int
    size: int
    value: dict[str, Any]


def read_json_lines(path: str, damaged: list[SourceDamage]) -> Iterator[JsonLine]:
    """The objects of a file; what is none goes to `damaged`. Blank lines are nothing.

    Raises:
        RolloutUnreadable: the system refuses.
    """
    offset = 0
    for number, line in enumerate(_lines(path), 1):
        data = line.removeprefix(_BOM) if number == 1 else line
        if not is_blank(data):
            # Padding that a power cut left may stand before a record that is whole.
            record = data.lstrip(b"\0")
            padding = len(data) - len(record)
            reason = f"{padding:,} NUL bytes" if padding else None
            try:
                yield JsonLine(number, offset, len(line), parse_json(record or data))
            except InvalidLine as error:
                reason = error.detail
            if reason is not None:
                damaged.append(
                    SourceDamage(path=path, line=number, offset=offset, bytes=len(line), reason=reason)
                )
        offset += len(line)


def parse_json(data: bytes) -> dict[str, Any]:
    """A JSON object that can be recorded as it is.

    Raises:
        InvalidLine: it is none, or nests too deeply.
    """
    require_shallow(data, _NESTING_MAX)
    try:
        value = _decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return _by_the_rule(data)  # a lone surrogate, say; else it knows the reason
    return value if isinstance(value, dict) else _by_the_rule(data)


def _by_the_rule(data: bytes) -> dict[str, Any]:
    value = parse_object(data)
    try:
        encode_value(value)
    except ItemNotEncodable as error:
        raise InvalidLine("not_json", str(error)) from error
    return value


def _lines(path: str) -> Iterator[bytes]:
    try:
        with open(path, "rb", buffering=_BLOCK_BYTES) as file:
            while line := file.readline(LINE_BYTES_MAX):
                yield line
    except OSError as error:
        raise_unreadable(path, error, "read")
