"""What a prune would take: decided from what is known of each thread, without a look at the disk.

Invariant: a thread that somebody writes, that is pinned, or that another one rests on which stays, stays. The
newest `keep` threads stay whatever else is said. The rest goes if it is older than allowed, or, the
oldest first, until the whole is small enough; if neither is asked for, all of it. The order is one in
which no thread goes before one that rests on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set

from msgspec import Struct

__all__ = ["KnownThread", "PruneLimits", "PrunePlan", "plan_prune"]


class PruneLimits(Struct, frozen=True, kw_only=True):
    """What is to be left. At least one of them is given."""

    older_than_seconds: float | None = None
    """Threads that were changed later stay."""
    keep: int | None = None
    """So many of the newest stay."""
    bytes_max: int | None = None
    """So many bytes may the threads of the home have."""


class KnownThread(Struct, frozen=True, kw_only=True):
    """What is known of one thread."""

    thread_id: str
    bytes: int
    """That it takes on the disk."""
    changed: float
    """When any of its files was changed last, in seconds since the epoch."""
    archived: bool = False


class PrunePlan(Struct, frozen=True, kw_only=True):
    """What would go, children before what they rest on, and what stays though a limit would take it, with
    the reason: `live`, `pinned` or `referenced`."""

    going: tuple[KnownThread, ...]
    staying: Mapping[str, str]
    bytes_all: int

    @property
    def bytes(self) -> int:
        """What would be free then."""
        return sum(each.bytes for each in self.going)


def plan_prune(
    threads: Iterable[KnownThread],
    limits: PruneLimits,
    *,
    now: float,
    live: Set[str] = frozenset(),
    pinned: Set[str] = frozenset(),
    children: Mapping[str, Set[str]] | None = None,
) -> PrunePlan:
    """Decide.

    Args:
        now: seconds since the epoch.
        children: by thread, the threads whose history rests directly on it.
    """
    newest_first = sorted(threads, key=lambda each: (each.changed, each.thread_id), reverse=True)
    size = sum(each.bytes for each in newest_first)
    wanted = _unneeded(newest_first, limits, size, now)
    staying = {
        each.thread_id: "live" if each.thread_id in live else "pinned"
        for each in wanted
        if each.thread_id in live or each.thread_id in pinned
    }
    free = [each for each in wanted if each.thread_id not in staying]
    going = {each.thread_id: each for each in free}
    children = children or {}
    while held := [each for each in going if any(child not in going for child in children.get(each, ()))]:
        for thread_id in held:
            del going[thread_id]
            staying[thread_id] = "referenced"
    return PrunePlan(
        going=tuple(_children_first(list(going.values()), children)), staying=staying, bytes_all=size
    )


def _unneeded(
    newest_first: Sequence[KnownThread], limits: PruneLimits, size: int, now: float
) -> list[KnownThread]:
    """What the limits alone would take, the oldest first."""
    rest = list(reversed(newest_first[limits.keep or 0 :]))
    if limits.older_than_seconds is None and limits.bytes_max is None:
        return rest
    found = []
    for each in rest:
        old = limits.older_than_seconds is not None and now - each.changed >= limits.older_than_seconds
        large = limits.bytes_max is not None and size > limits.bytes_max
        if old or large:
            found.append(each)
            size -= each.bytes
    return found


def _children_first(going: Sequence[KnownThread], children: Mapping[str, Set[str]]) -> list[KnownThread]:
    by_id = {each.thread_id: each for each in going}
    ordered: dict[str, KnownThread] = {}
    waiting = [(each.thread_id, False) for each in reversed(going)]
    entered = set[str]()
    while waiting:
        thread_id, is_done = waiting.pop()
        if is_done:
            ordered.setdefault(thread_id, by_id[thread_id])
        elif thread_id not in entered:
            entered.add(thread_id)
            waiting.append((thread_id, True))
            waiting += [(child, False) for child in children.get(thread_id, ()) if child in by_id]
    return list(ordered.values())
