"""The fold of a thread, brought up to its end: from the newest `x_memory` on, or from where it must begin.

Invariant: what comes out is what folding every line from the start gives; a snapshot only saves the way.
One that doesn't fit the lines that it says it covers is passed over. Where the fold doesn't begin at
the start, and with no snapshot, `whole` says so: then what is older is not known.

A snapshot names the last line that it covers by offset and hash. In a copy of the rollout the line stands
elsewhere: it is looked for before the snapshot, and all offsets move with it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from protocol.line import RolloutLine
from protocol.own import MemoryItem
from protocol.thread_fold import ThreadFold
from protocol.tool_safety import DEFAULT_TOOL_SAFETY, ToolSafety
from rollout.record import RolloutRecord
from thread_store.lineage import Lineage, LineageRecord, Place
from thread_store.open_rollout import OpenRollout

__all__ = ["MEMORY_REACH_RECORDS", "FoldedThread", "fold_lineage", "line_hash", "snapshot_of", "take_record"]

MEMORY_REACH_RECORDS = 1_500
"""How many records are read, if need be, to find an `x_memory`: one follows each thousand."""

_HASH_DIGITS = 16


class FoldedThread(Struct, kw_only=True):
    """A fold, and the range that it stands for."""

    fold: ThreadFold
    upto: Place
    """Everything before is folded."""
    examined_from: Place
    """Where the lines begin that it knows, directly or by a snapshot."""
    whole: bool
    """Whether there is nothing older that it doesn't know."""


def line_hash(line: bytes) -> str:
    """How a snapshot names the last line that it covers; without its newline."""
    return hashlib.sha256(line).hexdigest()[:_HASH_DIGITS]


def fold_lineage(
    lineage: Lineage,
    memories: Iterable[LineageRecord] | None = None,
    *,
    examined_from: Place | None = None,
    deep: bool = False,
    safety: ToolSafety = DEFAULT_TOOL_SAFETY,
) -> FoldedThread:
    """Fold a thread up to its last whole line. Blocks; O(bytes behind the snapshot).

    Args:
        memories: the `x_memory` records that are known, newest first; None: look for them.
        examined_from: where to begin if none of them fits; None: at the start.
        deep: at the start in any case.

    Raises:
        ThreadNotFound, RolloutReplaced, RolloutUnreadable: a file of the chain went away meanwhile.
    """
    if not deep:
        for memory in _find_memories(lineage) if memories is None else memories:
            restored = _restore(lineage, memory, safety)
            if restored is not None:
                return _fold_on(lineage, restored)
    start = Place(0, 0) if deep or examined_from is None else examined_from
    is_start = start <= lineage.start
    whole = is_start and lineage.problem is None
    fold = ThreadFold(safety)
    if is_start and lineage.problem is not None:
        fold.add_damage(f"base_{lineage.problem.code}")
    if lineage.segments[start.segment].damage is not None:
        fold.add_damage("damaged_frame")
    return _fold_on(lineage, FoldedThread(fold=fold, upto=start, examined_from=start, whole=whole))


def _fold_on(lineage: Lineage, folded: FoldedThread) -> FoldedThread:
    fold, begun = folded.fold, folded.upto.segment
    for found in lineage.forward(folded.upto, lineage.end):
        if found.segment != begun:
            begun = found.segment
            _begin_file(fold, lineage, begun)
        take_record(fold, found.record)
    folded.upto = max(folded.upto, lineage.end)
    return folded


def _begin_file(fold: ThreadFold, lineage: Lineage, segment: int) -> None:
    """Metas of younger files are numbered like records; what a compressed file has lost is damage."""
    with lineage.open(segment) as file:
        fold.pass_over(file.meta_line.ordinal)
    if lineage.segments[segment].damage is not None:
        fold.add_damage("damaged_frame")


def take_record(fold: ThreadFold, record: RolloutRecord) -> None:
    """The next record of a thread, whole or damaged."""
    if record.line is not None:
        fold.add(record.line, record.offset)
    elif record.warning is not None:
        fold.add_damage(record.warning.reason, record.offset, record.offset + record.size + 1)


# Snapshots


def snapshot_of(lineage: Lineage, folded: FoldedThread) -> MemoryItem:
    """The `x_memory` that speaks for all whole lines of a thread, which were folded."""
    end = lineage.end
    item = folded.fold.snapshot(end.offset)
    with lineage.open(end.segment) as file:
        item.last_line = line_hash(file.last_line(end.offset))
    return item


def _find_memories(lineage: Lineage) -> Iterator[LineageRecord]:
    for count, found in enumerate(lineage.backward()):
        if count == MEMORY_REACH_RECORDS:
            return
        if found.record.line is not None and found.record.line.type == "x_memory":
            yield found


def _restore(lineage: Lineage, memory: LineageRecord, safety: ToolSafety) -> FoldedThread | None:
    """The fold as a snapshot has it; None if it doesn't fit."""
    item = _item_of(memory.record.line)
    if item is None:
        return None
    with lineage.open(memory.segment) as file:
        upto = _find_upto(file, item, memory.record.offset)
    if upto is None:
        return None
    fold = ThreadFold.restore(_moved(item, upto - item.upto_offset), safety)
    if fold is None:
        return None
    unknown = item.examined_from
    start = Place(0, 0) if unknown is None else Place(memory.segment, unknown + upto - item.upto_offset)
    return FoldedThread(
        fold=fold, upto=Place(memory.segment, upto), examined_from=start, whole=unknown is None
    )


def _item_of(line: RolloutLine | None) -> MemoryItem | None:
    item = None if line is None else line.item()
    return item if isinstance(item, MemoryItem) else None


def _find_upto(file: OpenRollout, item: MemoryItem, before: int) -> int | None:
    """Where the last line ends that a snapshot covers, which stands at `before`."""
    if item.last_line is None:
        return None
    upto = item.upto_offset
    if 0 < upto <= before and file.is_border(upto) and line_hash(file.last_line(upto)) == item.last_line:
        return upto
    for count, record in enumerate(file.backward(0, before)):
        if count == MEMORY_REACH_RECORDS:
            return None
        end = record.offset + record.size
        if line_hash(file.read_at(record.size, record.offset)) == item.last_line:
            return end + 1
    return None


_OFFSETS = frozenset({"offset", "end", "request_offset", "last_offset"})


def _moved(item: MemoryItem, by: int) -> MemoryItem:
    """The same snapshot in a file where all lines stand further back."""
    if not by:
        return item
    plain = msgspec.to_builtins(item)
    return msgspec.convert({**_move(plain, by), "upto_offset": item.upto_offset + by}, MemoryItem)


def _move(value: Any, by: int) -> Any:
    if isinstance(value, Mapping):
        return {
            key: each + by if key in _OFFSETS and isinstance(each, int) else _move(each, by)
            for key, each in value.items()
        }
    return [_move(each, by) for each in value] if isinstance(value, list) else value
