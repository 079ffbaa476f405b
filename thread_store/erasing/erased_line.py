"""The line that takes the place of an erased record.

Invariant: padded with spaces it is as long as the record was, it is valid (FORMAT.md, Line), and it keeps the
record's number, wherever there is room for that: in every line that a program known writes there is. What
takes up room without need is left out first: the reason, the time, the timestamp.
"""

from __future__ import annotations

import hashlib
import re

from protocol.codec import encode_item, encode_value
from protocol.errors import InvalidLine
from protocol.line import decode_line
from protocol.own import ErasedItem
from protocol.timestamps import parse_timestamp
from thread_store.erasing.needle import Needle

__all__ = ["WAS_DIGITS", "erased_line", "number_of", "record_hash"]

WAS_DIGITS = 16
"""Of a sha256, in `was`: against mistakes, not against forgers."""

_BEGIN = re.compile(rb'\{"timestamp":"[^"\\]{0,40}","ordinal":(\d{1,20}),')
_STAMP = re.compile(rb'\{"timestamp":"([^"\\]{1,40})"')


def number_of(data: bytes) -> int | None:
    """The ordinal of a record, also of one that was never finished or stands with others on a line."""
    try:
        return decode_line(data).number
    except InvalidLine:
        found = _BEGIN.match(data)
        return None if found is None else int(found[1])


def record_hash(data: bytes) -> str:
    """What `was` holds of a line."""
    return hashlib.sha256(data).hexdigest()[:WAS_DIGITS]


def erased_line(
    begin: bytes,
    size: int,
    *,
    at: str,
    reason: str | None,
    needle: Needle | None,
    ordinal: int | None,
    was: str | None = None,
) -> bytes | None:
    """What stands instead of a record of `size` bytes, without the spaces behind it. Empty: only these.

    `begin`: the first bytes of the record. `was`: see `ErasedItem`. None: what is to be erased would stand in
    it again.
    """
    stamp = _timestamp_of(begin)
    forms = (
        _encode(stamp, ordinal, size, at=at, reason=reason, was=was),
        _encode(stamp, ordinal, size, at=at, was=was),
        _encode(stamp, ordinal, size, was=was),
        _encode(None, ordinal, size, was=was),
        _encode(stamp, ordinal, size),
        _encode(None, ordinal, size),
        b"" if ordinal is None else b'{"ordinal":%d}' % ordinal,
        b"",
    )
    fitting = [each for each in forms if len(each) <= size]
    harmless = (each for each in fitting if needle is None or not needle.is_in(each))
    found = next(harmless, b"")
    lost_number = ordinal is not None and not found and len(forms[-2]) <= size
    return None if lost_number else found


def _timestamp_of(begin: bytes) -> str | None:
    """A timestamp that is one: anything else might be what is to be erased."""
    found = _STAMP.match(begin)
    text = None if found is None else found[1].decode(errors="replace")
    return text if parse_timestamp(text) is not None else None


def _encode(
    stamp: str | None,
    ordinal: int | None,
    size: int,
    *,
    at: str | None = None,
    reason: str | None = None,
    was: str | None = None,
) -> bytes:
    item = ErasedItem(ordinal=ordinal, bytes=size, at=at, reason=reason, was=was)
    if stamp is not None:
        return encode_item(item, timestamp=stamp).rstrip(b"\n")
    return b'{"type":"x_erased","payload":' + encode_value(item) + b"}"
