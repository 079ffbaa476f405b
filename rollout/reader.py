"""The forward reader: the one tolerant way to read a rollout, for every command and every source.

Invariant: each line that is not blank gives exactly one record, in order, good or bad; a bad
line never hides another one, and no file makes it hold more than one line of the permitted
length and one block (a one-document rollout of the old kind: the document).

Plain and `.zst` files, pipes and stdin are read alike. What is odd about the file as a whole
is collected in `notices`; a record tells of its own line only.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from types import TracebackType
from typing import Self

from protocol.errors import InvalidLine
from protocol.items import RolloutItem
from protocol.line import decode_line
from rollout.document import Document, read_document
from rollout.head import require_rollout
from rollout.lines import (
    RECORD_BYTES_MAX,
    LongLine,
    judge_break,
    judge_long_line,
    judge_refused,
    split_lines,
)
from rollout.notices import META, FileNotice, FileNotices, thread_id_of
from rollout.record import RolloutRecord
from rollout.source import ByteSource, RolloutSource, open_source
from rollout.stream import RolloutStream

__all__ = ["RolloutReader", "read_rollout", "require_rollout"]

BLOCK_BYTES = 256 << 10


class RolloutReader:
    """The records of one rollout, once. Iterate over it; it closes itself at the end.

    The attributes tell of the whole file once the iteration is over; until then they may lag behind.
    """

    def __init__(
        self,
        source: RolloutSource,
        *,
        record_bytes_max: int = RECORD_BYTES_MAX,
        start_offset: int = 0,
        end_offset: int | None = None,
        block_bytes: int = BLOCK_BYTES,
        name: str | None = None,
    ) -> None:
        self._source = open_source(source, name=name)
        self._record_bytes_max = record_bytes_max
        self._stream = RolloutStream(
            self._source, block_bytes=block_bytes, start_offset=start_offset, end_offset=end_offset
        )
        self._notices = FileNotices()
        # It doesn't refer to this object: who drops the reader drops the descriptor with it.
        self._records: Generator[RolloutRecord] | None = None

    def __iter__(self) -> Iterator[RolloutRecord]:
        if self._records is None:
            self._records = _begin(self._source, self._stream, self._notices, self._record_bytes_max)
        return self._records

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file. Happens by itself at the end of the iteration."""
        if self._records is not None:
            self._records.close()
        self._source.close()

    @property
    def path(self) -> str:
        """The file as it was given, or what the stream is called."""
        return self._source.name

    @property
    def lines(self) -> int:
        """Physical lines, blank ones and an unfinished last one included."""
        return self._notices.lines

    @property
    def end_offset(self) -> int:
        """Where the last line ended, newline included."""
        return self._notices.end_offset

    @property
    def head(self) -> bytes:
        """The first bytes, decompressed and without BOM: enough to tell what the file is."""
        return self._stream.head

    @property
    def meta_record(self) -> RolloutRecord | None:
        """The first session_meta: the thread's own."""
        return self._notices.meta

    @property
    def meta(self) -> RolloutItem | None:
        """The first session_meta, decoded."""
        record = self._notices.meta
        return record.line.item() if record is not None and record.line is not None else None

    @property
    def thread_id(self) -> str | None:
        """The id in `meta`: a `ThreadId`, or the text as it stands if it is no UUID."""
        record = self._notices.meta
        return thread_id_of(record.line) if record is not None and record.line is not None else None

    @property
    def max_ordinal(self) -> int | None:
        """The greatest ordinal; None if no record has one."""
        return self._notices.next_ordinal - 1 if self._notices.next_ordinal else None

    @property
    def next_ordinal(self) -> int:
        """One more than the greatest ordinal; 0 if no record has one."""
        return self._notices.next_ordinal

    @property
    def notices(self) -> list[FileNotice]:
        """What is odd about the file as a whole."""
        return self._notices.listed()


def _begin(
    source: ByteSource, stream: RolloutStream, notices: FileNotices, record_bytes_max: int
) -> Generator[RolloutRecord]:
    """Look at the first bytes, which tell how the rest is read."""
    try:
        stream.begin()
        document = read_document(stream, record_bytes_max)
    except BaseException:
        source.close()
        raise
    if stream.bom:
        notices.note("bom", "it begins with a byte order mark, which was passed over")
    if document is not None:
        source.close()
        return _read_document(document, notices)
    return _read_lines(source, stream, notices, record_bytes_max)


def _read_document(document: Document, notices: FileNotices) -> Generator[RolloutRecord]:
    notices.note("one_document", "it is one JSON document, the oldest format of Codex")
    for index, record in enumerate(document.records):
        if record.line is not None and record.line.type == META:
            notices.note_meta(record, record.line, records_before=index)
        yield record
    notices.lines, notices.end_offset = document.lines, document.end_offset


def _read_lines(
    source: ByteSource, stream: RolloutStream, notices: FileNotices, record_bytes_max: int
) -> Generator[RolloutRecord]:
    """The hot loop: what happens for each line is written out here."""
    numbered = stream.from_start
    line_no, blanks, good, next_ordinal = 0, 0, False, 0
    offset = stream.offset
    parts = split_lines(stream.blocks, offset, record_bytes_max=record_bytes_max)
    try:
        for offset, part, terminated in parts:
            if not isinstance(part, list):
                if isinstance(part, LongLine):
                    line_no += 1
                    yield judge_long_line(
                        part,
                        line_no if numbered else None,
                        offset,
                        terminated=terminated,
                        record_bytes_max=record_bytes_max,
                    )
                    offset += part.size + terminated
                else:
                    yield judge_break(part, offset)
                continue
            if part[0].endswith(b"\r"):
                notices.note("crlf", "its lines end with CRLF")
            record = None
            for data in part:
                line_no += 1
                size = len(data)
                if not size:
                    blanks += 1
                    offset += 1
                    continue
                try:
                    line = decode_line(data)
                except InvalidLine as error:
                    bad = judge_refused(
                        error, data, line_no if numbered else None, offset, terminated=terminated
                    )
                    offset += size + 1
                    if bad is None:
                        blanks += 1
                    else:
                        yield bad
                    continue
                record = RolloutRecord(line_no if numbered else None, offset, size, line)
                offset += size + 1
                if line.ordinal == next_ordinal:
                    next_ordinal += 1
                elif line.ordinal is not None or next_ordinal:
                    notices.next_ordinal = next_ordinal
                    notices.note_ordinal(record, line)
                    next_ordinal = notices.next_ordinal
                if line.type == META:
                    notices.note_meta(record, line, records_before=line_no - 1 - blanks)
                good = True
                yield record
            notices.next_ordinal = next_ordinal
            if not terminated:
                offset -= 1
                if record is not None:
                    notices.note("no_final_newline", "its last line has no newline", record)
        notices.lines, notices.end_offset = line_no, offset
        notices.finish(records=good)
    finally:
        notices.next_ordinal = next_ordinal
        source.close()


def read_rollout(
    source: RolloutSource,
    *,
    record_bytes_max: int = RECORD_BYTES_MAX,
    start_offset: int = 0,
    end_offset: int | None = None,
    block_bytes: int = BLOCK_BYTES,
) -> RolloutReader:
    """Read a rollout forward, tolerantly: every record, and a warning for each damaged line.

    `source` is a path (plain or `.zst`), `-` for stdin, an open binary file or a descriptor.
    `start_offset` and `end_offset` are byte offsets of the decompressed file, the first one on a
    line border; with a start the records have no line numbers. A longer line than
    `record_bytes_max` gives a warning instead. FORMAT.md, Reading.

    Raises:
        ThreadNotFound, NotARollout (a folder), RolloutUnreadable: at the call, and the last one also
            while reading. An empty file gives no records and no error; see `require_rollout`.
    """
    return RolloutReader(
        source,
        record_bytes_max=record_bytes_max,
        start_offset=start_offset,
        end_offset=end_offset,
        block_bytes=block_bytes,
    )
