"""What a recorder must know of an existing rollout before it appends to it.

Invariant: the file is looked at and never touched, and its descriptor's position stays where it
is. Read is what it takes and no more: from the end back to the newest valid `x_memory`, which
carries the maximum of the ordinals and the epoch; without one the whole file, line by line, in
bounded memory.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from protocol.errors import NotARollout
from protocol.line import RolloutLine
from protocol.timestamps import parse_timestamp
from rollout.head import RolloutHead, find_head
from rollout.lines import RECORD_BYTES_MAX, Break, LongLine, judge_line, split_lines_backward
from rollout.notices import base_ordinal, meta_text
from rollout.reconcile import HEAD_BYTES_MAX
from rollout.record import RolloutRecord
from rollout.source import ByteSource, RolloutSource, is_compressed, open_source
from rollout.stream import DOCUMENT_HEAD_BYTES, begins_document

__all__ = ["AppendState", "require_appendable", "scan_for_append"]

BLOCK_BYTES = 256 << 10


class AppendState(Struct, frozen=True, kw_only=True):
    """The end of a rollout, and what its next records go on from. Offsets count bytes of the file."""

    size: int
    """When it was looked at."""
    torn_from: int | None
    """Where the last line begins if it was never finished and is none; else None."""
    needs_newline: bool
    """The last line is valid (or blank) and only its newline is missing."""
    first_line: bytes
    """The line of its first session_meta, with newline. Empty if there is none, or none near the start."""
    thread_id: str | None
    """The id in the first session_meta, as it stands there."""
    history_mode: str
    """`paginated` or `legacy` (which is also meant when nothing is said)."""
    max_ordinal: int | None
    """None: no record has an ordinal."""
    epoch: int
    """The greatest of the `x_writer` records; 0 if there is none."""
    last_timestamp_ms: int | None
    """Of the newest record that has a readable one."""
    examined_from: int
    """Every line from here on was looked at; 0 unless an `x_memory` spoke for the rest."""
    damaged_lines: int
    """How many lines of those are invalid, a torn tail included."""


def scan_for_append(
    opened: RolloutSource,
    path: str,
    *,
    record_bytes_max: int = RECORD_BYTES_MAX,
    block_bytes: int = BLOCK_BYTES,
) -> AppendState:
    """Look at a rollout through a descriptor, or a binary file, that is open for reading. FORMAT.md, Opening.

    Raises:
        NotARollout: there is no whole line of a rollout in it, or it is compressed.
        RolloutUnreadable: the system refuses to read it.
    """
    source = open_source(opened, name=path)
    require_appendable(source)
    scan = _Scan()
    head = find_head(source, record_bytes_max=record_bytes_max)
    size = source.size()
    lines = split_lines_backward(
        source.read_at, 0, size, block_bytes=block_bytes, record_bytes_max=record_bytes_max
    )
    for offset, line, terminated in lines:
        if isinstance(line, Break):
            raise NotARollout(path=path, reason=line.message, hint="Another program is writing it; try again")
        scan.take(offset, line, terminated=terminated)
        if scan.is_complete(offset):
            break
    return scan.state(size, head, source)


def require_appendable(source: ByteSource) -> None:
    """Refuse what is read like a rollout but can't be appended to.

    Raises:
        NotARollout: it is compressed, or one JSON document.
    """
    head = source.read_at(DOCUMENT_HEAD_BYTES, 0)
    if is_compressed(head):
        raise NotARollout(
            path=source.name, reason="it is compressed", hint="Nothing can be appended: expand it first"
        )
    if begins_document(head):
        raise NotARollout(
            path=source.name,
            reason="it is one JSON document, the oldest format of Codex",
            hint="Nothing can be appended to it; it can be read and imported",
        )


class _Scan:
    """What was gathered so far, newest line first."""

    def __init__(self) -> None:
        self.torn_from: int | None = None
        self.needs_newline = False
        self.next_ordinal = 0
        self.epoch = 0
        self.last_timestamp_ms: int | None = None
        self.examined_from = 0
        self.damaged_lines = 0
        self._spoken_for: int | None = None

    def take(self, offset: int, line: bytes | LongLine, *, terminated: bool) -> None:
        self.examined_from = offset
        if isinstance(line, LongLine):
            self._take_bad(offset, terminated=terminated)
        elif line:
            record = judge_line(line, None, offset, terminated=terminated)
            if record is not None and record.line is None:
                self._take_bad(offset, terminated=terminated)
                return
            self.needs_newline = self.needs_newline or not terminated
            if record is not None and record.line is not None:
                self._take_line(record.line, offset)

    def _take_bad(self, offset: int, *, terminated: bool) -> None:
        self.damaged_lines += 1
        if not terminated:
            self.torn_from = offset

    def _take_line(self, line: RolloutLine, offset: int) -> None:
        number = line.number
        if number is not None and number >= self.next_ordinal:
            self.next_ordinal = number + 1
        if self.last_timestamp_ms is None and (stamp := parse_timestamp(line.timestamp)) is not None:
            self.last_timestamp_ms = int(stamp.timestamp() * 1000)
        if line.type == "x_writer":
            self.epoch = max(self.epoch, _count(_payload(line).get("epoch")) or 0)
        elif line.type == "x_memory" and self._spoken_for is None:
            self._take_memory(_payload(line), offset)

    def _take_memory(self, memory: dict[str, Any], offset: int) -> None:
        epoch, upto = _count(memory.get("epoch")), _count(memory.get("upto_offset"))
        ordinal = memory.get("max_ordinal")
        next_ordinal = 0 if ordinal is None else _count(ordinal, plus=1)
        if epoch is None or upto is None or next_ordinal is None:
            return  # not a memory that can be trusted: go on to the one before
        self.epoch = max(self.epoch, epoch)
        self.next_ordinal = max(self.next_ordinal, next_ordinal)
        self._spoken_for = min(upto, offset)

    def is_complete(self, offset: int) -> bool:
        """Whether everything before `offset` is spoken for by an `x_memory`."""
        return self._spoken_for is not None and offset <= self._spoken_for

    def state(self, size: int, head: RolloutHead, source: ByteSource) -> AppendState:
        meta = head.meta.line if head.meta is not None else None
        next_ordinal = max(self.next_ordinal, base_ordinal(meta) if meta is not None else 0)
        mode = meta_text(meta, "history_mode") if meta is not None else None
        return AppendState(
            size=size,
            torn_from=self.torn_from,
            needs_newline=self.needs_newline,
            first_line=_first_line(head.meta, source),
            thread_id=head.thread_id,
            history_mode=mode or "legacy",
            max_ordinal=next_ordinal - 1 if next_ordinal else None,
            epoch=self.epoch,
            last_timestamp_ms=self.last_timestamp_ms,
            examined_from=self.examined_from,
            damaged_lines=self.damaged_lines,
        )


def _first_line(meta: RolloutRecord | None, source: ByteSource) -> bytes:
    if meta is None or meta.offset + meta.size >= HEAD_BYTES_MAX:
        return b""
    return source.read_at(meta.size, meta.offset) + b"\n"


def _payload(line: RolloutLine) -> dict[str, Any]:
    value = line.payload_object()
    return value if isinstance(value, dict) else {}


def _count(value: Any, *, plus: int = 0) -> int | None:
    """A number that counts something, else None."""
    valid = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return value + plus if valid else None
