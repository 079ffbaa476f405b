"""Forks: a new thread whose history is the beginning of another one (FORMAT.md, Forks).

Invariant: the source is only read, whoever writes it meanwhile, and its end is where its last whole
line ended when the fork was begun. A fork is a new file, whole and on stable storage, or nothing.

`copy` holds all records itself, verbatim but for the metas between the files of a chain. `reference`
holds a meta line that names the bytes it goes on from; so these must be durable first, and must
still be there when it gets its name: both that and the check before a source is deleted hold
the coordination lock.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, NamedTuple

from msgspec import Struct

from protocol.errors import ForkRefused
from protocol.ids import ThreadId
from protocol.meta import HistoryBase
from rollout.live_file import folders_up_to_home
from rollout.paths import ARCHIVED_FOLDER, SESSIONS_FOLDER, RolloutName
from thread_store.chain.borders import Border, resolve_border
from thread_store.chain.fork_point import ForkPoint
from thread_store.chain.lineage import Lineage
from thread_store.chain.segments import Segment
from thread_store.forks.fork_copy import ForkCalls, Progress, copy_range, write_all
from thread_store.forks.fork_meta import MetaOrigin, fork_payload, left_out_line, meta_line, padded_meta_line
from thread_store.forks.new_file import make_file
from thread_store.forks.source_sync import sync_source
from thread_store.home import Home

__all__ = [
    "CopiedPart",
    "Fork",
    "ForkMode",
    "NewReference",
    "base_at",
    "copier",
    "make_fork",
    "make_reference",
]

ForkMode = Literal["copy", "reference"]

_Path = str | os.PathLike[str]


class Fork(Struct, frozen=True, kw_only=True):
    """What was made, and where its history ends."""

    path: str
    thread_id: str
    source_thread_id: str | None
    mode: ForkMode
    border: Border
    """Its place counts the segments of the source's lineage."""
    base: HistoryBase | None = None
    """What a reference rests on."""
    copied_bytes: int = 0


def make_fork(
    source_path: _Path,
    target_path: _Path,
    *,
    thread_id: str,
    home: Home,
    point: ForkPoint | None = None,
    mode: ForkMode = "copy",
    meta_changes: Mapping[str, Any] | None = None,
    partial: bool = False,
    coordination: AbstractContextManager[object] | None = None,
    synced: Container[str] = (),
    progress: Progress | None = None,
    calls: ForkCalls | None = None,
) -> Fork:
    """Make a thread of the history of another one up to a point (by default its end).

    Blocks. Needs no lock of the source. `thread_id` is the new one; `meta_changes` are keys of its
    meta (None takes one away). A reference child is copied with its whole chain; where that is
    broken, `partial` copies what can be read. A reference needs a paginated source in the same
    home, and `coordination` is held while it gets its name. `synced`: the files that their writers have
    brought to stable storage already; what a reference rests on besides is synced here. On return the
    fork, its name and what it rests on are on stable storage.

    Raises:
        ThreadNotFound, NotARollout, RolloutUnreadable: the source can't be read, or is of an older format.
        ForkPointInvalid: there is no such point.
        ForkRefused: a reference to a legacy, broken or foreign source; or the chain is broken.
        ItemNotEncodable: its meta can't be written (`meta_changes`, or an unknown history mode).
        RolloutExists: something stands at the target.
        RolloutWriteError: the system refuses; nothing was made.
    """
    calls = calls or ForkCalls()
    new_id = ThreadId.parse(thread_id)
    target = os.path.abspath(os.fspath(target_path))
    _require_own_name(target, new_id)
    with Lineage.resolve(source_path, home) as lineage:
        _require_whole(lineage, mode=mode, partial=partial)
        border = resolve_border(point or ForkPoint.end(), lineage)
        with lineage.open(lineage.end.segment) as file:
            origin = MetaOrigin(file)
        base = base_at(border, lineage, home) if mode == "reference" else None
        payload = fork_payload(
            origin, thread_id=new_id, end_ordinal=border.end_ordinal, base=base, changes=meta_changes or {}
        )
        copied = 0
        if base is not None:
            reference = NewReference(target, payload, base, border, lineage, home)
            make_reference(reference, calls=calls, coordination=coordination, synced=synced)
        else:
            header = padded_meta_line(payload, 0 if origin.numbered else None)
            copied = _make_copy(target, header, lineage, border, calls=calls, progress=progress)
    return Fork(
        path=target,
        thread_id=new_id,
        source_thread_id=origin.thread_id,
        mode=mode,
        border=border,
        base=base,
        copied_bytes=copied,
    )


def _require_own_name(target: str, thread_id: ThreadId) -> None:
    name = RolloutName.match(os.path.basename(target))
    if name is not None and name.thread_id != thread_id:
        raise ForkRefused(path=target, reason=f"the file's name is not of the thread {thread_id}")


def _require_whole(lineage: Lineage, *, mode: ForkMode, partial: bool) -> None:
    problem, damage = lineage.problem, lineage.own.damage
    if (problem is None and damage is None) or (partial and mode == "copy"):
        return
    reason = f"the beginning of its history can't be read ({problem.message})" if problem else str(damage)
    hint = "Mend that first, or copy what can be read (partial)"
    raise ForkRefused(path=lineage.own.path, reason=reason, hint=hint)


# Copies


class CopiedPart(NamedTuple):
    """The bytes of one file of a lineage that go into a copy."""

    segment: int
    start: int
    end: int


def _parts(lineage: Lineage, border: Border) -> list[CopiedPart]:
    """What is copied. Of the oldest file everything, its meta included; of the others what follows their
    metas: a meta in the midst of a history makes Codex forget what stands before it. An `x_erased` takes its
    place, so that no ordinal is missing."""
    parts = []
    for index, segment in enumerate(lineage.segments[: border.place.segment + 1]):
        end = border.offset if index == border.place.segment else segment.end
        parts.append(CopiedPart(index, segment.meta_end if index else segment.start, end))
    return parts


def _make_copy(
    target: str,
    header: bytes,
    lineage: Lineage,
    border: Border,
    *,
    calls: ForkCalls,
    progress: Progress | None,
) -> int:
    """Write the header, then the parts; returns how many bytes these have."""
    parts = _parts(lineage, border)
    make_file(target, copier(header, lineage, parts, calls=calls, progress=progress), calls=calls)
    return sum(part.end - part.start for part in parts)


def copier(
    header: bytes,
    lineage: Lineage,
    parts: Sequence[CopiedPart],
    *,
    calls: ForkCalls,
    progress: Progress | None = None,
) -> Callable[[int], None]:
    """What fills a new file with a header and parts of the files of a lineage. It raises OSError."""
    total, done = sum(part.end - part.start for part in parts), 0

    def report(size: int) -> None:
        nonlocal done
        done += size
        if progress is not None:
            progress(done, total)

    def fill(descriptor: int) -> None:
        write_all(calls, descriptor, header)
        for part in parts:
            with lineage.open(part.segment) as file:
                if part.segment and part.end > part.start:
                    write_all(calls, descriptor, left_out_line(file))
                copy_range(file, part.start, part.end, descriptor, calls=calls, progress=report)

    return fill


# References


class NewReference(NamedTuple):
    """A rollout that is to be made: where, its meta, and what it goes on from."""

    target: str
    payload: Mapping[str, Any]
    base: HistoryBase
    border: Border
    lineage: Lineage
    home: Home


def base_at(border: Border, lineage: Lineage, home: Home) -> HistoryBase:
    """The `history_base` of a rollout that goes on from a border. Nothing is made or synced.

    Raises:
        ForkRefused: the file of the border can't be referred to.
    """
    segment = lineage.segments[border.place.segment]
    reason = _why_no_base(segment, home)
    if reason is not None or segment.rollout_id is None or border.end_ordinal is None:
        raise ForkRefused(
            path=segment.path,
            reason=f"nothing can refer to it: {reason or 'its records have no ordinals'}",
            hint="Copy it (mode='copy')",
        )
    with lineage.open(border.place.segment) as file:
        digest = hashlib.sha256(file.last_line(border.offset)).hexdigest()
    return HistoryBase(segment.rollout_id, border.end_ordinal, border.offset, digest)


def _why_no_base(segment: Segment, home: Home) -> str | None:
    if not segment.paginated:
        return "it is a legacy rollout"
    if segment.rollout_id is None or not _lies_in(home, segment.path):
        return f"it is not found in {home.path} by its id"
    return None


def _lies_in(home: Home, path: str) -> bool:
    folders = [os.path.join(home.path, name, "") for name in (SESSIONS_FOLDER, ARCHIVED_FOLDER)]
    return os.path.realpath(path).startswith(tuple(folders))


def make_reference(
    reference: NewReference,
    *,
    calls: ForkCalls,
    coordination: AbstractContextManager[object] | None,
    synced: Container[str] = (),
) -> None:
    """Make a rollout that goes on from a border of another one, which is synced first, if it isn't yet.

    Raises:
        ForkRefused: its place is in another home than its base, where nobody would find that.
        ThreadNotFound, RolloutReplaced: the base was moved or replaced meanwhile.
        RolloutExists, RolloutWriteError: as `make_file`.
    """
    target, payload, base, border, lineage, home = reference
    if not _lies_in(home, target):
        raise ForkRefused(path=target, reason=f"a reference must lie in the home of its base, {home.path}")
    segment = lineage.segments[border.place.segment]
    line = meta_line(payload, base.end_ordinal_exclusive)

    def fill(descriptor: int) -> None:
        if segment.path not in synced:
            with lineage.open(border.place.segment) as file:
                sync_source(file, calls)
        for folder in folders_up_to_home(segment.path):
            calls.sync_folder(folder)
        write_all(calls, descriptor, line)

    make_file(target, fill, calls=calls, guard=coordination, check=lambda: segment.open().close())
