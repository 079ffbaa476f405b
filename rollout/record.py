"""What reading gives: one `RolloutRecord` a line, good or bad.

Invariant: a record depends on the bytes of its line and on nothing else, so that the forward
reader and the reverse scanner give the same ones.
"""

from __future__ import annotations

from msgspec import Struct

from protocol.line import RolloutLine

__all__ = ["LineWarning", "RolloutRecord"]


class LineWarning(Struct, frozen=True, gc=False):
    """Why a line was passed over. `reason` is a code of a closed set (FORMAT.md, Reading):
    `not_utf8`, `nul_bytes`, `bom`, `too_deep`, `not_json`, `not_an_object`, `too_long`, `torn_tail`;
    and where bytes are missing: `damaged_frame` (in a `.zst`), `shrunk` (cut while it was scanned).
    """

    reason: str
    message: str
    offset_bytes: int
    """Where the line begins in the (decompressed) file."""
    size_bytes: int
    """How long it is, without its newline."""
    line_no: int | None = None
    """Counted from 1; None where a scan from the end can't know it."""


class RolloutRecord(Struct, frozen=True, gc=False):
    """One line of a rollout that is not blank: its place, and either the `line` or a `warning`.

    `line_no` counts from 1 (None in a scan from the end); `offset` is the byte where the line
    begins in the decompressed file; `size` is its bytes without the newline.
    """

    line_no: int | None
    offset: int
    size: int
    line: RolloutLine | None
    warning: LineWarning | None = None
