"""The envelope of a record: one JSON object a line, its payload kept raw.

Invariant: a line that was read is written back byte for byte, whatever it holds. The payload
is decoded only when `item()` asks for it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, Struct, field

from protocol.errors import InvalidLine
from protocol.validity import NESTING_MAX, parse_object, require_shallow, require_utf8

if TYPE_CHECKING:
    from protocol.items import RolloutItem

__all__ = ["RolloutLine", "decode_line", "encode_line"]

_NO_PAYLOAD = Raw(b"")
_SHALLOW_BYTES = 2 * (NESTING_MAX + 1)


class _Source(bytes):
    """The bytes a line was read from. A type of its own: no JSON value decodes to it."""


class RolloutLine(Struct, kw_only=True, gc=False):
    """One record: `timestamp` (UTC, RFC 3339), `ordinal` (None for own types), `type`, raw `payload`.

    `timestamp`, `ordinal` and `type` are None where the line has none, or one of a wrong type.
    `upcast_from` names the old format that the line was read from, else it is None.
    """

    timestamp: str | None = None
    ordinal: int | None = None
    type: str | None = None
    payload: Raw = _NO_PAYLOAD
    source: _Source | None = field(default=None, name="\x7fsource")
    upcast_from: _Source | None = field(default=None, name="\x7fupcast_from")

    def item(self) -> RolloutItem:
        """Decode the payload into its typed item; what has no type of its own comes as raw item."""
        from protocol.items import decode_item

        return decode_item(self.type or "", self.payload)

    def payload_object(self) -> Any:
        """The payload as plain Python values (any JSON value; None if there is no payload)."""
        data = bytes(self.payload)
        if not data:
            return None
        try:
            return msgspec.json.decode(data)
        except (msgspec.DecodeError, RecursionError):
            return json.loads(data)


_decode_fast: Callable[[bytes], RolloutLine] = msgspec.json.Decoder(RolloutLine).decode


def decode_line(data: bytes) -> RolloutLine:
    """Decode one line, with or without its newline; the payload stays raw.

    Old formats without an envelope are raised to it (`protocol.upcast`).

    Raises:
        InvalidLine: the bytes are no valid line (FORMAT.md, Line); the error says why and where.
    """
    if data.endswith(b"\n"):
        data = data[:-1]
    try:
        line = _decode_fast(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return _decode_slow(data)
    if not data.isascii():
        require_utf8(data)
    if len(data) >= _SHALLOW_BYTES:
        require_shallow(data)
    line.source = _Source(data)
    if line.type is None or not line.payload:
        return _upcast(line, data)
    return line


def _decode_slow(data: bytes) -> RolloutLine:
    """What msgspec refused: judged by the rule; an envelope key of a wrong type counts as absent."""
    value = parse_object(data)
    timestamp, ordinal, kind = value.get("timestamp"), value.get("ordinal"), value.get("type")
    line = RolloutLine(
        timestamp=timestamp if isinstance(timestamp, str) else None,
        ordinal=ordinal if isinstance(ordinal, int) and not isinstance(ordinal, bool) else None,
        type=kind if isinstance(kind, str) else None,
        payload=_raw_member(data, value, "payload"),
        source=_Source(data),
    )
    return line if line.type is not None and line.payload else _upcast(line, data)


def _raw_member(data: bytes, value: dict[str, Any], key: str) -> Raw:
    """The bytes of one member as they stand in the line (the last one, as JSON readers take it)."""
    if key not in value:
        return _NO_PAYLOAD
    start = None
    text = data.decode()
    scan = json.JSONDecoder(parse_int=len).raw_decode
    position = _skip_space(text, _skip_space(text, 0) + 1)
    while text[position] != "}":
        name, position = scan(text, position)
        begin = _skip_space(text, _skip_space(text, position) + 1)
        _, position = scan(text, begin)
        if name == key:
            start, end = begin, position
        position = _skip_space(text, position)
        if text[position] == ",":
            position = _skip_space(text, position + 1)
    return _NO_PAYLOAD if start is None else Raw(text[start:end].encode())


def _skip_space(text: str, position: int) -> int:
    while text[position] in " \t\r\n":
        position += 1
    return position


def _upcast(line: RolloutLine, data: bytes) -> RolloutLine:
    from protocol.upcast import upcast_line

    return upcast_line(line, data)


def encode_line(line: RolloutLine) -> bytes:
    """The bytes of a line with its newline: those it was read from, else composed from its fields.

    Raises:
        InvalidLine: a field holds what no line can hold (a newline in a raw payload, say).
    """
    if line.source is not None:
        return bytes(line.source) + b"\n"
    members = [] if line.timestamp is None else [b'"timestamp":' + _encode_text(line.timestamp)]
    if line.ordinal is not None:
        members.append(b'"ordinal":%d' % line.ordinal)
    if line.type is not None:
        members.append(b'"type":' + _encode_text(line.type))
    if line.payload:
        members.append(b'"payload":' + bytes(line.payload))
    composed = b"{" + b",".join(members) + b"}"
    if b"\n" in composed:
        raise InvalidLine("newline", "its payload holds a newline outside a string")
    return composed + b"\n"


def _encode_text(text: str) -> bytes:
    from protocol.codec import encode_value

    return encode_value(text)
