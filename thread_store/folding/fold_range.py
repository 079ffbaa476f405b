"""Folding a range of a file, fast where its lines say nothing to the fold.

Invariant: the fold is the same as by taking each record (`take_record`), damage and missing ordinals
included. Most lines of a rollout are messages: of these a block at a time is looked at
(`protocol.fold_block`), and only the lines that matter are decoded one by one.
"""

from __future__ import annotations

from protocol.fold_block import scan_block
from protocol.thread_fold import ThreadFold
from rollout.lines import cut_lines, judge_line
from rollout.record import RolloutRecord
from thread_store.chain.open_rollout import OpenRollout

__all__ = ["fold_range", "take_record"]

_BLOCK_BYTES = 32 << 10
_LINE_BYTES_MAX = 1 << 20
"""A longer line is taken by itself."""


def fold_range(fold: ThreadFold, file: OpenRollout, start: int, end: int) -> None:
    """Take the lines between two borders. Blocks; O(bytes).

    Raises:
        RolloutUnreadable: the system refuses, or another program cut the file.
    """
    while start < end:
        start = _fold_blocks(fold, file, start, end)
        if start < end:
            start = _fold_one(fold, file, start, end)


def _fold_blocks(fold: ThreadFold, file: OpenRollout, start: int, end: int) -> int:
    """As far as lines are of a usual length; returns how far that was."""
    rest = b""
    for block in file.blocks(start, end, block_bytes=_BLOCK_BYTES):
        data = rest + block if rest else block
        size = data.rfind(b"\n") + 1
        if not size and len(data) > _LINE_BYTES_MAX:
            return start
        if size:
            _take_block(fold, data[:size], start)
        start, rest = start + size, data[size:]
    return start


def _fold_one(fold: ThreadFold, file: OpenRollout, start: int, end: int) -> int:
    for record in file.forward(start, end):
        take_record(fold, record)
        return min(end, record.offset + record.size + 1)
    return end  # only blank lines


def _take_block(fold: ThreadFold, data: bytes, offset: int) -> None:
    matter = scan_block(data, fold.damage.max_ordinal)
    if matter is None:
        _take_lines(fold, data, offset)
        return
    if len(matter) > 1:
        _take_some(fold, data, offset, matter[:-1])
    fold.pass_over(matter[-1][1])


def _take_some(fold: ThreadFold, data: bytes, offset: int, matter: list[tuple[int, int | None]]) -> None:
    lines, taken = cut_lines(data)[0], 0
    for number, before in matter:
        offset += sum(map(len, lines[taken:number])) + number - taken
        taken = number
        fold.pass_over(before)
        record = judge_line(lines[number], None, offset)
        if record is not None:
            take_record(fold, record)


def _take_lines(fold: ThreadFold, data: bytes, offset: int) -> None:
    for line in cut_lines(data)[0]:
        record = judge_line(line, None, offset) if line else None
        if record is not None:
            take_record(fold, record)
        offset += len(line) + 1


def take_record(fold: ThreadFold, record: RolloutRecord) -> None:
    """The next record of a thread, whole or damaged."""
    if record.line is not None:
        fold.add(record.line, record.offset)
    elif record.warning is not None:
        fold.add_damage(record.warning.reason, record.offset, record.offset + record.size + 1)
