"""Where values stand in JSON text: members of the outer object, elements of an array.

Invariant: only text that was parsed before comes here, so every step finds what it expects.
"""

from __future__ import annotations

import json

__all__ = ["Places"]

# Values are passed over; numbers must not be built (their digits have no limit).
_scan = json.JSONDecoder(parse_int=len, parse_float=len).raw_decode


class Places:
    """The places of values in a text, as (begin, end) in characters."""

    def __init__(self, text: str) -> None:
        self.text = text

    def member(self, key: str) -> tuple[int, int]:
        """The value of the last member of that name, as JSON readers take it; (0, 0) if there is none."""
        found = (0, 0)
        position = self._skip(self._skip(0) + 1)
        while self.text[position] != "}":
            name, position = _scan(self.text, position)
            begin = self._skip(self._skip(position) + 1)
            _, position = _scan(self.text, begin)
            if name == key:
                found = (begin, position)
            position = self._next(position)
        return found

    def elements(self, begin: int) -> list[tuple[int, int]]:
        """Each element of the array that begins there."""
        found = []
        position = self._skip(begin + 1)
        while self.text[position] != "]":
            _, end = _scan(self.text, position)
            found.append((position, end))
            position = self._next(end)
        return found

    def _next(self, position: int) -> int:
        position = self._skip(position)
        return self._skip(position + 1) if self.text[position] == "," else position

    def _skip(self, position: int) -> int:
        while self.text[position] in " \t\r\n":
            position += 1
        return position
