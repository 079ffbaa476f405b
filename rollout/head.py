"""The head of a rollout: whose it is, or why the file is none.

Invariant: nothing is taken for a rollout that holds no line of one, and what is refused is called
by its name. The first session_meta names the thread, wherever it stands; what comes before it
(damage, a record of unknown type) only makes it late.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from protocol.errors import NotARollout
from rollout.grammar import explain, is_rollout_line
from rollout.lines import RECORD_BYTES_MAX, LongLine, judge_line, judge_long_line, split_lines
from rollout.notices import META, thread_id_of
from rollout.record import RolloutRecord
from rollout.source import ByteSource, RolloutSource, open_source
from rollout.stream import RolloutStream

__all__ = ["RolloutHead", "find_head", "require_rollout"]

BLOCK_BYTES = 64 << 10

_FOREIGN_MAX = 1000
"""So many valid lines of another grammar, and not one of ours: it is no rollout."""

_EXPLAINED_MAX = 50


class RolloutHead(Struct, frozen=True):
    """Whose rollout it is. `meta` is its first session_meta record, None where the header was lost."""

    meta: RolloutRecord | None
    thread_id: str | None


def require_rollout(
    source: RolloutSource, *, record_bytes_max: int = RECORD_BYTES_MAX, name: str | None = None
) -> RolloutHead:
    """Make sure that it is a rollout, and find its header; reads no further than that.

    `source` is what `read_rollout` takes.

    Raises:
        NotARollout: it is empty, holds no valid line, or is of another grammar; the error says which.
        ThreadNotFound, RolloutUnreadable: there is no such file, or the system refuses to read it.
    """
    opened = open_source(source, name=name)
    try:
        return find_head(opened, record_bytes_max=record_bytes_max)
    finally:
        opened.close()


def find_head(source: ByteSource, *, record_bytes_max: int = RECORD_BYTES_MAX) -> RolloutHead:
    """As `require_rollout`, for bytes that are open already."""
    stream = RolloutStream(source, block_bytes=BLOCK_BYTES)
    stream.begin()
    first: list[RolloutRecord] = []
    ours, foreign = False, 0
    for record in _records(stream, record_bytes_max):
        line = record.line
        if line is not None:
            if line.type == META:
                return RolloutHead(record, thread_id_of(line))
            ours = ours or is_rollout_line(line)
            foreign += 1
        if ours:
            continue
        if len(first) < _EXPLAINED_MAX and record.size <= BLOCK_BYTES:
            first.append(record)
        if foreign >= _FOREIGN_MAX:
            break
    if ours:
        return RolloutHead(None, None)
    reason, hint = explain(first, stream.head)
    raise NotARollout(path=source.name, reason=reason, hint=hint)


def _records(stream: RolloutStream, record_bytes_max: int) -> Iterator[RolloutRecord]:
    if stream.document:
        from rollout.document import read_document

        document = read_document(stream, record_bytes_max)
        if document is not None:
            yield from document.records
            return
    line_no = 0
    for offset, part, terminated in split_lines(
        stream.blocks, stream.offset, record_bytes_max=record_bytes_max
    ):
        if isinstance(part, list):
            for data in part:
                line_no += 1
                record = judge_line(data, line_no, offset, terminated=terminated)
                if record is not None:
                    yield record
                offset += len(data) + 1
        elif isinstance(part, LongLine):
            line_no += 1
            yield judge_long_line(
                part, line_no, offset, terminated=terminated, record_bytes_max=record_bytes_max
            )
