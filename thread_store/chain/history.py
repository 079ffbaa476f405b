"""The history of a thread as one list, whatever files it lies in.

Invariant: it is read without a lock and changes nothing; what can't be read is named and hides
nothing else. Bytes that a writer added after its lock was taken over are counted, and never part of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from msgspec import Struct

from protocol.errors import NotARollout
from protocol.items import RolloutItem
from protocol.meta import SessionMeta, meta_of
from rollout.reader import read_rollout
from rollout.record import RolloutRecord
from rollout.source import RolloutSource
from thread_store.chain.lineage import BaseProblem, Lineage
from thread_store.chain.taken import find_taken
from thread_store.home import Home

__all__ = ["LateBytes", "ThreadHistory", "find_late_bytes", "read_history", "read_records"]


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
            if record.line is not None and record.line.type not in ("session_meta", "x_memory", "x_writer"):
                yield record.line.item()


def read_history(path: str | os.PathLike[str], home: Home) -> ThreadHistory:
    """Read a rollout and everything that it rests on.

    A rollout without a header, or of an older format, is read by itself.

    Raises:
        ThreadNotFound, NotARollout, RolloutUnreadable: the rollout can't be read.
    """
    try:
        lineage = Lineage.resolve(path, home)
    except NotARollout:
        return read_records(path, path=os.fspath(path))
    with lineage.own.open() as file:
        meta, own = file.meta, file.meta_record
    return ThreadHistory(
        thread_id=str(lineage.own.thread_id),
        meta=meta,
        records=[own, *(each.record for each in lineage.forward())],
        rollouts=tuple(segment.path for segment in lineage.segments),
        problem=lineage.problem,
        late=tuple(find_late_bytes(lineage, home)),
    )


def read_records(source: RolloutSource, *, path: str) -> ThreadHistory:
    """Read one rollout by itself.

    Raises:
        NotARollout: there is no record in it.
    """
    reader = read_rollout(source)
    records = list(reader)
    if not any(record.line is not None for record in records):
        raise NotARollout(path=path, reason="there is no whole line in it")
    line = None if reader.meta_record is None else reader.meta_record.line
    meta = SessionMeta(id=reader.thread_id, cwd="") if line is None else meta_of(line)
    return ThreadHistory(thread_id=reader.thread_id or "", meta=meta, records=records, rollouts=(path,))


def find_late_bytes(lineage: Lineage, home: Home) -> Iterator[LateBytes]:
    """What stands behind the point at which a lock was taken over, in the file of whoever had it before."""
    for taken in find_taken(lineage, home):
        if taken.size > taken.end:
            yield LateBytes(taken.path, taken.end, taken.size - taken.end)
