"""The tail of a rollout: what stands behind its last newline.

Invariant: a tail is told by its bytes alone, by the rule of the readers. One that is longer than
readers take is torn: nobody could read it.
"""

from __future__ import annotations

import enum

from msgspec import Struct

from rollout.lines import RECORD_BYTES_MAX, Break, judge_line, split_lines_backward
from rollout.source import ByteSource

__all__ = ["Tail", "TailKind", "find_tail"]

BLOCK_BYTES = 256 << 10


class TailKind(enum.StrEnum):
    """`WHOLE`: the file ends with a newline, or is empty. `UNTERMINATED`: a valid or blank line that
    lacks only its newline. `TORN`: a line that was never finished."""

    WHOLE = "whole"
    UNTERMINATED = "unterminated"
    TORN = "torn"


class Tail(Struct, frozen=True):
    """It reaches from `offset_bytes` (behind the last newline) to the end of the file at `end_bytes`."""

    kind: TailKind
    offset_bytes: int
    end_bytes: int
    reason: str = ""
    """Why it is torn."""

    @property
    def size_bytes(self) -> int:
        return self.end_bytes - self.offset_bytes


def find_tail(source: ByteSource, *, record_bytes_max: int = RECORD_BYTES_MAX) -> Tail:
    """Look at the tail; reads no more than that, in bounded memory.

    Raises:
        RolloutUnreadable: the system refuses.
    """
    size = source.size()
    offset, line, _ = next(
        split_lines_backward(
            source.read_at, 0, size, block_bytes=BLOCK_BYTES, record_bytes_max=record_bytes_max
        )
    )
    if isinstance(line, Break):  # it shrank between two calls: look again
        return find_tail(source, record_bytes_max=record_bytes_max)
    if isinstance(line, bytes):
        if not line:
            return Tail(TailKind.WHOLE, offset, size)
        record = judge_line(line, None, offset, terminated=False)
        if record is None or record.warning is None:
            return Tail(TailKind.UNTERMINATED, offset, size)
        return Tail(TailKind.TORN, offset, size, record.warning.message)
    what = "NUL bytes" if line.only_nul else "bytes, more than readers take"
    return Tail(TailKind.TORN, offset, size, f"the last line was never finished: it is {line.size} {what}")
