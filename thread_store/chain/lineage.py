"""The lineage of a rollout: the files whose beginnings are its history, and itself (FORMAT.md, Forks).

Invariant: only verified segments are in it (`thread_store.chain.segments`). Reading never fails over a
base: where the chain is broken, what is younger still reads, and `problem` says what is wrong.
Borders are fixed when the lineage is resolved; what is appended later to any of the files
changes nothing.

Files are opened one at a time, when they are read: a chain may be longer than a process may have
descriptors.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from types import TracebackType
from typing import NamedTuple, Self

from rollout.record import RolloutRecord
from thread_store.chain.open_rollout import OpenRollout
from thread_store.chain.rollout_files import RolloutFiles
from thread_store.chain.segments import BaseProblem, KeptOpen, Segment, base_of, resolve_base, segment_of
from thread_store.home import Home

__all__ = ["BaseProblem", "Lineage", "LineageRecord", "Place", "read_lineage"]


class Place(NamedTuple):
    """A border in a lineage: which segment, and how many bytes of its file. Places sort as history does."""

    segment: int
    offset: int


class LineageRecord(NamedTuple):
    """A record and the segment that it stands in; offsets are those of the segment's file."""

    segment: int
    record: RolloutRecord

    @property
    def place(self) -> Place:
        """The border before it."""
        return Place(self.segment, self.record.offset)

    @property
    def end(self) -> Place:
        """The border behind it."""
        return Place(self.segment, self.record.offset + self.record.size + 1)


class Lineage:
    """The segments of one thread's history, oldest first; the last one is the rollout itself.

    `problem` is None if they are all there is, else it says why the rest can't be read. Compressed
    files stay open, decompressed, until it is closed; use it as a context manager.
    """

    def __init__(
        self, segments: tuple[Segment, ...], problem: BaseProblem | None, kept: KeptOpen | None = None
    ) -> None:
        self.segments = segments
        self.problem = problem
        self._kept = kept or KeptOpen()

    @classmethod
    def resolve(cls, path: str | os.PathLike[str], home: Home) -> Self:
        """Follow and verify the chain of bases from a rollout to its oldest file.

        Raises:
            ThreadNotFound, NotARollout, RolloutUnreadable: the rollout itself can't be read.
        """
        kept = KeptOpen()
        try:
            return cls(*_resolve(path, RolloutFiles(home), kept), kept)
        except BaseException:
            kept.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of what was decompressed. It can still be read, and is then decompressed again."""
        self._kept.close()

    def open(self, index: int) -> AbstractContextManager[OpenRollout]:
        """The file of a segment, for as long as the block runs.

        Raises:
            ThreadNotFound, RolloutReplaced: it is no longer at its place.
        """
        return self._kept.open(self.segments[index])

    @property
    def own(self) -> Segment:
        """The youngest segment: the rollout that was asked for."""
        return self.segments[-1]

    @property
    def end(self) -> Place:
        """The border behind the last whole line."""
        return Place(len(self.segments) - 1, self.own.end)

    @property
    def start(self) -> Place:
        """The border behind the meta of the oldest segment: nothing was recorded yet."""
        return Place(0, self.segments[0].meta_end)

    def normalize(self, place: Place) -> Place:
        """The same border, in the oldest file that has it: the start of a file is the end of its base."""
        index, offset = place
        while index > 0 and offset <= self.segments[index].meta_end:
            index -= 1
            offset = self.segments[index].end
        return max(Place(index, offset), self.start)

    def forward(self, start: Place | None = None, end: Place | None = None) -> Iterator[LineageRecord]:
        """The records between two borders, oldest first; the metas of the segments are left out.

        Without `end` an unfinished last line comes too.
        """
        start = start or Place(0, 0)
        for index in range(start.segment, len(self.segments) if end is None else end.segment + 1):
            segment = self.segments[index]
            begin = max(start.offset if index == start.segment else 0, segment.start)
            until = end.offset if end is not None and index == end.segment else segment.end
            if end is None and index == len(self.segments) - 1:
                until = segment.size
            with self.open(index) as file:
                for record in file.forward(begin, until):
                    if record.offset != segment.meta_offset:
                        yield LineageRecord(index, record)

    def backward(self, end: Place | None = None) -> Iterator[LineageRecord]:
        """The records before a border (by default the end), newest first, likewise without the metas."""
        end = end or self.end
        for index in range(end.segment, -1, -1):
            segment = self.segments[index]
            with self.open(index) as file:
                until = end.offset if index == end.segment else segment.end
                for record in file.backward(segment.start, until):
                    if record.offset != segment.meta_offset:
                        yield LineageRecord(index, record)


def read_lineage(path: str | os.PathLike[str], home: Home) -> Iterator[LineageRecord]:
    """One thread as one history: its own meta, then the records of the whole chain, oldest first.

    The metas of the older files are left out, those that a copy brought along are history and
    stay. Of a broken chain comes what can be read; `Lineage.resolve` tells what is wrong. Files that
    are moved meanwhile end the reading with an error.

    Raises:
        ThreadNotFound, NotARollout, RolloutUnreadable: the rollout itself can't be read.
    """
    with Lineage.resolve(path, home) as lineage:
        index = lineage.end.segment
        with lineage.open(index) as file:
            meta = file.meta_record
        yield LineageRecord(index, meta)
        yield from lineage.forward()


def _resolve(
    path: str | os.PathLike[str], files: RolloutFiles, kept: KeptOpen
) -> tuple[tuple[Segment, ...], BaseProblem | None]:
    with kept.borrow(OpenRollout(path)) as own:
        segments = [segment_of(own, own.end)]
        base, problem = base_of(own)
    seen = {own.identity}
    while base is not None and problem is None:
        segment, base, problem = resolve_base(base, files, seen, kept)
        if segment is not None:
            segments.append(segment)
    return tuple(reversed(segments)), problem
