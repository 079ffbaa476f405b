"""Compressing the rollouts of cold threads, and expanding them again.

Invariant: the records of a thread are the same before and after, and their offsets too: those count
decompressed bytes. A rollout is compressed only while nobody writes its thread and after a time without a
change, and it is expanded before anything is appended. Each file goes by `successor`: checked, then replaced.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from thread_store.home import StoredRollout
from thread_store.upkeep.calls import UpkeepCalls
from thread_store.upkeep.successor import make_successor
from thread_store.upkeep.thread_files import ThreadFiles
from thread_store.upkeep.threads import Place, held_thread
from thread_store.upkeep.twins import drop_twin, twin_of

__all__ = ["COLD_SECONDS", "Compressed", "compress_thread", "expand_rollout", "expand_thread", "is_cold"]

_log = logging.getLogger("thread_store.upkeep")

COLD_SECONDS = 7 * 86_400.0
"""A rollout that was changed later is left as it is; as long as Codex waits."""

Progress = Callable[[int], None]


class Compressed(Struct, frozen=True, kw_only=True):
    """What became of a thread's files. `paths`: those that were made; none if there was nothing to do."""

    thread_id: str
    paths: tuple[str, ...]
    bytes_before: int
    """Of the files that were replaced, as they lay on the disk."""
    bytes_after: int
    too_young: int = 0
    """Rollouts that were changed too lately."""


def is_cold(found: StoredRollout, older_than_seconds: float, *, now: float | None = None) -> bool:
    """Whether nothing was changed for so long, by the file's mtime."""
    changed = found.path.stat().st_mtime
    return (time.time() if now is None else now) - changed >= older_than_seconds


def compress_thread(
    place: Place,
    thread_id: str,
    *,
    older_than_seconds: float = COLD_SECONDS,
    level: int | None = None,
    known: ThreadFiles | None = None,
    progress: Progress | None = None,
) -> Compressed:
    """Compress all rollouts of a thread that are cold, where they lie: live or archived. Blocks.

    On return they are on stable storage. Owner, mode and mtime stay. Forks that rest on them read on.

    Raises:
        InvalidThreadId, ThreadNotFound: there is no such thread.
        ActiveWriter: somebody writes it.
        RolloutReplaced, RolloutWriteError, RolloutUnreadable, LocksBusy: the system refuses, or another
            program interferes; each file is as it was, or compressed.
    """
    with held_thread(place, thread_id, known) as held:
        plain = [each for each in held.files.rollouts if not each.name.compressed]
        cold = [each for each in plain if is_cold(each, older_than_seconds)]
        return _change(
            place, held.files.thread_id, cold, held.fence, level, progress, too_young=len(plain) - len(cold)
        )


def expand_thread(
    place: Place, thread_id: str, *, known: ThreadFiles | None = None, progress: Progress | None = None
) -> Compressed:
    """Expand all rollouts of a thread, where they lie. Blocks. Raises as `compress_thread`."""
    with held_thread(place, thread_id, known) as held:
        packed = [each for each in held.files.rollouts if each.name.compressed]
        return _change(place, held.files.thread_id, packed, held.fence, None, progress)


def _change(
    place: Place,
    thread_id: str,
    rollouts: list[StoredRollout],
    fence: Callable[[], None],
    level: int | None,
    progress: Progress | None,
    too_young: int = 0,
) -> Compressed:
    made, before, after = [], 0, 0
    for each in rollouts:
        size = each.path.stat().st_size
        source, target = os.fspath(each.path), twin_of(os.fspath(each.path))
        make_successor(source, target, calls=place.calls, fence=fence, level=level, progress=progress)
        place.derived.forget(source)  # it speaks of the other inode
        made.append(target)
        before, after = before + size, after + os.stat(target).st_size
    return Compressed(
        thread_id=thread_id, paths=tuple(made), bytes_before=before, bytes_after=after, too_young=too_young
    )


def expand_rollout(
    path: str | os.PathLike[str], *, fence: Callable[[], None], calls: UpkeepCalls | None = None
) -> Path:
    """The plain file of a rollout that is about to be appended to: expanded if it is compressed. Blocks.

    The caller holds the thread's lock. A compressed twin of a plain file goes, if it holds nothing of its
    own and the system lets it.

    Raises:
        RolloutUnreadable: it can't be decompressed, or read.
        RolloutReplaced, RolloutWriteError, ActiveWriter: as `make_successor`.
    """
    calls, name = calls or UpkeepCalls(), os.fspath(path)
    if not name.endswith(".zst"):
        try:
            drop_twin(name, twin_of(name), calls)
        except OSError as error:  # it counts for nothing, and is no reason not to go on
            _log.warning("%s can't be removed: %s", twin_of(name), error)
        return Path(name)
    make_successor(name, twin_of(name), calls=calls, fence=fence)
    return Path(twin_of(name))
