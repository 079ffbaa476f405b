"""JSON strings as some writer may write them: each character in any of its forms."""

from __future__ import annotations

import random

__all__ = ["escape"]

_SHORT = {
    '"': '\\"',
    "\\": "\\\\",
    "/": "\\/",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
}


def escape(text: str, rng: random.Random) -> str:
    """A JSON string of it, each character in one of the ways that it may be written."""
    pieces = []
    for char in text:
        units = [char.encode("utf-16-be", "surrogatepass")[at : at + 2] for at in range(0, 4, 2)]
        coded = "".join(f"\\u{int.from_bytes(unit):04x}" for unit in units if unit)
        ways = [coded, coded.upper().replace("\\U", "\\u")]
        if char in _SHORT:
            ways.append(_SHORT[char])
        elif char >= " " and not "\ud800" <= char <= "\udfff":
            ways += [char] * 3
        if char == "/":
            ways.append(char)
        pieces.append(rng.choice(ways))
    return f'"{"".join(pieces)}"'
