"""Whole records inside a line that is none: two writes that met on one line, or NUL padding.

Invariant: a record found here is a valid line on its own, byte for byte. The line around it
stays one invalid line (the validity rule knows nothing else); what is found only goes into
its warning, and to whoever asks for it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from protocol.errors import InvalidLine
from protocol.line import RolloutLine, decode_line

__all__ = ["FusedRecord", "describe_fused", "find_fused"]

# Where a record may begin: as Codex and this library write one, or as older writers did.
_BEGIN = re.compile(
    rb'\{"timestamp":"|\{"type":"(?:session_meta|response_item|event_msg|turn_context|compacted|world_state|x_[a-z_]+)"'
)
_NUL_RUN = re.compile(rb"\0+")

# A crafted line may look like thousands of beginnings: the search is bounded, the line is bad anyway.
_TRIES_MAX = 64
_PAIRS_MAX = 4


class FusedRecord(NamedTuple):
    """A whole record inside a bad line, `offset` bytes after the line's first."""

    offset: int
    line: RolloutLine


def find_fused(data: bytes) -> list[FusedRecord]:
    """The whole records that stand inside a line, in order."""
    starts = [match.start() for match in _BEGIN.finditer(data)][:_TRIES_MAX]
    found: list[FusedRecord] = []
    tries, index = 0, 0
    while index < len(starts) and tries < _TRIES_MAX:
        ends = [*starts[index + 1 :][: _PAIRS_MAX - 1], len(data)]
        for step, end in enumerate(ends, 1):
            tries += 1
            line = _decode(data, starts[index], end)
            if line is not None:
                found.append(FusedRecord(starts[index], line))
                index += step
                break
        else:
            index += 1
    return found


def _decode(data: bytes, start: int, end: int) -> RolloutLine | None:
    piece = data[start:end]
    for candidate in (piece, _NUL_RUN.split(piece, maxsplit=1)[0]):
        if candidate.endswith(b"}") or candidate.rstrip().endswith(b"}"):
            try:
                return decode_line(candidate)
            except InvalidLine:
                continue
    return None


def describe_fused(data: bytes) -> str:
    """What to add to the warning of a bad line; nothing if no whole record stands in it."""
    found = find_fused(data)
    if not found:
        return ""
    if len(found) == 1:
        return f"; a whole record stands at byte {found[0].offset} of it"
    return (
        f"; {len(found)} whole records stand in it, at bytes {', '.join(str(each.offset) for each in found)}"
    )
