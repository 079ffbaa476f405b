"""What rests on what in a home: the references of forks and reverts to other rollouts.

Invariant: a pure function of the first lines of all rollouts. Looked at again it reads only those that it has
not seen: a first line never changes to a reference, so under the coordination lock, where none is made,
a second look is short and its answer final.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from protocol.errors import NotARollout, ThreadNotFound
from protocol.ids import ThreadId
from protocol.meta import decode_meta
from rollout.head import require_rollout
from thread_store.home import Home, StoredRollout

__all__ = ["Child", "References"]

_SHORT_LOOK_BYTES = 32 << 10

Progress = Callable[[int], None]
"""Called with the number of rollouts that were looked at."""


class Child(NamedTuple):
    """A rollout that rests on another one."""

    path: str
    thread_id: ThreadId
    rollout_id: ThreadId
    base_id: str
    """The rollout id of what it rests on."""


class References:
    """Of one home, as far as it was looked at."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._seen: dict[str, Child | None] = {}
        self._by_base: dict[str, list[Child]] = {}

    def look(self, progress: Progress | None = None) -> None:
        """Read the first lines that were not read yet.

        Raises:
            RolloutUnreadable: a file or a folder can't be read, so that nobody can tell.
        """
        seen: dict[str, Child | None] = {}
        for count, each in enumerate(self._home.rollouts()):
            path = os.fspath(each.path)
            seen[path] = self._seen[path] if path in self._seen else _child_of(each)
            if progress is not None and count % 256 == 0:
                progress(count)
        if self._home.passed_over:
            raise self._home.passed_over[0]
        self._seen = seen
        self._by_base = {}
        for child in seen.values():
            if child is not None:
                self._by_base.setdefault(child.base_id, []).append(child)

    def forget(self, path: str) -> None:
        """It was made self-contained: look at it again."""
        self._seen.pop(path, None)

    def children_of(self, rollout_id: str) -> list[Child]:
        """What rests directly on a rollout."""
        return self._by_base.get(rollout_id.lower(), [])

    def outside(self, rollout_ids: Iterable[str], threads: Iterable[str]) -> list[Child]:
        """What rests directly on one of these rollouts and is of none of these threads."""
        inside = set(threads)
        found = [child for each in rollout_ids for child in self.children_of(each)]
        return [child for child in found if child.thread_id not in inside]

    def descendants(self, rollout_ids: Iterable[str], threads: Iterable[str]) -> list[Child]:
        """What rests on these rollouts, directly or not, and is of none of these threads: the deepest first,
        so that none rests on one that stands before it."""
        inside = set(threads)
        waiting, found = self.outside(rollout_ids, inside), dict[str, Child]()
        while waiting:
            child = waiting.pop()
            if child.path not in found:  # files that rest on each other in a ring are nobody's
                found[child.path] = child
                waiting += self.outside([child.rollout_id], inside)
        return list(reversed(found.values()))


def _child_of(found: StoredRollout) -> Child | None:
    if _plainly_rests_on_nothing(found):
        return None
    try:
        record = require_rollout(found.path).meta
    except (NotARollout, ThreadNotFound):
        return None  # it holds no meta, or was deleted just now: it rests on nothing
    line = None if record is None else record.line
    base = None if line is None else decode_meta(line.payload).history_base
    if base is None:
        return None
    name = found.name
    return Child(
        os.fspath(found.path), name.thread_id, name.rollout_id or name.thread_id, base.thread_id.lower()
    )


class _Payload(Struct):
    history_base: Any = None


class _FirstLine(Struct):
    type: str
    payload: _Payload


_decode_first = msgspec.json.Decoder(_FirstLine).decode


def _plainly_rests_on_nothing(found: StoredRollout) -> bool:
    """Whether a short look at the first line settles it, as it does for most; a tenth of the time."""
    try:
        with open(found.path, "rb", buffering=0) as file:
            line, newline, _ = file.read(_SHORT_LOOK_BYTES).partition(b"\n")
        first = _decode_first(line) if newline else None
    except (OSError, msgspec.MsgspecError, ValueError, RecursionError):
        return False  # whoever looks closer says why
    return first is not None and first.type == "session_meta" and first.payload.history_base is None
