"""The writers of a home, as they are seen from outside.

Invariant: looking takes no lock away from anybody, and what can't be known from outside (what waits in
a writer's queue) is left open. What a thread holds is read from its file's end.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from protocol.errors import RolloutError
from rollout.scanner import ReverseJsonlScanner
from thread_store.cli.short_ids import ShortIds
from thread_store.home import Home
from thread_store.locks import LockState, SeenLock, ThreadLocks

__all__ = ["SeenWriter", "see_writers", "writer_object"]

_LOOKED_AT_MAX = 200
"""So many records without an ordinal may stand behind the newest one that has one."""


class SeenWriter(NamedTuple):
    """A lock, and the newest item of its thread as far as there is one."""

    lock: SeenLock
    short_id: str
    """Names the thread among those of the home."""
    last_ordinal: int | None = None
    last_timestamp: str | None = None


def see_writers(home: Home) -> list[SeenWriter]:
    """Who holds which thread of the home, and the locks that dead writers left; the oldest thread first.

    Raises:
        RolloutUnreadable: the home can't be listed.
    """
    locks = sorted(ThreadLocks(home.path).holders())
    if not locks:
        return []
    rollouts = home.current_rollouts()
    short = ShortIds([*rollouts, *(lock.thread_id for lock in locks)])
    return [
        SeenWriter(lock, short(lock.thread_id), *_newest_item(rollouts[lock.thread_id].path))
        if lock.thread_id in rollouts
        else SeenWriter(lock, short(lock.thread_id))
        for lock in locks
    ]


def _newest_item(path: Path) -> tuple[int | None, str | None]:
    """The newest ordinal, and when the newest record was written."""
    written: str | None = None
    try:
        with ReverseJsonlScanner(path) as records:
            for record in islice(records, _LOOKED_AT_MAX):
                if record.line is None:
                    continue
                written = written or record.line.timestamp
                if record.line.number is not None:
                    return record.line.number, written
    except RolloutError:
        return None, written  # it is being moved, or can't be read: its holder is known all the same
    return None, written


_ALIVE = {LockState.LIVE: True, LockState.STALE: False, LockState.UNKNOWN: None}


def writer_object(seen: SeenWriter) -> dict[str, Any]:
    """The members of `{"kind":"writer"}`."""
    lock = seen.lock
    return {
        "thread": lock.thread_id,
        "pid": lock.writer.pid,
        "alive": _ALIVE[lock.state],
        "host": lock.writer.host,
        "since": lock.writer.since,
        "last_ordinal": seen.last_ordinal,
        "last_ts": seen.last_timestamp,
        "queued": None,
        "lease": None if lock.holder is None else lock.holder.lease,
        "command": lock.writer.command,
        "state": str(lock.state),
    }
