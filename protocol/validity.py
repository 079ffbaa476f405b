"""The validity rule: which bytes are a line, decided by the bytes alone (FORMAT.md, Line).

Invariant: `parse_object` accepts exactly the lines whose bytes are strict UTF-8 without BOM,
whose text is a JSON object as `json.loads` takes it (integers of any length), and whose
brackets nest at most `NESTING_MAX` deep. msgspec only answers faster; what it refuses is
judged again here, so both answers are one rule.
"""

from __future__ import annotations

import json
import re
from itertools import accumulate
from typing import Any, NoReturn

from protocol.errors import InvalidLine

__all__ = [
    "NESTING_MAX",
    "SHALLOW_BYTES",
    "is_blank",
    "nesting_depth",
    "parse_object",
    "parse_value",
    "require_shallow",
    "require_utf8",
]

NESTING_MAX = 128

# 129 nested arrays need as many bytes to open and to close: shorter lines can't be too deep.
SHALLOW_BYTES = 2 * (NESTING_MAX + 1)

# Possessive, and an unterminated string reaches to the end: linear in time, no stack.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_NOT_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
_AS_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_BLANK = b" \t\r\n"


def is_blank(data: bytes) -> bool:
    """Whether the line holds nothing but JSON white space. Such lines are passed over."""
    return not data.strip(_BLANK)


def nesting_depth(data: bytes) -> int:
    """How deep the brackets outside strings nest, without parsing anything else. O(bytes).

    A JSON parser never gets deeper than that: up to the first error both read the same tokens.
    """
    steps = _STRING.sub(b"", data).translate(_AS_STEPS, _NOT_BRACKETS)
    return max(accumulate(memoryview(steps).cast("b")), default=0)


def require_shallow(data: bytes, nesting_max: int = NESTING_MAX) -> None:
    """Refuse what nests deeper than `nesting_max`; nearly every line passes by its counts alone."""
    if len(data) <= nesting_max or data.count(b"{") + data.count(b"[") <= nesting_max:
        return
    if nesting_depth(data) > nesting_max:
        raise InvalidLine("too_deep", f"it nests deeper than {nesting_max} levels")


def require_utf8(data: bytes) -> str:
    """The text of the line. Raises `InvalidLine` (`not_utf8`)."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidLine(
            "not_utf8",
            f"it is not UTF-8: byte 0x{data[error.start]:02x} at {error.start}",
            offset_bytes=error.start,
        ) from None


def _keep_number(text: str) -> int | str:
    # int() refuses texts of many digits (how many is a setting of the process); the length of
    # a number is no reason to lose a line.
    try:
        return int(text)
    except ValueError:
        return text


def parse_object(data: bytes) -> dict[str, Any]:
    """Judge a line by the rule itself and give the object as plain Python values.

    Raises:
        InvalidLine: as `parse_value`, and with the reason `not_an_object`.
    """
    value = parse_value(data)
    if not isinstance(value, dict):
        raise InvalidLine("not_an_object", f"it is a JSON {_json_name(value)}, not an object")
    return value


def parse_value(data: bytes) -> Any:
    """Any JSON value, judged by the same rule.

    Raises:
        InvalidLine: with the reason `empty`, `nul_bytes`, `not_utf8`, `bom`, `too_deep` or `not_json`.
    """
    if is_blank(data):
        raise InvalidLine("empty", "it is blank")
    if not data.strip(b"\0" + _BLANK):
        raise InvalidLine("nul_bytes", f"it is {len(data)} NUL bytes")
    text = require_utf8(data)
    if text.startswith("\ufeff"):
        raise InvalidLine("bom", "it begins with a byte order mark")
    require_shallow(data)
    # A RecursionError goes through: the line is shallow, it's the caller's stack that is used up.
    try:
        return json.loads(text, parse_int=_keep_number)
    except json.JSONDecodeError as error:
        _not_json(data, text, error)


def _not_json(data: bytes, text: str, error: json.JSONDecodeError) -> NoReturn:
    offset = len(text[: error.pos].encode())
    if b"\0" in data:
        raise InvalidLine(
            "nul_bytes", f"it holds NUL bytes from byte {data.index(0)}", offset_bytes=data.index(0)
        )
    raise InvalidLine(
        "not_json", f"it is not JSON: {error.msg.removesuffix(' at')} at byte {offset}", offset_bytes=offset
    )


def _json_name(value: object) -> str:
    if isinstance(value, list):
        return "array"
    return (
        "string"
        if isinstance(value, str)
        else "literal"
        if value is None or isinstance(value, bool)
        else "number"
    )
