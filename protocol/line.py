"""The envelope of a record: one JSON object a line, its payload kept raw.

Invariant: a line that was read is written back byte for byte, whatever it holds. The payload
is decoded only when `item()` asks for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw, Struct, field

from protocol.codec import REFUSALS, PlainLine, encode_value
from protocol.errors import InvalidLine
from protocol.items import RolloutItem, decode_item
from protocol.places import Places
from protocol.upcast import FormatName, upcast_line
from protocol.validity import NESTING_MAX, parse_object, parse_value, require_shallow, require_utf8

__all__ = ["RolloutLine", "decode_line", "encode_line"]

_NO_PAYLOAD = Raw(b"")
_NEWLINE = 10


class RolloutLine(Struct, kw_only=True, gc=False):
    """One record: `timestamp` (UTC, RFC 3339), `ordinal` (None for own types), `type`, raw `payload`.

    `timestamp`, `ordinal` and `type` are None where the line has none, or one of a wrong type; they
    may be any text or integer. `source` is the bytes that the line was read from, without the
    newline. `upcast_from` names the old format that it was raised from, else it is None.
    """

    timestamp: str | None = None
    ordinal: int | None = None
    type: str | None = None
    payload: Raw = _NO_PAYLOAD
    # Named by keys that no program writes. Should a line hold one all the same: `source` is set
    # after decoding, and no JSON value decodes to a FormatName.
    source: bytes | None = field(default=None, name="\x7fsource")
    upcast_from: FormatName | None = field(default=None, name="\x7fupcast_from")

    @property
    def number(self) -> int | None:
        """Its ordinal; for a record that was erased the one that it had (FORMAT.md, Erasing)."""
        if self.ordinal is not None or self.type != "x_erased":
            return self.ordinal
        payload = self.payload_object()
        number = payload.get("ordinal") if isinstance(payload, dict) else None
        return number if isinstance(number, int) and not isinstance(number, bool) else None

    def item(self) -> RolloutItem:
        """Decode the payload into its typed item; what has no type of its own comes as raw item."""
        return decode_item(self.type or "", self.payload)

    def payload_object(self) -> Any:
        """The payload as plain Python values: any JSON value; None if there is no payload.

        An integer with too many digits for `int()` comes as its text.
        """
        data = bytes(self.payload)
        if not data:
            return None
        try:
            return msgspec.json.decode(data)
        except (msgspec.DecodeError, RecursionError):
            return parse_value(data)


# So many bytes can't nest too deep: 129 levels need a bracket to open and one to close each.
_SHALLOW_BYTES = 2 * NESTING_MAX + 1

_encode = msgspec.json.Encoder().encode
_decode_fast: Callable[[bytes], RolloutLine] = msgspec.json.Decoder(RolloutLine).decode


def decode_line(data: bytes) -> RolloutLine:
    """Decode one line, with or without its newline; the payload stays raw.

    Old formats without an envelope are raised to it (`protocol.upcast`).

    Raises:
        InvalidLine: the bytes are no valid line (FORMAT.md, Line); the error says why and where.
    """
    if _NEWLINE in data:
        data = _without_newline(data)
    try:
        line = _decode_fast(data)
    except (msgspec.DecodeError, RecursionError):
        return _decode_slow(data)
    if not data.isascii():
        require_utf8(data)
    # Closing brackets, counted by what is left without them: twice as fast as bytes.count.
    size = len(data)
    if size > _SHALLOW_BYTES and (
        2 * size - len(data.replace(b"}", b"")) - len(data.replace(b"]", b"")) > NESTING_MAX
    ):
        require_shallow(data)
    line.source = data
    if line.payload is _NO_PAYLOAD or line.type is None:
        return upcast_line(line, data)
    return line


def _without_newline(data: bytes) -> bytes:
    data = data.removesuffix(b"\n")
    if _NEWLINE in data:
        raise InvalidLine("newline", "it holds a newline, so it is more than one line")
    return data


def _decode_slow(data: bytes) -> RolloutLine:
    """What msgspec refused: judged by the rule; an envelope key of a wrong type counts as absent."""
    value = parse_object(data)
    timestamp, ordinal, kind = value.get("timestamp"), value.get("ordinal"), value.get("type")
    line = RolloutLine(
        timestamp=timestamp if isinstance(timestamp, str) else None,
        ordinal=ordinal if isinstance(ordinal, int) and not isinstance(ordinal, bool) else None,
        type=kind if isinstance(kind, str) else None,
        payload=_raw_payload(data) if "payload" in value else _NO_PAYLOAD,
        source=data,
    )
    return line if line.type is not None and line.payload else upcast_line(line, data)


def _raw_payload(data: bytes) -> Raw:
    """The bytes of the payload as they stand in the line."""
    places = Places(data.decode())
    begin, end = places.member("payload")
    return Raw(places.text[begin:end].encode()) if end else _NO_PAYLOAD


def encode_line(line: RolloutLine) -> bytes:
    """The bytes of a line with its newline: those it was read from, else composed from its fields.

    Raises:
        InvalidLine: a field holds what no line can hold (a newline in a raw payload, say).
    """
    if line.source is not None:
        return line.source + b"\n"
    composed = _compose(line)
    if b"\n" in composed:
        raise InvalidLine("newline", "its payload holds a newline outside a string")
    return composed + b"\n"


def _compose(line: RolloutLine) -> bytes:
    if line.timestamp is not None and line.ordinal is not None and line.type is not None and line.payload:
        try:
            return _encode(PlainLine(line.timestamp, line.ordinal, line.type, line.payload))
        except REFUSALS:
            pass  # a lone surrogate, say
    members = [] if line.timestamp is None else [b'"timestamp":' + encode_value(line.timestamp)]
    if line.ordinal is not None:
        members.append(b'"ordinal":%d' % line.ordinal)
    if line.type is not None:
        members.append(b'"type":' + encode_value(line.type))
    if line.payload:
        members.append(b'"payload":' + bytes(line.payload))
    return b"{" + b",".join(members) + b"}"
