"""Deleting threads, each with everything that is its own: rollouts, kept files, derived files, titles.

Invariant: a thread is there whole or not at all, whoever dies when. What is to go is named in a journal first
(`thread_store.doomed`), synced; from the moment on at which that has its name nobody finds the threads any
more, and whoever comes next does the rest. Nothing goes that somebody writes, or whose bytes another
thread rests on: that is looked at, and the files unlinked, under the coordination lock, which
everybody holds who makes such a reference.

On a full disk, which may have no room for a journal, threads of a single file go without one: unlinking
that file is one step.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path

from msgspec import Struct

from protocol.errors import ActiveWriter, RolloutError, ThreadNotFound, ThreadReferenced, WriterHolder
from protocol.ids import ThreadId
from rollout.kept import kept_stem
from thread_store.doomed import DoomedFile, DoomedThread
from thread_store.locks import LockState
from thread_store.upkeep.cascade import detach_children
from thread_store.upkeep.references import Child, References
from thread_store.upkeep.removal import begin_removal, finish_deletions, finish_removal, translated_removal
from thread_store.upkeep.thread_files import ThreadFiles, files_of_thread
from thread_store.upkeep.threads import HeldThread, Place, held_thread

__all__ = ["BATCH_MAX", "Deleted", "DeletionLook", "delete_threads", "look_at_deletion"]

BATCH_MAX = 128
"""Threads that go by one journal: a lock of each is held meanwhile."""

_NAMED_MAX = 5


class Deleted(Struct, frozen=True, kw_only=True):
    """What went."""

    thread_ids: tuple[str, ...]
    bytes: int
    """That lay on the disk for them."""
    made_self_contained: tuple[str, ...] = ()
    """The rollouts of other threads that rested on them, and don't any more."""
    skipped: tuple[RolloutError, ...] = ()
    """Why others stay, if that was asked for instead of an error: somebody writes them, or rests on them."""


class DeletionLook(Struct, frozen=True, kw_only=True):
    """What would go with one thread, and what stands against it."""

    thread_id: str
    paths: tuple[str, ...]
    bytes: int
    holder: WriterHolder | None
    """Who writes it."""
    children: tuple[str, ...]
    """The threads that rest on it and would not go too."""


def look_at_deletion(place: Place, thread_ids: Sequence[str], references: References) -> list[DeletionLook]:
    """Tell what deleting these threads would do; changes nothing. `references` were looked at just before.

    Raises:
        InvalidThreadId, ThreadNotFound: there is no such thread.
        RolloutUnreadable, LocksBusy: the system refuses.
    """
    holders = {
        each.thread_id: each.writer for each in place.locks.holders() if each.state is not LockState.STALE
    }
    looks = []
    for thread_id in map(ThreadId.parse, thread_ids):
        files = files_of_thread(place.home, thread_id)
        paths = [*(each.path for each in files.all), *_others(place, files)]
        children = references.outside(files.rollout_ids, thread_ids)
        looks.append(
            DeletionLook(
                thread_id=thread_id,
                paths=tuple(map(os.fspath, paths)),
                bytes=sum(os.lstat(each).st_size for each in paths),
                holder=holders.get(thread_id),
                children=tuple(sorted({str(each.thread_id) for each in children})),
            )
        )
    return looks


def delete_threads(
    place: Place,
    thread_ids: Sequence[str],
    *,
    cascade: bool = False,
    skip: bool = False,
    known: dict[str, ThreadFiles] | None = None,
    references: References | None = None,
    accept: Callable[[ThreadFiles], bool] | None = None,
) -> Deleted:
    """Delete these threads, at most `BATCH_MAX` of them, at once. Blocks. On return it is on stable storage.

    Args:
        cascade: make what rests on them self-contained first; else they are refused.
        skip: let those that can't go stay, instead of raising and deleting none.
        known: their files as they were found not long ago; `references`: what was looked at before. Both
            only spare time.
        accept: asked about each thread when it is locked; False lets it stay without a word.

    Raises:
        InvalidThreadId, ThreadNotFound: there is no such thread.
        ActiveWriter: somebody writes one of them, or (`cascade`) one that rests on them.
        ThreadReferenced: others rest on them; the error names them.
        LocksBusy, RolloutUnreadable, RolloutWriteError: the system refuses. A thread whose deletion was begun
            counts as deleted, and what is left of it goes with the next one.
    """
    finish_deletions(place)
    if references is None or cascade:
        references = references or References(place.home)
        references.look()  # the look that counts, under the lock, is short then
    with ExitStack() as stack:
        held, skipped = _hold(place, stack, thread_ids, known or {}, accept, skip=skip)
        detached: list[str] = []
        if cascade and held:
            detached = detach_children(place, references, _rollout_ids(held.values()), set(held))
        with place.locks.coordinated():
            references.look()
            skipped += _drop_referenced(held, references, skip=skip)
            doomed = [_doom(place, each.files) for each in held.values()]
            size = sum(file.size for thread in doomed for file in (*thread.rollouts, *thread.others))
            journal = begin_removal(place, doomed) if doomed else None
        finish_removal(place, doomed, journal)
    return Deleted(
        thread_ids=tuple(held), bytes=size, made_self_contained=tuple(detached), skipped=tuple(skipped)
    )


def _hold(
    place: Place,
    stack: ExitStack,
    thread_ids: Iterable[str],
    known: dict[str, ThreadFiles],
    accept: Callable[[ThreadFiles], bool] | None,
    *,
    skip: bool,
) -> tuple[dict[str, HeldThread], list[RolloutError]]:
    held: dict[str, HeldThread] = {}
    skipped: list[RolloutError] = []
    for thread_id in dict.fromkeys(thread_ids):
        try:
            found = stack.enter_context(held_thread(place, thread_id, known.get(thread_id)))
        except (ActiveWriter, ThreadNotFound) as error:
            if not skip:
                raise
            skipped.append(error)
        else:
            if accept is None or accept(found.files):
                held[found.files.thread_id] = found
    return held, skipped


def _rollout_ids(held: Iterable[HeldThread]) -> list[str]:
    return [rollout_id for each in held for rollout_id in each.files.rollout_ids]


def _drop_referenced(
    held: dict[str, HeldThread], references: References, *, skip: bool
) -> list[RolloutError]:
    """Take those out of the plan that others rest on, and those that these rest on in turn.

    Raises:
        ThreadReferenced: there are such, and none may be skipped.
    """
    refused: list[RolloutError] = []
    while True:
        found = {
            thread_id: children
            for thread_id, each in held.items()
            if (children := references.outside(each.files.rollout_ids, held))
        }
        if not found:
            return refused
        errors = [_referenced(held[thread_id].files, children) for thread_id, children in found.items()]
        if not skip:
            raise errors[0]
        refused += errors
        for thread_id in found:
            del held[thread_id]


def _referenced(files: ThreadFiles, children: Sequence[Child]) -> ThreadReferenced:
    named = sorted({each.thread_id for each in children})
    listed = ", ".join(named[:_NAMED_MAX]) + (", …" if len(named) > _NAMED_MAX else "")
    return ThreadReferenced(
        f"{files.thread_id} can't be deleted: the history of {listed} rests on it",
        hint=f"Make that self-contained first: rollout delete --cascade {files.thread_id}",
        path=files.current.path,
        thread_id=files.thread_id,
    )


# What goes


def _doom(place: Place, files: ThreadFiles) -> DoomedThread:
    home = place.home.path
    with translated_removal(place):
        return DoomedThread(
            thread_id=str(files.thread_id),
            rollouts=tuple(DoomedFile.of(each.path, home) for each in files.all),
            others=tuple(DoomedFile.of(path, home) for path in _others(place, files)),
        )


def _others(place: Place, files: ThreadFiles) -> list[Path]:
    """What lies in other folders for a thread, but for derived files, which nobody misses."""
    folder = place.home.path / "thread-store" / "kept"
    stems = tuple({f"{kept_stem(each.path)}." for each in files.all})
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [folder / name for name in names if name.startswith(stems) and (folder / name).is_file()]
