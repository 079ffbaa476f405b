"""Pruning a home: looking at what is there, and deleting what the plan says.

Invariant: a look changes nothing. Each thread is asked again under its lock before it goes: one that somebody
opened meanwhile, changed, or rests on, stays.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Set
from contextlib import nullcontext

from msgspec import Struct

from protocol.errors import RolloutError, RolloutWriteError
from thread_store.blobs.unreferenced import (
    UnreferencedBlob,
    UnreferencedBlobs,
    find_unreferenced_blobs,
    remove_blob,
)
from thread_store.locks import LockState
from thread_store.titles.thread_labels import ThreadLabels
from thread_store.upkeep.deletion import BATCH_MAX, delete_threads
from thread_store.upkeep.leftovers import Leftover, find_leftovers, remove_leftovers
from thread_store.upkeep.prune_plan import KnownThread, PruneLimits, PrunePlan, plan_prune
from thread_store.upkeep.references import References
from thread_store.upkeep.thread_files import ThreadFiles, threads_of
from thread_store.upkeep.threads import Place

__all__ = ["PruneLook", "Pruned", "carry_out", "look_at_home"]

PINS = frozenset({"keep", "pinned"})
"""Labels of threads that never go."""

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
        return self.plan.bytes + sum(each.bytes for each in self.leftovers) + self.blobs.size_bytes

    @property
    def nobodys(self) -> list[str]:
        """The paths of what goes and is no thread's."""
        return [*(each.path for each in self.leftovers), *(each.path for each in self.blobs.blobs)]


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
            pinned=_pinned(place),
            children=_children(files, references),
        )
    return PruneLook(
        plan=plan,
        leftovers=tuple(find_leftovers(place.home, now=now)),
        blobs=find_unreferenced_blobs(
            place.home, coordination=nullcontext(), now=now, progress=lambda size: tell("blobs", size)
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


def _pinned(place: Place) -> frozenset[str]:
    labels = ThreadLabels(place.home.path).labels()
    return frozenset(thread_id for thread_id, words in labels.items() if not PINS.isdisjoint(words))


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
    blobs = _remove_blobs(place, look.blobs, tell)
    return Pruned(
        threads=tuple(gone),
        bytes=size + freed + sum(each.size_bytes for each in blobs),
        leftovers=len(look.leftovers),
        blobs=len(blobs),
        skipped=tuple(skipped),
    )


def _remove_blobs(place: Place, seen: UnreferencedBlobs, tell: Progress) -> list[UnreferencedBlob]:
    """Those that a look found and that nothing names by now either."""
    if not seen.blobs:
        return []
    found = find_unreferenced_blobs(
        place.home, coordination=place.locks.coordinated(), progress=lambda size: tell("blobs", size)
    )
    going = [each for each in found.blobs if each in seen.blobs]
    with place.locks.coordinated():
        return [each for each in going if _remove_blob(place, each)]


def _remove_blob(place: Place, blob: UnreferencedBlob) -> bool:
    try:
        return remove_blob(blob, calls=place.calls)
    except OSError as error:
        raise RolloutWriteError(
            path=blob.path, operation="remove", cause=error, hint="Nothing but unnamed blobs were removed"
        ) from error


def _batches(thread_ids: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(thread_ids), BATCH_MAX):
        yield thread_ids[start : start + BATCH_MAX]


def _ignore(what: str, count: int) -> None:
    del what, count
