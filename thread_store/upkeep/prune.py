"""Pruning a home: looking at what is there, and deleting what the plan says.

Invariant: a look changes nothing. Each thread is asked again under its lock before it goes: one that somebody
opened meanwhile, changed, or rests on, stays.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Set

from msgspec import Struct

from protocol.errors import RolloutError
from thread_store.locks import LockState
from thread_store.upkeep.blobs import UnreferencedBlobs, find_unreferenced, remove_unreferenced
from thread_store.upkeep.deletion import BATCH_MAX, delete_threads
from thread_store.upkeep.leftovers import Leftover, find_leftovers, remove_leftovers
from thread_store.upkeep.pinned import pinned_threads
from thread_store.upkeep.prune_plan import KnownThread, PruneLimits, PrunePlan, plan_prune
from thread_store.upkeep.references import References
from thread_store.upkeep.thread_files import ThreadFiles, threads_of
from thread_store.upkeep.threads import Place

__all__ = ["PruneLook", "Pruned", "carry_out", "look_at_home"]

Progress = Callable[[str, int], None]
"""Called with what is being done (`threads`, `blobs`, `deleting`) and how far it got."""


class PruneLook(Struct, frozen=True, kw_only=True):
    """What a prune would do, and what it was decided from."""

    plan: PrunePlan
    leftovers: tuple[Leftover, ...]
    blobs: UnreferencedBlobs
    files: dict[str, ThreadFiles]
    references: References

    @property
    def bytes(self) -> int:
        """What would be free then."""
        return self.plan.bytes + sum(each.bytes for each in self.leftovers) + self.blobs.bytes


class Pruned(Struct, frozen=True, kw_only=True):
    """What a prune did."""

    threads: tuple[str, ...]
    bytes: int
    leftovers: int
    blobs: int
    skipped: tuple[RolloutError, ...]
    """Why others stay that were to go."""


def look_at_home(
    place: Place, limits: PruneLimits | None, *, now: float | None = None, progress: Progress | None = None
) -> PruneLook:
    """Decide what would go; changes nothing. Blocks. Without `limits` no thread goes, only leftovers.

    Folders are listed and first lines read; rollouts are looked through only if there are blobs.

    Raises:
        RolloutUnreadable: something can't be read, so that nobody can tell what may go.
        LocksBusy: it can't be told who writes.
    """
    now = time.time() if now is None else now
    tell = progress or _ignore
    references = References(place.home)
    files = {str(thread_id): found for thread_id, found in threads_of(place.home).items()}
    plan = PrunePlan(going=(), staying={}, bytes_all=0)
    if limits is not None:
        references.look(lambda count: tell("threads", count))
        plan = plan_prune(
            [_known(each) for each in files.values()],
            limits,
            now=now,
            live=_live(place),
            pinned=pinned_threads(place.home.path),
            children=_children(files, references),
        )
    return PruneLook(
        plan=plan,
        leftovers=tuple(find_leftovers(place.home, now=now)),
        blobs=find_unreferenced(
            place.home, calls=place.calls, now=now, progress=lambda size: tell("blobs", size)
        ),
        files=files,
        references=references,
    )


def _known(files: ThreadFiles) -> KnownThread:
    size, changed = 0, 0.0
    for each in files.all:
        try:
            status = os.lstat(each.path)
        except FileNotFoundError:
            continue  # moved or deleted just now
        size, changed = size + status.st_size, max(changed, status.st_mtime)
    return KnownThread(
        thread_id=str(files.thread_id), bytes=size, changed=changed, archived=files.current.archived
    )


def _live(place: Place) -> Set[str]:
    return {each.thread_id for each in place.locks.holders() if each.state is not LockState.STALE}


def _children(files: dict[str, ThreadFiles], references: References) -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for thread_id, each in files.items():
        for child in references.outside(each.rollout_ids, [thread_id]):
            found[thread_id].add(str(child.thread_id))
    return found


def carry_out(place: Place, look: PruneLook, progress: Progress | None = None) -> Pruned:
    """Delete what a look found. Blocks. On return that is on stable storage.

    Raises:
        LocksBusy, RolloutUnreadable, RolloutWriteError: the system refuses; what is gone is gone whole.
    """
    tell, gone, size = progress or _ignore, list[str](), 0
    skipped: list[RolloutError] = []
    planned = {each.thread_id: each.changed for each in look.plan.going}

    def is_unchanged(files: ThreadFiles) -> bool:
        return _known(files).changed <= planned[files.thread_id]

    for batch in _batches([*planned]):
        done = delete_threads(
            place, batch, skip=True, known=look.files, references=look.references, accept=is_unchanged
        )
        gone += done.thread_ids
        skipped += done.skipped
        size += done.bytes
        tell("deleting", len(gone))
    freed = remove_leftovers(look.leftovers, calls=place.calls)
    freed += remove_unreferenced(look.blobs, place.home, calls=place.calls)
    return Pruned(
        threads=tuple(gone),
        bytes=size + freed,
        leftovers=len(look.leftovers),
        blobs=len(look.blobs.blobs),
        skipped=tuple(skipped),
    )


def _batches(thread_ids: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(thread_ids), BATCH_MAX):
        yield thread_ids[start : start + BATCH_MAX]


def _ignore(what: str, count: int) -> None:
    del what, count
