"""Segments: the parts of files that a history is made of, and whether a base is what its child means.

Invariant: a segment's bytes were verified when it was made: the file is in the home, its border is
one, the ordinals before it agree, and so does the hash where one is given. What is wrong with a
base is a value, never an exception.
"""

from __future__ import annotations

import hashlib
import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

from msgspec import Struct

from protocol.errors import InvalidLine, ItemNotEncodable, NotARollout, RolloutError, RolloutReplaced
from protocol.line import decode_line
from protocol.meta import HistoryBase
from protocol.own import ErasedItem
from thread_store.chain.open_rollout import OpenRollout
from thread_store.chain.rollout_files import RolloutFiles

__all__ = ["BaseProblem", "KeptOpen", "Segment", "base_of", "resolve_base", "segment_of"]

_ERASED_BEGIN_BYTES = 80
"""Within these an erased line says what it is."""

_WAS_DIGITS_MIN = 16


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


class KeptOpen:
    """Compressed files that stay open: decompressing one again costs more than anything else."""

    def __init__(self) -> None:
        self._files: dict[tuple[int, int], OpenRollout] = {}
        weakref.finalize(self, _close, self._files)

    @contextmanager
    def borrow(self, file: OpenRollout) -> Iterator[OpenRollout]:
        """Closed behind the block, unless it is kept."""
        if not file.compressed:
            with file:
                yield file
            return
        kept = self._files.setdefault(file.identity, file)
        if kept is not file:
            file.close()
        yield kept

    @contextmanager
    def open(self, segment: Segment) -> Iterator[OpenRollout]:
        """The file of a segment: the one that is kept, or opened anew.

        Raises:
            ThreadNotFound, RolloutReplaced: it is no longer at its place.
        """
        kept = self._files.get(segment.identity)
        if kept is not None:
            yield kept
            return
        with self.borrow(segment.open()) as file:
            yield file

    def close(self) -> None:
        """Let go of all of them."""
        _close(self._files)


def _close(files: dict[tuple[int, int], OpenRollout]) -> None:
    while files:
        files.popitem()[1].close()


def segment_of(file: OpenRollout, end: int) -> Segment:
    """The part of a file up to a border.

    Raises:
        NotARollout: not even its meta lies before that.
    """
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


def base_of(file: OpenRollout) -> tuple[HistoryBase | None, BaseProblem | None]:
    """What the history of a file rests on, if anything."""
    base = file.meta.history_base
    payload = file.meta_line.payload_object()
    if base is None and isinstance(payload, dict) and payload.get("history_base") is not None:
        return None, BaseProblem(
            "malformed", f"the history_base of {file.path} can't be read", None, file.path
        )
    return base, None


def resolve_base(
    base: HistoryBase,
    files: RolloutFiles,
    seen: set[tuple[int, int]],
    kept: KeptOpen,
) -> tuple[Segment | None, HistoryBase | None, BaseProblem | None]:
    """The segment that a base names, and what that one rests on; or what is wrong. `seen`: files so far."""
    path: str | None = None
    try:
        found = files.find(base.thread_id)
        if found is None:
            message = f"the rollout {base.thread_id} is not in {files.home.path}"
            return None, None, BaseProblem("missing", message, base.thread_id)
        path = os.fspath(found)
        with kept.borrow(OpenRollout(path)) as file:
            if file.identity in seen:
                message = f"{path} rests on itself"
                return None, None, BaseProblem("cycle", message, base.thread_id, path)
            seen.add(file.identity)
            problem = _check_base(file, base)
            if problem is not None:
                return None, None, BaseProblem(*problem, base.thread_id, path)
            older, problem_before = base_of(file)
            if base.end_byte_offset < file.meta_end:
                return None, older, problem_before  # the very start of a file: its base is ours
            return segment_of(file, base.end_byte_offset), older, problem_before
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
    if expected is not None and not _is_line(file.last_line(offset), expected):
        return "hash_differs", f"{named}: the line before it is not the one that the history was taken up to"
    return None


def _is_line(line: bytes, expected: str) -> bool:
    """Whether a line has this sha256, or had it before it was erased (FORMAT.md, Erasing)."""
    if hashlib.sha256(line).hexdigest() == expected:
        return True
    if b'"x_erased"' not in line[:_ERASED_BEGIN_BYTES]:
        return False
    try:
        erased = decode_line(line).item()
    except (InvalidLine, ItemNotEncodable):
        return False
    was = erased.was if isinstance(erased, ErasedItem) else None
    return was is not None and len(was) >= _WAS_DIGITS_MIN and expected.startswith(was)
