"""The validity rule said once more, by other means: what the tests compare with.

A line is valid if its bytes are strict UTF-8 without BOM and without a newline inside, the text
is a JSON object as `json.loads` takes it, and it nests at most 128 deep, members that a later
one of the same name hides included.
"""

from __future__ import annotations

import json
from typing import Any


class Pairs(list[tuple[str, Any]]):
    """The members of an object, doubled names included."""


def keep_number(text: str) -> Any:
    """An integer of any length: as its text where `int` refuses it."""
    try:
        return int(text)
    except ValueError:
        return text


def depth_of(value: Any) -> int:
    """How deep a value nests."""
    if isinstance(value, Pairs):
        return 1 + max((depth_of(each) for _, each in value), default=0)
    if isinstance(value, list):
        return 1 + max((depth_of(each) for each in value), default=0)
    return 0


def judge(data: bytes) -> dict[str, Any] | None:
    """The object of a valid line; None for any other bytes."""
    try:
        text = data.decode("utf-8", "strict")
        if text.startswith("\ufeff") or "\n" in text:
            return None
        if depth_of(json.loads(text, parse_int=keep_number, object_pairs_hook=Pairs)) > 128:
            return None
        value = json.loads(text, parse_int=keep_number)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def same(one: Any, other: Any) -> bool:
    """Equal as JSON, NaN and the sign of zero included; 1 is not 1.0."""
    return repr(one) == repr(other)
