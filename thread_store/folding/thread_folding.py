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
from thread_store.chain.lineage import Lineage, LineageRecord, Place
from thread_store.chain.open_rollout import OpenRollout
from thread_store.folding.fold_range import fold_range, take_record

__all__ = ["MEMORY_REACH_RECORDS", "FoldedThread", "fold_lineage", "line_hash", "snapshot_of"]

MEMORY_REACH_RECORDS = 1_500
"""How many records are read, if need be, to find an `x_memory`: one follows each thousand."""

_NEAR_BYTES = 64 << 10

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
    tail_hides_calls: bool = False
    """Whether a writer that isn't ours left a line behind `upto` unfinished: a call may stand there."""

    def snapshot(self, last_line: str) -> MemoryItem:
        """The `x_memory` of it; `last_line` is the hash of the line that ends at `upto`."""
        item = self.fold.snapshot(self.upto.offset)
        item.last_line = last_line
        item.older_files = self.upto.segment or None
        if not self.whole:
            own = self.examined_from.segment == self.upto.segment
            item.examined_from = self.examined_from.offset if own else 0
        return item


def line_hash(line: bytes) -> str:
    """How a snapshot names the last line that it covers; without its newline."""
    return hashlib.sha256(line).hexdigest()[:_HASH_DIGITS]


def fold_lineage(
    lineage: Lineage,
    memories: Iterable[LineageRecord] | None = None,
    *,
    start: FoldedThread | None = None,
    examined_from: Place | None = None,
    deep: bool = False,
    safety: ToolSafety = DEFAULT_TOOL_SAFETY,
) -> FoldedThread:
    """Fold a thread up to its last whole line. Blocks; O(bytes behind the snapshot).

    Args:
        memories: the `x_memory` records that are known, newest first; None: look for them.
        start: a fold that is known to be that of the beginning (`thread_store.folding.derived_snapshot`); it
            is gone on with, unless one of `memories` goes further.
        examined_from: where to begin if none of them fits; None: at the start.
        deep: at the start in any case.

    Raises:
        ThreadNotFound, RolloutReplaced, RolloutUnreadable: a file of the chain went away meanwhile.
    """
    if not deep:
        if start is not None and _is_near_end(lineage, start.upto):
            return _fold_on(lineage, start)
        for memory in _find_memories(lineage) if memories is None else memories:
            if start is not None and memory.place <= start.upto:
                break
            found = _find_covered(lineage, memory)
            if found is None:
                continue
            item, upto = found
            if item.older_files and upto != item.upto_offset:
                # A copy of a chain: the places in older files moved by other distances. Nothing is wrong
                # with what it covers, so all of that is folded.
                examined_from = None
                continue
            restored = _restore(item, Place(memory.segment, upto), safety)
            if restored is not None:
                return _fold_on(lineage, restored)
        if start is not None:
            return _fold_on(lineage, start)
    begin = Place(0, 0) if deep or examined_from is None else examined_from
    is_start = begin <= lineage.start
    whole = is_start and lineage.problem is None
    fold = ThreadFold(safety)
    if is_start and lineage.problem is not None:
        fold.add_damage(f"base_{lineage.problem.code}")
    _begin_file(fold, lineage, begin)
    return _fold_on(lineage, FoldedThread(fold=fold, upto=begin, examined_from=begin, whole=whole))


def _fold_on(lineage: Lineage, folded: FoldedThread) -> FoldedThread:
    fold, begun = folded.fold, folded.upto
    for index in range(begun.segment, lineage.end.segment + 1):
        if index != begun.segment:
            _begin_file(fold, lineage, Place(index, 0))
        _fold_segment(fold, lineage, index, begun.offset if index == begun.segment else 0)
    folded.upto = max(folded.upto, lineage.end)
    folded.tail_hides_calls = lineage.own.size > lineage.own.end and not fold.damage.own_writer
    return folded


def _fold_segment(fold: ThreadFold, lineage: Lineage, index: int, start: int) -> None:
    """The lines of one file from an offset on, without its meta."""
    segment = lineage.segments[index]
    with lineage.open(index) as file:
        if start < segment.meta_end:
            for found in lineage.forward(Place(index, start), Place(index, segment.meta_end)):
                take_record(fold, found.record)
        fold_range(fold, file, max(start, segment.meta_end), segment.end)


def _begin_file(fold: ThreadFold, lineage: Lineage, begin: Place) -> None:
    """Metas are numbered like records, and what lies between them and `begin` is no gap; what a compressed
    file has lost is damage."""
    segment = lineage.segments[begin.segment]
    if begin.offset <= segment.meta_end:
        with lineage.open(begin.segment) as file:
            fold.pass_over(file.meta_line.ordinal)
    if segment.damage is not None:
        fold.add_damage("damaged_frame")


# Snapshots


def snapshot_of(lineage: Lineage, folded: FoldedThread) -> MemoryItem:
    """The `x_memory` that speaks for all whole lines of a thread, which were folded."""
    with lineage.open(folded.upto.segment) as file:
        return folded.snapshot(line_hash(file.last_line(folded.upto.offset)))


def _find_memories(lineage: Lineage) -> Iterator[LineageRecord]:
    for count, found in enumerate(lineage.backward()):
        if count == MEMORY_REACH_RECORDS:
            return
        if found.record.line is not None and found.record.line.type == "x_memory":
            yield found


def _find_covered(lineage: Lineage, memory: LineageRecord) -> tuple[MemoryItem, int] | None:
    """A snapshot, and where the lines end that it covers; None if they aren't there."""
    item = _item_of(memory.record.line)
    if item is None:
        return None
    with lineage.open(memory.segment) as file:
        upto = _find_upto(file, item, memory.record.offset)
    return None if upto is None else (item, upto)


def _is_near_end(lineage: Lineage, upto: Place) -> bool:
    """Whether folding on from there is less than looking for something better."""
    return upto.segment == lineage.end.segment and lineage.end.offset - upto.offset <= _NEAR_BYTES


def _restore(item: MemoryItem, upto: Place, safety: ToolSafety) -> FoldedThread | None:
    """The fold as a snapshot has it; None if it doesn't fit."""
    by = upto.offset - item.upto_offset
    fold = ThreadFold.restore(_moved(item, by), safety)
    if fold is None:
        return None
    unknown = item.examined_from
    start = Place(0, 0) if unknown is None else Place(upto.segment, unknown + by)
    return FoldedThread(fold=fold, upto=upto, examined_from=start, whole=unknown is None)


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
    return _search_upto(file, item.last_line, before)


def _search_upto(file: OpenRollout, last_line: str, before: int) -> int | None:
    """A line without a number may stand there twice: then nobody knows which one is meant."""
    found: int | None = None
    for count, record in enumerate(file.backward(0, before)):
        if count == MEMORY_REACH_RECORDS:
            break
        if line_hash(file.read_at(record.size, record.offset)) == last_line:
            if found is not None:
                return None
            found = record.offset + record.size + 1
            if record.line is not None and record.line.ordinal is not None:
                break
    return found


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
