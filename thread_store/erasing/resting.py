"""Which rollouts rest on which: whose snapshots know what an older file held.

Invariant: it is read from the first lines of the files alone. What can't be read rests on nothing here, and
is named by whoever looked through it.
"""

from __future__ import annotations

import os
from collections import defaultdict
from typing import NamedTuple

from protocol.errors import RolloutError
from protocol.meta import decode_meta
from rollout.head import require_rollout
from thread_store.home import Home

__all__ = ["RestingRollout", "RestingRollouts"]


class RestingRollout(NamedTuple):
    """A rollout whose history begins in another file, whose bytes before `end` count."""

    path: str
    thread_id: str
    rollout_id: str
    end: int


class RestingRollouts:
    """All of a home, by what they rest on."""

    def __init__(self, home: Home | None) -> None:
        self._by_base: dict[str, list[RestingRollout]] = defaultdict(list)
        for found in home.rollouts() if home is not None else ():
            try:
                record = require_rollout(found.path).meta
            except RolloutError:
                continue  # no rollout, or it can't be read: the search has told so
            line = None if record is None else record.line
            base = None if line is None else decode_meta(line.payload).history_base
            if base is not None:
                rollout_id = found.name.rollout_id or found.name.thread_id
                resting = RestingRollout(
                    os.fspath(found.path), found.name.thread_id, rollout_id, base.end_byte_offset
                )
                self._by_base[base.thread_id.lower()].append(resting)

    def behind(self, rollout_id: str | None, offset: int) -> list[RestingRollout]:
        """Those whose history holds the byte at that offset, directly or further back, each once."""
        found: dict[str, RestingRollout] = {}
        waiting = [each for each in self._of(rollout_id) if each.end > offset]
        while waiting:
            each = waiting.pop()
            if each.path not in found:
                found[each.path] = each
                waiting += self._of(each.rollout_id)
        return list(found.values())

    def ends_at(self, rollout_id: str | None, end: int) -> bool:
        """Whether the history of one ends right there in that file."""
        return any(each.end == end for each in self._of(rollout_id))

    def _of(self, rollout_id: str | None) -> list[RestingRollout]:
        return [] if rollout_id is None else self._by_base.get(rollout_id.lower(), [])
