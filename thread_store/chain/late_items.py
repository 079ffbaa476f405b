"""Items that came too late: accepted by a writer that had lost its lock, and set aside for the file it had.

Invariant: the thread left that file behind, so nothing may be appended there any more; they belong
behind its current rollout, each that its history lacks once. Of the late bytes that the old writer still got
into its file none is part of the thread: items among them are lacking too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from protocol.errors import NotARollout, ThreadNotFound
from rollout.kept import UNWRITTEN, find_home, find_kept
from rollout.paths import RolloutName
from rollout.record import RolloutRecord
from rollout.replay import LateItems
from thread_store.chain.lineage import Lineage, Place
from thread_store.chain.taken import TakenRollout, find_taken
from thread_store.errors import NotCurrentRollout
from thread_store.home import Home

__all__ = ["find_late_items", "find_replayable", "is_current"]

_Path = str | os.PathLike[str]


def find_replayable(path: _Path, *, spill_folders: Sequence[_Path] | None = None) -> list[LateItems]:
    """What `repair_rollout` asks for as `find_late`: the late items of a thread, for its current rollout.

    For an older one that was only reverted from there are none: it may be repaired by itself.

    Raises:
        NotCurrentRollout: its thread was taken over, and goes on in another file.
        RolloutUnreadable: a folder can't be listed, or the current rollout can't be read.
    """
    found = _find_current(path)
    if found is None:
        return []
    current, home, thread_id = found
    try:
        lineage = Lineage.resolve(current, home)
    except (NotARollout, ThreadNotFound):
        return []  # without a header it rests on nothing
    if _is_same(path, current):
        return find_late_items(lineage, home, spill_folders=spill_folders)
    if any(_is_same(path, taken.path) for taken in find_taken(lineage, home)):
        raise NotCurrentRollout(path=path, thread_id=thread_id, current_path=current)
    return []


def find_late_items(
    lineage: Lineage, home: Home, *, spill_folders: Sequence[_Path] | None = None
) -> list[LateItems]:
    """The late items that a history lacks, or may lack, in the order of the rollouts that were left.

    Raises:
        RolloutUnreadable: a folder of kept files is there and can't be listed.
    """
    return [
        LateItems(kept.path, partial(_records_since, lineage, taken))
        for taken in find_taken(lineage, home)
        if taken.thread_id == lineage.own.thread_id
        for kept in find_kept(taken.path, spill_folders=spill_folders)
        if kept.kind == UNWRITTEN
    ]


def _records_since(lineage: Lineage, taken: TakenRollout, offset: int) -> Iterator[RolloutRecord]:
    """The history before the newest rollout, from an offset in the one that was left on."""
    start = Place(taken.border.segment, min(offset, taken.border.offset))
    newest = len(lineage.segments) - 1
    for each in lineage.forward(start, Place(newest - 1, lineage.segments[newest - 1].end)):
        yield each.record


def is_current(path: _Path) -> bool:
    """Whether a thread goes on in this file. Looks through the names of the whole home."""
    found = _find_current(path)
    return found is not None and _is_same(path, found.path)


class _Current(NamedTuple):
    path: str
    home: Home
    thread_id: str


def _find_current(path: _Path) -> _Current | None:
    """Where the thread of a rollout goes on; None if the file is by itself."""
    folder, name = find_home(path), RolloutName.match(os.path.basename(os.fspath(path)))
    if folder is None or name is None:
        return None
    home = Home(folder)
    try:
        return _Current(os.fspath(home.find_thread(name.thread_id)), home, name.thread_id)
    except ThreadNotFound:
        return None


def _is_same(path: _Path, other: str) -> bool:
    """Whether both lead to one file; one that isn't there is none."""
    try:
        return os.path.samefile(path, other)
    except FileNotFoundError:
        return False
