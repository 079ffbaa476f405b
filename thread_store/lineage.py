"""The lineage of a rollout: the files whose beginnings are its history, and itself (FORMAT.md, Forks).

Invariant: a segment is only in it if its bytes were verified: the file is in the home, the border
that its child names is one, the ordinals before it agree, and so does the hash where one is
given. Reading never fails over a base: where the chain is broken, what is younger still reads, and
`problem` says what is wrong. Borders are fixed when the lineage is resolved; what is appended
later to any of the files changes nothing.

Files are opened one at a time, when they are read: a chain may be longer than a process may have
descriptors.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from typing import NamedTuple, Self

from msgspec import Struct

from protocol.errors import NotARollout, RolloutError, RolloutReplaced
from protocol.ids import ThreadId
from protocol.meta import HistoryBase
from rollout.record import RolloutRecord
from thread_store.home import Home, StoredRollout
from thread_store.open_rollout import OpenRollout

__all__ = ["BaseProblem", "Lineage", "LineageRecord", "Place", "RolloutFiles", "Segment", "read_lineage"]


class BaseProblem(Struct, frozen=True):
    """Why the history before the oldest segment can't be read.

    `code` is one of `malformed`, `missing`, `unreadable`, `legacy`, `damaged`, `offset_outside`,
    `offset_inside_line`, `ordinal_differs`, `hash_differs`, `cycle`.
    """

    code: str
    message: str
    rollout_id: str | None = None
    """The base's, as the file that refers to it names it."""
    path: str | None = None
    """Where the base is; None if it was not found."""


class Place(NamedTuple):
    """A border in a lineage: which segment, and how many bytes of its file. Places sort as history does."""

    segment: int
    offset: int


class Segment(Struct, frozen=True, kw_only=True):
    """The part of one file that counts: its bytes up to `end`, where the next segment goes on."""

    path: str
    rollout_id: str | None
    thread_id: str | None
    start: int
    """Where its first line begins: behind a byte order mark, if there is one."""
    end: int
    """The border: the byte behind its last whole line that counts."""
    size: int
    """Of the decompressed file; an unfinished tail stands behind `end` of the youngest segment."""
    meta_offset: int
    meta_end: int
    first_ordinal: int | None
    paginated: bool
    damage: str | None
    """What is broken in a compressed file; bytes are missing there."""
    identity: tuple[int, int]

    def open(self) -> OpenRollout:
        """Open its file again.

        Raises:
            ThreadNotFound: it was moved or deleted since.
            RolloutReplaced: another file took its place.
        """
        file = OpenRollout(self.path)
        if file.identity != self.identity:
            file.close()
            raise RolloutReplaced(path=self.path, reason="it was replaced while its lineage was read")
        return file


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


class RolloutFiles:
    """The rollout files of a home by rollout id, looked up once. A live file before an archived one."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self._by_id: dict[ThreadId, StoredRollout] | None = None

    def find(self, rollout_id: str) -> StoredRollout | None:
        """The file of that id; None if the home has none."""
        if self._by_id is None:
            self._by_id = {}
            for found in self.home.rollouts():
                self._by_id.setdefault(found.name.rollout_id or found.name.thread_id, found)
        return self._by_id.get(rollout_id.lower())  # type: ignore[call-overload, no-any-return]


class Lineage:
    """The segments of one thread's history, oldest first; the last one is the rollout itself.

    `problem` is None if they are all there is, else it says why the rest can't be read.
    """

    def __init__(self, segments: tuple[Segment, ...], problem: BaseProblem | None) -> None:
        self.segments = segments
        self.problem = problem

    @classmethod
    def resolve(cls, path: str | os.PathLike[str], home: Home) -> Self:
        """Follow and verify the chain of bases from a rollout to its oldest file.

        Raises:
            ThreadNotFound, NotARollout, RolloutUnreadable: the rollout itself can't be read.
        """
        files = RolloutFiles(home)
        with OpenRollout(path) as own:
            segments = [_segment(own, own.end)]
            base, problem = _base_of(own)
        seen = {own.identity}
        while base is not None and problem is None:
            segment, base, problem = _resolve_base(base, files, seen)
            if segment is not None:
                segments.append(segment)
        return cls(tuple(reversed(segments)), problem)

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
            begin = start.offset if index == start.segment else 0
            until = end.offset if end is not None and index == end.segment else segment.end
            if end is None and index == len(self.segments) - 1:
                until = segment.size
            with segment.open() as file:
                for record in file.forward(begin, until):
                    if record.offset != segment.meta_offset:
                        yield LineageRecord(index, record)

    def backward(self, end: Place | None = None) -> Iterator[LineageRecord]:
        """The records before a border (by default the end), newest first, likewise without the metas."""
        end = end or self.end
        for index in range(end.segment, -1, -1):
            segment = self.segments[index]
            with segment.open() as file:
                for record in file.backward(0, end.offset if index == end.segment else segment.end):
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
    lineage = Lineage.resolve(path, home)
    with lineage.own.open() as file:
        meta = file.meta_record
    yield LineageRecord(len(lineage.segments) - 1, meta)
    yield from lineage.forward()


def _segment(file: OpenRollout, end: int) -> Segment:
    if end < file.meta_end:
        raise NotARollout(path=file.path, reason="its first line is not finished")
    return Segment(
        path=file.path,
        rollout_id=file.rollout_id,
        thread_id=file.thread_id,
        start=file.start,
        end=end,
        size=file.size,
        meta_offset=file.meta_record.offset,
        meta_end=file.meta_end,
        first_ordinal=file.meta_line.ordinal,
        paginated=file.paginated,
        damage=file.damage,
        identity=file.identity,
    )


def _base_of(file: OpenRollout) -> tuple[HistoryBase | None, BaseProblem | None]:
    """What the history of a file rests on, if anything."""
    base = file.meta.history_base
    payload = file.meta_line.payload_object()
    if base is None and isinstance(payload, dict) and payload.get("history_base") is not None:
        return None, BaseProblem(
            "malformed", f"the history_base of {file.path} can't be read", None, file.path
        )
    return base, None


def _resolve_base(
    base: HistoryBase, files: RolloutFiles, seen: set[tuple[int, int]]
) -> tuple[Segment | None, HistoryBase | None, BaseProblem | None]:
    """The segment that a base names, and what that one rests on; or what is wrong."""
    found = files.find(base.thread_id)
    if found is None:
        message = f"the rollout {base.thread_id} is not in {files.home.path}"
        return None, None, BaseProblem("missing", message, base.thread_id)
    path = os.fspath(found.path)
    try:
        with OpenRollout(path) as file:
            if file.identity in seen:
                message = f"{path} rests on itself"
                return None, None, BaseProblem("cycle", message, base.thread_id, path)
            seen.add(file.identity)
            problem = _check_base(file, base)
            if problem is not None:
                return None, None, BaseProblem(*problem, base.thread_id, path)
            older, problem_before = _base_of(file)
            if base.end_byte_offset < file.meta_end:
                return None, older, problem_before  # the very start of a file: its base is ours
            return _segment(file, base.end_byte_offset), older, problem_before
    except RolloutError as error:
        return None, None, BaseProblem("unreadable", str(error), base.thread_id, path)


def _check_base(file: OpenRollout, base: HistoryBase) -> tuple[str, str] | None:
    """A code and a sentence if the bytes are not those that the base means."""
    offset = base.end_byte_offset
    named = f"{file.path} at byte {offset:,}"
    if not file.paginated:
        return "legacy", f"{file.path} is a legacy rollout, whose records have no numbers"
    if file.damage is not None:
        return "damaged", f"{file.path} is damaged: {file.damage}"
    if not 0 <= offset <= file.size:
        return "offset_outside", f"{named} lies outside its {file.size:,} bytes"
    if not file.is_border(offset):
        return "offset_inside_line", f"{named} is inside a line"
    ordinal = file.next_ordinal(offset) if offset >= file.meta_end else file.meta_line.ordinal
    if ordinal != base.end_ordinal_exclusive:
        return "ordinal_differs", f"{named} stands before ordinal {ordinal}, not {base.end_ordinal_exclusive}"
    expected = base.x_base_sha256
    if expected is not None and hashlib.sha256(file.last_line(offset)).hexdigest() != expected:
        return "hash_differs", f"{named}: the line before it is not the one that the history was taken up to"
    return None
