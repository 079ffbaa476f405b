"""Threads that something is done to while nobody writes them: found, locked, mended.

Invariant: the block of `held_thread` runs under the thread's writer lock and sees no remains of what was
killed in the midst of something: temporary files are gone, and twins that hold nothing of their own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from protocol.errors import RolloutError, RolloutWriteError
from thread_store.folding.derived_snapshot import DerivedSnapshots
from thread_store.home import Home, StoredRollout
from thread_store.locks import ThreadLocks
from thread_store.upkeep.calls import UpkeepCalls
from thread_store.upkeep.thread_files import ThreadFiles, files_of_thread, look_again, mend_folders
from thread_store.upkeep.twins import drop_twin

__all__ = ["HeldThread", "Place", "held_thread"]


class Place(NamedTuple):
    """A home, with what it takes to change something in it."""

    home: Home
    locks: ThreadLocks
    derived: DerivedSnapshots
    calls: UpkeepCalls

    @classmethod
    def of(cls, home: Home, locks: ThreadLocks | None = None, calls: UpkeepCalls | None = None) -> Place:
        """The place of a home. `locks`: of a store that has it open already."""
        calls = calls or UpkeepCalls()
        return cls(home, locks or ThreadLocks(home.path), DerivedSnapshots(home, calls=calls), calls)


class HeldThread(NamedTuple):
    """A thread that is locked. `fence` raises if the lock was lost."""

    files: ThreadFiles
    fence: Callable[[], None]


@contextmanager
def held_thread(place: Place, thread_id: str, known: ThreadFiles | None = None) -> Iterator[HeldThread]:
    """Keep the thread's writers out for as long as the block runs.

    `known`: its files as they were found not long ago, which spares a look through the home.

    Raises:
        InvalidThreadId, ThreadNotFound: there is no such thread.
        ActiveWriter: somebody writes it; the error names them.
        LocksBusy, RolloutUnreadable: the lock can't be had, or a twin can't be read.
        RolloutWriteError: what was left there can't be mended.
    """
    known = known or files_of_thread(place.home, thread_id)  # a thread that there isn't gets no lock
    lock = place.locks.acquire(known.thread_id)
    try:
        files = look_again(place.home, known)
        yield HeldThread(look_again(place.home, files) if _mend(place, files) else files, lock.verify)
    finally:
        lock.release()


def _mend(place: Place, files: ThreadFiles) -> bool:
    """Take away what was left by somebody who was killed. Returns whether there was anything."""
    calls = place.calls
    try:
        mended = mend_folders(files, calls)
        for each in files.twins:
            mended |= drop_twin(os.fspath(_counting(files, each)), os.fspath(each.path), calls)
    except OSError as error:
        if isinstance(error, RolloutError):
            raise
        raise RolloutWriteError(
            path=files.current.path, operation="mend", cause=error, hint="Nothing else was done"
        ) from error
    return mended


def _counting(files: ThreadFiles, twin: StoredRollout) -> Path:
    """The file that counts of the rollout that a twin is of."""
    return next(each.path for each in files.rollouts if each.name.rollout_id == twin.name.rollout_id)
