"""How a rollout stood at an earlier moment: the log itself remembers.

Invariant: a record that was added later changes nothing. So an order that was begun at a moment stays what
it was, whatever is recorded while its pages are read.
"""

from __future__ import annotations

from typing import NamedTuple

from protocol.errors import RolloutError
from protocol.timestamps import milliseconds_of
from rollout.scanner import ReverseJsonlScanner

__all__ = ["EarlierState", "find_earlier"]

_RECORDS_MAX = 100_000
"""So many records may have been added since."""


class EarlierState(NamedTuple):
    """The time in its last record then, how many bytes it had, and its items."""

    updated_ms: int
    size_bytes: int
    items: int


def find_earlier(path: str, as_of_ms: int) -> EarlierState | None:
    """The state as of a moment; None if no record is known to be as old."""
    try:
        with ReverseJsonlScanner(path) as records:
            for count, record in enumerate(records):
                if count == _RECORDS_MAX:
                    return None
                line = record.line
                at_ms = None if line is None else milliseconds_of(line.timestamp)
                if line is not None and at_ms is not None and at_ms <= as_of_ms:
                    end = record.offset + record.size + 1
                    return EarlierState(at_ms, end, 0 if line.ordinal is None else line.ordinal + 1)
    except RolloutError:
        return None  # it went away, or is none: the list says so
    return None
