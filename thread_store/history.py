"""The history of a thread as one list, whatever files it lies in.

Invariant: it is read without a lock and changes nothing; what can't be read is named and hides
nothing else. Bytes that a writer added after its lock was taken over are counted, and never part of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from msgspec import Struct

from protocol.items import RolloutItem
from protocol.meta import SessionMeta
from rollout.record import RolloutRecord
from thread_store.lineage import BaseProblem

__all__ = ["LateBytes", "ThreadHistory"]


class LateBytes(Struct, frozen=True):
    """What a writer wrote after its lock had been taken over by force. It is not part of the thread."""

    path: str
    offset_bytes: int
    size_bytes: int


class ThreadHistory(Struct, frozen=True, kw_only=True):
    """A thread as it was read.

    `records` are all of the chain in order, damaged lines among them with their warnings; the metas of
    older files are left out. `rollouts` are the files, the oldest first.
    """

    thread_id: str
    meta: SessionMeta
    records: list[RolloutRecord]
    rollouts: tuple[str, ...] = ()
    problem: BaseProblem | None = None
    """Why what is older can't be read; None if everything was."""
    late: tuple[LateBytes, ...] = ()

    @property
    def warnings(self) -> list[RolloutRecord]:
        """The damaged lines."""
        return [record for record in self.records if record.line is None]

    def items(self) -> Iterator[RolloutItem]:
        """What was recorded, decoded; without the thread's own meta and what writers note of themselves."""
        for record in self.records:
            if record.line is not None and record.line.type not in ("session_meta", "x_writer"):
                yield record.line.item()
