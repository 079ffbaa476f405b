"""A resume state as JSON: written, and read back equal.

Invariant: payloads of the model's items keep their bytes, whatever JSON of others holds (lone surrogates,
NaN, numbers of any length). Elsewhere a NaN becomes null, and a number that the fast path can't take keeps
its value.
"""

from __future__ import annotations

import json
import math
import re
import secrets
from typing import Any, TypeVar

import msgspec
from msgspec import Raw

from protocol.codec import REFUSALS
from protocol.decoding import convert_plain
from protocol.places import Places
from protocol.session_memory import SessionMemory

__all__ = ["decode_state", "encode_state"]

_T = TypeVar("_T")


def encode_state(state: object) -> bytes:
    """The state as one JSON object."""
    try:
        return msgspec.json.encode(state, enc_hook=_plain_memory)
    except REFUSALS:
        return _encode_slowly(state)


def _encode_slowly(state: object) -> bytes:
    """Payloads are left out, and put back into the text."""
    mark, payloads = secrets.token_hex(16), list[bytes]()

    def plain(value: object) -> object:
        if isinstance(value, Raw):
            payloads.append(bytes(value))
            return f"{mark}{len(payloads) - 1}"
        return _plain_memory(value)

    text = json.dumps(_without_nan(msgspec.to_builtins(state, enc_hook=plain)), separators=(",", ":"))
    return re.sub(rb'"%s(\d+)"' % mark.encode(), lambda found: payloads[int(found[1])], text.encode())


def _without_nan(value: Any) -> Any:
    """As the fast path writes it."""
    if isinstance(value, dict):
        return {key: _without_nan(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _plain_memory(value: object) -> object:
    if isinstance(value, SessionMemory):
        return value.to_plain()
    raise TypeError(f"objects of type {type(value).__name__} have no JSON form")


def decode_state(data: bytes, kind: type[_T]) -> _T:
    """Read it back.

    Raises:
        msgspec.ValidationError: it is something else.
    """
    try:
        return msgspec.json.decode(data, type=kind, dec_hook=_decode_memory)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, RecursionError):
        pass
    try:
        state: _T = convert_plain(_with_raw_payloads(data), kind, dec_hook=_decode_memory)
    except (ValueError, RecursionError, LookupError, TypeError) as error:
        raise msgspec.ValidationError(f"it is no state: {error}") from error
    return state


def _with_raw_payloads(data: bytes) -> Any:
    value = json.loads(data.decode(), parse_int=_whole_number)
    places = Places(data.decode())
    elements = places.elements(places.member("items")[0]) if isinstance(value["items"], list) else []
    for (begin, end), item in zip(elements, value["items"], strict=True):
        text = places.text[begin:end]
        begin, end = Places(text).member("payload")
        item["payload"] = Raw(text[begin:end].encode())
    return value


def _whole_number(text: str) -> int | str:
    try:
        return int(text)
    except ValueError:  # more digits than this process takes
        return text


def _decode_memory(kind: type, value: Any) -> Any:
    if kind is SessionMemory:
        return SessionMemory.from_plain(value)
    if kind is Raw:
        return value
    raise TypeError(f"no {kind.__name__} in a resume state")
