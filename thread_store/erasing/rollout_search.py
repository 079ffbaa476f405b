"""Looking through one rollout, from its end, for what is to be erased.

Invariant: every byte is looked at: valid lines, damaged ones, the unfinished tail, lines longer than readers
take. Where two records met on one line, only the one that holds it is named. Offsets count decompressed
bytes. Memory is bounded by the longest line that readers take.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from msgspec import Struct

from protocol.errors import InvalidLine
from protocol.line import decode_line
from rollout.lines import BOM, RECORD_BYTES_MAX, Break, LongLine, ReadAt, split_lines_backward
from rollout.source import ByteSource, is_compressed, open_source
from rollout.spool import spool
from rollout.stream import DOCUMENT_HEAD_BYTES, begins_document, decoded_blocks
from thread_store.erasing.erased_line import number_of
from thread_store.erasing.needle import Needle

__all__ = ["BEGIN_BYTES", "TORN", "Hit", "RolloutSearch", "Wanted", "search_rollout"]

BEGIN_BYTES = 256
"""So much of a record is kept: it tells its time, type and number."""

_BLOCK_BYTES = 1 << 20
_WINDOW_BYTES, _OVERLAP_BYTES = 16 << 20, 1 << 20
_RECORD = re.compile(rb'\{"timestamp":"')
_MEMORY = re.compile(rb'\{"timestamp":"[^"\\]{0,40}","type":"x_memory"')


class Hit(Struct, frozen=True, kw_only=True):
    """A stretch that is to be overwritten: a record, or its part of a line."""

    offset: int
    size: int
    sha256: str
    begin: bytes
    line: bytes | None
    """All of it, where it is a line that stays what it is and only loses the needle."""
    ordinal: int | None
    record_type: str | None
    shown: str = ""
    """What a person may see of it."""

    @property
    def end(self) -> int:
        """Where it ends, without its newline."""
        return self.offset + self.size


class RolloutSearch(Struct, kw_only=True):
    """What was found in one file, each list from its start to its end."""

    hits: list[Hit]
    memories: list[Hit]
    """All its `x_memory` records: whatever was made of an erased record is in those behind it."""
    size_bytes: int
    damaged: bool
    """Of a compressed file: bytes are missing, so it can't be written anew."""


TORN = "torn tail"
"""In the place of a type: what was never finished is no record, and nothing takes its place."""

Wanted = Callable[[bytes, int], bool]
"""Whether a line (without its newline), or a part of one, at this offset is to be erased."""


def search_rollout(
    path: str | os.PathLike[str],
    wanted: Wanted,
    *,
    needle: Needle | None = None,
    show: Callable[[bytes], str] | None = None,
    progress: Callable[[int], None] | None = None,
) -> RolloutSearch:
    """Look through a rollout. `needle` is what `wanted` looks for, so that a very long line is looked through
    in pieces; without it none is taken.

    Raises:
        ThreadNotFound, NotARollout (a folder), RolloutUnreadable: the system refuses.
    """
    with _opened(path) as (read_at, segments, damaged):
        head = read_at(DOCUMENT_HEAD_BYTES, 0)
        start = len(BOM) if head.startswith(BOM) else 0
        search = _Search(read_at, wanted, needle, show, bool(begins_document(head[start:])), start)
        for begin, end in reversed(segments):
            for offset, line, ended in split_lines_backward(
                read_at, begin, end, block_bytes=_BLOCK_BYTES, record_bytes_max=RECORD_BYTES_MAX
            ):
                search.take(offset, line, ended=ended)
                if progress is not None and isinstance(line, bytes):
                    progress(len(line) + 1)
    return RolloutSearch(
        hits=search.hits[::-1],
        memories=search.memories[::-1],
        size_bytes=segments[-1][1],
        damaged=damaged,
    )


@contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[tuple[ReadAt, list[tuple[int, int]], bool]]:
    source: ByteSource = open_source(os.fspath(path))
    try:
        if not is_compressed(source.read_at(4, 0)):
            yield source.read_at, [(0, source.size())], False
            return
        filled = spool(os.fspath(path), decoded_blocks(source, _BLOCK_BYTES))
        try:
            damaged = any(each.ended_by is not None for each in filled.segments)
            yield filled.read_at, [(each.start, each.end) for each in filled.segments], damaged
        finally:
            filled.close()
    finally:
        source.close()


class _Search:
    """Takes the lines of a file, last one first."""

    def __init__(
        self,
        read_at: ReadAt,
        wanted: Wanted,
        needle: Needle | None,
        show: Callable[[bytes], str] | None,
        document: bool,
        start: int,
    ) -> None:
        self.hits: list[Hit] = []
        self.memories: list[Hit] = []
        self._read_at = read_at
        self._wanted = wanted
        self._needle = needle
        self._show = show
        self._document = document
        self._start = start

    def take(self, offset: int, line: bytes | LongLine | Break, *, ended: bool) -> None:
        if isinstance(line, LongLine):
            self._take_long(offset, line.size)
        elif isinstance(line, bytes) and line:
            if offset < self._start:  # a byte order mark stays
                line, offset = line[self._start - offset :], self._start
            if _MEMORY.match(line):
                self.memories.append(self._hit(offset, line, "x_memory"))
            if self._wanted(line, offset):
                self._take_wanted(offset, line, ended=ended)

    def _take_wanted(self, offset: int, line: bytes, *, ended: bool) -> None:
        kind = _kind(line)
        if self._document or offset == self._start or kind == "session_meta":
            self.hits.append(self._hit(offset, line, kind, whole=True))
            return
        if kind is None and not ended:
            self.hits.append(self._hit(offset, line, TORN))
            return
        parts = [] if kind is not None else _parts(line)
        held = [each for each in parts if self._wanted(line[each[0] : each[1]], offset + each[0])]
        if len(parts) > 1 and held:
            for begin, end in reversed(held):
                part = line[begin:end]
                self.hits.append(self._hit(offset + begin, part, _kind(part)))
        else:
            self.hits.append(self._hit(offset, line, kind))

    def _hit(self, offset: int, data: bytes, kind: str | None, *, whole: bool = False) -> Hit:
        return Hit(
            offset=offset,
            size=len(data),
            sha256=hashlib.sha256(data).hexdigest(),
            begin=data[:BEGIN_BYTES],
            line=data if whole else None,
            ordinal=number_of(data),
            record_type=kind,
            shown="" if self._show is None else self._show(data),
        )

    def _take_long(self, offset: int, size: int) -> None:
        """A line that no reader takes, in pieces that overlap."""
        if self._needle is None:
            return
        digest, position, found, before = hashlib.sha256(), 0, False, b""
        while position < size:
            piece = self._read_at(min(_WINDOW_BYTES, size - position), offset + position)
            if not piece:
                return  # another program cut it
            digest.update(piece)
            found = found or self._needle.is_in(before + piece)
            before = piece[-_OVERLAP_BYTES:]
            position += len(piece)
        if found:
            begin = self._read_at(BEGIN_BYTES, offset)
            hit = Hit(
                offset=offset,
                size=size,
                sha256=digest.hexdigest(),
                begin=begin,
                line=None,
                ordinal=number_of(begin),
                record_type=None,
            )
            self.hits.append(hit)


def _kind(data: bytes) -> str | None:
    """The type of a record; None if it is none."""
    try:
        return decode_line(data).type or ""
    except InvalidLine:
        return None


def _parts(line: bytes) -> list[tuple[int, int]]:
    """Where the records on one line begin and end: within a string no quote stands behind a bracket so."""
    begins = [each.start() for each in _RECORD.finditer(line)]
    if not begins:
        return []
    begins[0] = 0
    return list(zip(begins, [*begins[1:], len(line)], strict=True))
