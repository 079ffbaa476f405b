"""The lines of a foreign JSONL file, one object after the other.

Invariant: a line that is no JSON object is told and passed over, whatever it is; no other is lost by it.
Lines end at line feeds alone: a raw U+2028 is part of a text.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from protocol.errors import RolloutUnreadable
from rollout.source import raise_unreadable
from thread_store.importing.source import SourceDamage

__all__ = ["JsonLine", "parse_json", "read_json_lines"]

LINE_BYTES_MAX = 256 << 20
_BLOCK_BYTES = 1 << 20
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
        size = len(line)
        data = line.strip(b" \t\r\n")
        if number == 1:
            data = data.removeprefix(b"\xef\xbb\xbf")
        if data:
            try:
                value = parse_json(data)
                value = _require_object(value)
            except ValueError as error:
                # Padding that a power cut left may stand before a record that is whole.
                rest = data.lstrip(b"\0")
                value = _try(rest) if rest != data and rest else None
                if value is None or len(rest) < len(data):
                    damaged.append(
                        SourceDamage(path=path, line=number, offset=offset, bytes=size, reason=str(error))
                    )
            if isinstance(value, dict):
                yield JsonLine(number, offset, size, value)
        offset += size


def _require_object(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    raise ValueError("JSON, but no object")


def _try(data: bytes) -> dict[str, Any] | None:
    try:
        value = parse_json(data)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def parse_json(data: bytes) -> Any:
    """A JSON value; lone surrogates, NaN and the like are taken as Python takes them.

    Raises:
        ValueError: it is none.
    """
    if not data.strip(b"\0"):
        raise ValueError(f"{len(data):,} NUL bytes")
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        import json

        try:
            return json.loads(data.decode("utf-8", "surrogatepass"))
        except UnicodeDecodeError as error:
            raise ValueError(f"no UTF-8 at byte {error.start}") from error
        except RecursionError as error:
            raise ValueError("nested too deeply") from error
        except ValueError as error:
            raise ValueError(f"not JSON: {error}") from error


def _lines(path: str) -> Iterator[bytes]:
    try:
        with open(path, "rb", buffering=_BLOCK_BYTES) as file:
            while line := file.readline(LINE_BYTES_MAX):
                yield line
    except OSError as error:
        if isinstance(error, RolloutUnreadable):
            raise
        raise_unreadable(os.fspath(path), error, "read")
