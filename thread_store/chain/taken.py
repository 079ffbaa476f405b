"""Rollouts that were left to a writer which had lost its lock by force (FORMAT.md, Forks).

Invariant: each that the history of a thread leads back to by take-overs is found once, the oldest first;
also one that is no part of that history because nothing had been recorded in it. `thread_id` tells those
of the thread itself from those of the threads that it was forked from. One that can't be read hides
none but those before it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import NamedTuple

from protocol.errors import RolloutError
from protocol.meta import SessionMeta
from thread_store.chain.lineage import Lineage, Place
from thread_store.chain.open_rollout import OpenRollout
from thread_store.chain.rollout_files import RolloutFiles
from thread_store.home import Home

__all__ = ["TakenRollout", "find_taken"]

_log = logging.getLogger("thread_store.chain.taken")


class TakenRollout(NamedTuple):
    """A file that was left to its old writer."""

    path: str
    thread_id: str | None
    end: int
    """What stands behind this byte came too late and is no part of the thread."""
    size: int
    border: Place
    """Where the thread left it. In a file that is no part of the history: where the next one begins."""


def find_taken(lineage: Lineage, home: Home) -> Iterator[TakenRollout]:
    """The rollouts that were left behind by the take-overs in a history.

    What rests on a base that can't be read is not asked: nobody knows what of it is in the thread.
    """
    files = RolloutFiles(home)
    for index, segment in enumerate(lineage.segments[1:], 1):
        with lineage.open(index) as file:
            meta = file.meta
        yield from reversed(list(_left_before(index, segment.thread_id, meta, lineage, files)))


def _left_before(
    index: int, thread_id: str | None, meta: SessionMeta, lineage: Lineage, files: RolloutFiles
) -> Iterator[TakenRollout]:
    """What was left when a segment was begun, and before that, back to the segment that it rests on."""
    base = lineage.segments[index - 1]
    seen = set()
    while (rollout_id := _taken_id(meta)) is not None and rollout_id not in seen:
        if rollout_id == base.rollout_id:
            yield TakenRollout(base.path, base.thread_id, base.end, base.size, Place(index - 1, base.end))
            return
        seen.add(rollout_id)
        found = _open(rollout_id, thread_id, files)
        if found is None:
            return
        with found as file:
            yield TakenRollout(file.path, thread_id, file.meta_end, file.size, Place(index, 0))
            meta = file.meta


def _taken_id(meta: SessionMeta) -> str | None:
    """Which rollout was taken over; without a word on it, the one that the meta's rests on."""
    if meta.x_takeover is None or meta.history_base is None:
        return None
    named = meta.x_takeover.get("rollout") if isinstance(meta.x_takeover, dict) else None
    return named if isinstance(named, str) else meta.history_base.thread_id


def _open(rollout_id: str, thread_id: str | None, files: RolloutFiles) -> OpenRollout | None:
    """A rollout of that thread; None if there is none of the id, or it can't be read."""
    try:
        path = files.find(rollout_id)
        file = None if path is None else OpenRollout(path)
    except RolloutError as error:
        _log.warning("the rollout %s, which was left to its writer, can't be read: %s", rollout_id, error)
        return None
    if file is not None and file.thread_id != thread_id:
        file.close()
        return None
    return file
