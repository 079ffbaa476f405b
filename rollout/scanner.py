"""The reverse scanner: the records of a rollout from the newest to the oldest.

Invariant: it gives what the forward reader gives, in the opposite order and without line
numbers, and reads no more of the file than its caller takes: O(bytes read), whatever the size
of the file and the length of its lines.

The end is fixed when the scan begins, so a file may grow meanwhile. If another process cuts it,
the scan ends with a record whose warning says so. A compressed or piped rollout is put aside in
a temporary file first (see `rollout.spool`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from types import TracebackType
from typing import Self

from rollout.document import decode_document
from rollout.lines import (
    BOM,
    RECORD_BYTES_MAX,
    LongLine,
    ReadAt,
    judge_break,
    judge_line,
    judge_long_line,
    split_lines_backward,
)
from rollout.record import RolloutRecord
from rollout.source import ByteSource, RolloutSource, is_compressed, open_source
from rollout.spool import Segment, Spool, spool
from rollout.stream import DOCUMENT_HEAD_BYTES, begins_document, decoded_blocks

__all__ = ["ReverseJsonlScanner"]

BLOCK_BYTES = 64 << 10


class ReverseJsonlScanner:
    """The records of one rollout, newest first, once. Iterate over it; it closes itself at the end.

    `source` is what `read_rollout` takes. `end_offset` (of the decompressed file) leaves out what
    stands behind it.

    Raises:
        ThreadNotFound, NotARollout (a folder), RolloutUnreadable: when it is made, and the last one
            also while scanning. An empty file gives no records.
    """

    def __init__(
        self,
        source: RolloutSource,
        *,
        record_bytes_max: int = RECORD_BYTES_MAX,
        block_bytes: int = BLOCK_BYTES,
        end_offset: int | None = None,
        name: str | None = None,
    ) -> None:
        self._source = open_source(source, name=name)
        # The scan doesn't refer to this object: who drops the scanner drops the descriptor with it.
        scan = _Scan(self._source, record_bytes_max, block_bytes, end_offset)
        self._records = scan.records()

    def __iter__(self) -> Iterator[RolloutRecord]:
        return self._records

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file. Happens by itself at the end of the iteration."""
        self._records.close()
        self._source.close()

    @property
    def path(self) -> str:
        """The file as it was given, or what the stream is called."""
        return self._source.name


class _Scan:
    """One pass from the end to the start."""

    def __init__(
        self, source: ByteSource, record_bytes_max: int, block_bytes: int, end_offset: int | None
    ) -> None:
        self._source = source
        self._record_bytes_max = record_bytes_max
        self._block_bytes = block_bytes
        self._end_offset = end_offset
        self._spool: Spool | None = None

    def records(self) -> Generator[RolloutRecord]:
        """All of them, newest first."""
        try:
            read_at, segments = self._open()
            bom = bool(segments) and segments[0].end >= len(BOM) and read_at(len(BOM), 0) == BOM
            start = len(BOM) if bom else 0
            document = self._read_document(read_at, start, segments)
            if document is not None:
                yield from document
                return
            for each in reversed(segments):
                if each.ended_by is not None:
                    yield judge_break(each.ended_by, each.end)
                yield from self._scan_lines(read_at, max(start, each.start), each.end)
        finally:
            if self._spool is not None:
                self._spool.close()
            self._source.close()

    def _open(self) -> tuple[ReadAt, list[Segment]]:
        source = self._source
        if source.seekable and not is_compressed(source.read_at(4, 0)):
            return source.read_at, self._clip([Segment(0, source.size(), None)])
        self._spool = spool(source.name, decoded_blocks(source, self._block_bytes))
        return self._spool.read_at, self._clip(self._spool.segments)

    def _clip(self, segments: list[Segment]) -> list[Segment]:
        end = self._end_offset
        if end is None:
            return segments
        return [
            each if each.end < end else Segment(each.start, end, None)
            for each in segments
            if each.start < end
        ]

    def _read_document(
        self, read_at: ReadAt, start: int, segments: list[Segment]
    ) -> Iterator[RolloutRecord] | None:
        if self._end_offset is not None or len(segments) != 1:
            return None
        size = segments[0].end - start
        if size > self._record_bytes_max or not begins_document(read_at(DOCUMENT_HEAD_BYTES, start)):
            return None
        document = decode_document(read_at(size, start), start)
        if document is None:
            return None
        return (RolloutRecord(None, each.offset, each.size, each.line) for each in reversed(document.records))

    def _scan_lines(self, read_at: ReadAt, start: int, end: int) -> Iterator[RolloutRecord]:
        limit = self._record_bytes_max
        for offset, line, terminated in split_lines_backward(
            read_at, start, end, block_bytes=self._block_bytes, record_bytes_max=limit
        ):
            if isinstance(line, bytes):
                record = judge_line(line, None, offset, terminated=terminated) if line else None
                if record is not None:
                    yield record
            elif isinstance(line, LongLine):
                yield judge_long_line(line, None, offset, terminated=terminated, record_bytes_max=limit)
            else:
                yield judge_break(line, offset)
