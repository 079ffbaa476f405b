"""Plain values: foreign JSON made fit to be written again inside a record of ours.

Invariant: what comes out is always encodable, however deep or odd what went in was.
"""

from __future__ import annotations

import math
from typing import Any

__all__ = ["DEPTH_MAX", "NOTE_CHARS_MAX", "clipped", "plain_value", "squeezed"]

DEPTH_MAX = 64
"""Half of what a line may nest: what is deeper is left out."""

NOTE_CHARS_MAX = 500
"""What is kept of a free text such as an error."""


def plain_value(value: Any, depth: int = DEPTH_MAX) -> Any:
    """The value without NaN and Infinity (None in their place) and without what nests too deep."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: plain_value(each, depth - 1) for key, each in value.items()} if depth > 0 else None
    if isinstance(value, list):
        return [plain_value(each, depth - 1) for each in value] if depth > 0 else None
    return value


def squeezed(text: str, chars_max: int) -> str:
    """The text on one line, cut to so many characters."""
    # Only the part that can be left is looked at: a text may be megabytes long.
    line = " ".join(text[: 4 * chars_max].split())
    return line if len(line) <= chars_max else line[: chars_max - 1] + "…"


def clipped(value: Any) -> str | None:
    """The value if it is a text that isn't empty, cut to `NOTE_CHARS_MAX` characters."""
    if not isinstance(value, str) or not value:
        return None
    return value if len(value) <= NOTE_CHARS_MAX else value[: NOTE_CHARS_MAX - 1] + "…"
