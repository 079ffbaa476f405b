"""A resume state as JSON: written, and read back equal.

Invariant: payloads of the model's items keep their bytes. Where a text holds a lone surrogate or a number
more digits than the fast path takes, the values stay the same and only spaces may go.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

import msgspec
from msgspec import Raw

from protocol.codec import REFUSALS, encode_value
from protocol.decoding import convert_plain
from protocol.session_memory import SessionMemory
from protocol.validity import parse_value

__all__ = ["decode_state", "encode_state"]

_T = TypeVar("_T")


def encode_state(state: object) -> bytes:
    """The state as one JSON object."""
    try:
        return msgspec.json.encode(state, enc_hook=_plain_memory)
    except REFUSALS:
        return encode_value(msgspec.to_builtins(state, enc_hook=_plain_value))


def _plain_memory(value: object) -> object:
    if isinstance(value, SessionMemory):
        return value.to_plain()
    raise TypeError(f"objects of type {type(value).__name__} have no JSON form")


def _plain_value(value: object) -> object:
    return parse_value(bytes(value)) if isinstance(value, Raw) else _plain_memory(value)


def decode_state(data: bytes, kind: type[_T]) -> _T:
    """Read it back.

    Raises:
        msgspec.ValidationError: it is something else.
    """
    try:
        return msgspec.json.decode(data, type=kind, dec_hook=_decode_memory)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        state: _T = convert_plain(_with_raw_payloads(json.loads(data)), kind, dec_hook=_decode_memory)
        return state


def _with_raw_payloads(value: Any) -> Any:
    items = value.get("items") if isinstance(value, dict) else None
    for item in items if isinstance(items, list) else ():
        item["payload"] = Raw(encode_value(item["payload"]))
    return value


def _decode_memory(kind: type, value: Any) -> Any:
    if kind is SessionMemory:
        return SessionMemory.from_plain(value)
    if kind is Raw:
        return value
    raise TypeError(f"no {kind.__name__} in a resume state")
