"""Letting threads go on without one that they rest on: each gets the bytes of its own.

Invariant: done for what nobody rests on first, so that after each step every thread of the home has its whole
history. Nothing is begun while somebody writes one of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Set
from contextlib import ExitStack

from thread_store.forks.self_contained import make_self_contained
from thread_store.upkeep.compression import expand_rollout
from thread_store.upkeep.references import References
from thread_store.upkeep.threads import HeldThread, Place, held_thread

__all__ = ["detach_children"]


def detach_children(
    place: Place, references: References, rollout_ids: Iterable[str], threads: Set[str]
) -> list[str]:
    """Make everything self-contained that rests on these rollouts and is of none of these threads, which the
    caller holds. Returns the paths. `references` were looked at just before.

    Raises:
        ActiveWriter: somebody writes one of them; nothing was done.
        ForkRefused: what one of them rests on can't be read.
        RolloutReplaced, RolloutUnreadable, RolloutWriteError: the system refuses. Each is as it was, or
            self-contained.
    """
    children = references.descendants(rollout_ids, threads)
    with ExitStack() as stack:
        held: dict[str, HeldThread] = {}
        for child in children:
            if child.thread_id not in held:
                held[child.thread_id] = stack.enter_context(held_thread(place, child.thread_id))
        return [
            os.fspath(_detach(place, references, held[child.thread_id], child.rollout_id))
            for child in children
        ]


def _detach(place: Place, references: References, held: HeldThread, rollout_id: str) -> str:
    found = next(
        each for each in held.files.rollouts if (each.name.rollout_id or each.name.thread_id) == rollout_id
    )
    path = expand_rollout(found.path, fence=held.fence, calls=place.calls)
    make_self_contained(path, place.home, fence=held.fence, calls=place.calls)
    place.derived.forget(path)
    for each in (found.path, path):
        references.forget(os.fspath(each))
    return os.fspath(path)
