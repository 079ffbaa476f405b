"""Payload bytes and plain values to typed ones, by the rule that made the line valid.

Invariant: msgspec only answers faster. What it can't read and the rule takes (lone
surrogates, NaN in lines of others) is read by the rule and then given its type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw

from protocol.validity import parse_value

__all__ = ["convert_plain", "payload_decoder"]


def payload_decoder(kind: Any) -> Callable[[Raw | bytes], Any]:
    """Make the function that decodes a payload into `kind`, a Struct class or a tagged union.

    It raises `msgspec.ValidationError` for a payload that doesn't fit, and `InvalidLine` for bytes
    that are no JSON.
    """
    decode_fast = msgspec.json.Decoder(kind).decode

    def decode(payload: Raw | bytes) -> Any:
        try:
            return decode_fast(payload)
        except msgspec.DecodeError:
            return convert_plain(parse_value(bytes(payload)), kind)

    return decode


def convert_plain(value: Any, kind: Any, *, dec_hook: Callable[[type, Any], Any] | None = None) -> Any:
    """`msgspec.convert`, where texts may hold lone surrogates. Raises `msgspec.ValidationError` alone.

    msgspec encodes a text that should be a tag, a key or a number, and lets the error of that out.
    """
    try:
        return msgspec.convert(value, kind, dec_hook=dec_hook)
    except UnicodeEncodeError as error:
        raise msgspec.ValidationError(f"a text holds a lone surrogate: {error.reason}") from None
