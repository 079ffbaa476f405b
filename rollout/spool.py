"""A stream put aside in a temporary file, so that it can be read from its end.

Invariant: the file has no name and mode 0600, so nobody else can open it, and it goes when it is
closed or the process dies. A compressed rollout needs it because a frame can only be decoded
from its start: decoding it anew for every block would cost the square of its length.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from typing import IO, NamedTuple

from rollout.lines import Break
from rollout.source import raise_unreadable

__all__ = ["Segment", "Spool", "spool"]

MEMORY_BYTES = 8 << 20
"""A stream of no more bytes than this stays in memory."""


class Segment(NamedTuple):
    """A run of decompressed bytes; `ended_by` is what was missing behind it, else None."""

    start: int
    end: int
    ended_by: Break | None


class Spool:
    """The bytes of a stream, and where some are missing."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.segments: list[Segment] = []
        self._file: IO[bytes] = tempfile.SpooledTemporaryFile(max_size=MEMORY_BYTES)  # noqa: SIM115

    def fill(self, blocks: Iterable[bytes | Break]) -> None:
        """Take everything."""
        start = end = 0
        for block in blocks:
            if isinstance(block, Break):
                self.segments.append(Segment(start, end, block))
                start = end
                continue
            try:
                self._file.write(block)
            except OSError as error:
                raise_unreadable(self.name, error, "spool")
            end += len(block)
        self.segments.append(Segment(start, end, None))

    def read_at(self, size: int, offset: int) -> bytes:
        """The bytes from `offset` on; fewer than `size` only at the end."""
        self._file.seek(offset)
        return self._file.read(size)

    def close(self) -> None:
        """The temporary file goes with it."""
        self._file.close()


def spool(name: str, blocks: Iterable[bytes | Break]) -> Spool:
    """Put a stream aside, so that it can be read from its end.

    Raises:
        RolloutUnreadable: there is no room for it in the folder for temporary files.
    """
    filled = Spool(name)
    try:
        filled.fill(blocks)
    except BaseException:
        filled.close()
        raise
    return filled
