"""Bytes to lines, from either end, and lines to records.

Invariant: both directions cut at the byte `\\n` and at nothing else, so they find the same lines
at the same offsets with the same verdict, whatever the size of the blocks. No more than
`record_bytes_max` bytes of one line, and one block, are held at a time: a longer line is
passed over while only its length is counted. O(bytes) whatever the lines are like.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from io import BytesIO
from typing import NamedTuple

from protocol.errors import InvalidLine
from protocol.line import decode_line
from rollout.record import LineWarning, RolloutRecord

__all__ = [
    "BOM",
    "RECORD_BYTES_MAX",
    "Break",
    "LongLine",
    "Part",
    "cut_lines",
    "judge_break",
    "judge_line",
    "judge_long_line",
    "judge_refused",
    "split_lines",
    "split_lines_backward",
]

RECORD_BYTES_MAX = 96 << 20
"""The longest line that readers take, by default: 96 MiB."""

BOM = b"\xef\xbb\xbf"
"""Passed over at the start of a file, and only there."""


class LongLine(NamedTuple):
    """A line beyond the limit: its bytes are gone, its size and whether all of them were NUL are known."""

    size: int
    only_nul: bool


class Break(NamedTuple):
    """A place where bytes are missing that should be there (a damaged frame, a file that shrank)."""

    reason: str
    message: str


Part = list[bytes] | LongLine | Break
"""Whole lines without their newlines, one line that is too long, or a break."""


class _LineUnderWay:
    """The pieces of a line whose end (or start, when read backward) hasn't come yet."""

    __slots__ = ("_limit", "_only_nul", "_pieces", "size")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pieces: list[bytes] = []
        self._only_nul = True
        self.size = 0

    def add(self, piece: bytes) -> None:
        self.size += len(piece)
        if self.size <= self._limit:
            self._pieces.append(piece)
            return
        self._only_nul = self._only_nul and not any(each.strip(b"\0") for each in (*self._pieces, piece))
        self._pieces.clear()

    def finish(self, *, backward: bool = False) -> bytes | LongLine:
        """The whole line; afterwards the next one begins."""
        pieces, size, only_nul = self._pieces, self.size, self._only_nul
        self._pieces, self.size, self._only_nul = [], 0, True
        if size > self._limit:
            return LongLine(size, only_nul)
        if len(pieces) == 1:
            return pieces[0]
        return b"".join(reversed(pieces) if backward else pieces)


def cut_lines(block: bytes) -> tuple[list[bytes], bytes]:
    """The lines that end in a block, without their newlines, and what follows the last newline."""
    lines = BytesIO(block).readlines()  # cuts at b"\n" alone, and 2 times as fast as bytes.split
    rest = lines.pop() if lines and not block.endswith(b"\n") else b""
    return [line[:-1] for line in lines], rest


def split_lines(
    blocks: Iterable[bytes | Break], offset: int, *, record_bytes_max: int
) -> Iterator[tuple[int, Part, bool]]:
    """Forward: `(offset of the first line, lines, whether a newline ends the last of them)`.

    `offset` is where the first block begins. A last line without newline comes with False, and so
    does the line that a break cuts.
    """
    under_way = _LineUnderWay(record_bytes_max)
    begin = offset
    for block in blocks:
        if isinstance(block, Break):
            end = begin + under_way.size
            yield from _unfinished(begin, under_way)
            yield end, block, True
            begin = end
            continue
        lines, rest = cut_lines(block)
        if lines:
            end = begin + under_way.size + len(block) - len(rest)
            under_way.add(lines[0])
            first = under_way.finish()
            if isinstance(first, bytes) and len(block) <= record_bytes_max:
                lines[0] = first
                yield begin, lines, True
            else:
                yield from _one_by_one(begin, first, lines[1:], record_bytes_max)
            begin = end
        under_way.add(rest)
    yield from _unfinished(begin, under_way)


def _one_by_one(
    offset: int, first: bytes | LongLine, rest: list[bytes], record_bytes_max: int
) -> Iterator[tuple[int, Part, bool]]:
    """Where a block may hold more than one line may: each is measured."""
    for line in (first, *rest):
        if isinstance(line, LongLine):
            yield offset, line, True
            offset += line.size + 1
            continue
        yield offset, [line] if len(line) <= record_bytes_max else _measure(line), True
        offset += len(line) + 1


def _measure(line: bytes) -> LongLine:
    return LongLine(len(line), not line.strip(b"\0"))


def _unfinished(offset: int, under_way: _LineUnderWay) -> Iterator[tuple[int, Part, bool]]:
    if under_way.size:
        line = under_way.finish()
        yield offset, line if isinstance(line, LongLine) else [line], False


ReadAt = Callable[[int, int], bytes]
"""`(size, offset)` to bytes; fewer only where the file ends."""


def split_lines_backward(
    read_at: ReadAt, start: int, end: int, *, block_bytes: int, record_bytes_max: int
) -> Iterator[tuple[int, bytes | LongLine | Break, bool]]:
    """Backward from `end` to `start`, both offsets of the file: `(offset, line, whether a newline ends it)`.

    What follows the last newline always comes first, even if it is empty. If the file turns out
    shorter than `end` (another process cut it), a break is the last thing that comes.
    """
    under_way = _LineUnderWay(record_bytes_max)
    terminated = False
    position = end
    while position > start:
        size = min(block_bytes, position - start)
        block = read_at(size, position - size)
        if len(block) < size:
            missing_from = position - size + len(block)
            yield (
                missing_from,
                Break(
                    "shrunk",
                    f"the file was cut while it was read: it ends at byte {missing_from:,} or before",
                ),
                True,
            )
            return
        at = position
        position -= size
        lines, rest = cut_lines(block)
        if lines:
            at -= len(rest)
            under_way.add(rest)
            yield at, under_way.finish(backward=True), terminated
            terminated = True
            for line in lines[:0:-1]:
                at -= len(line) + 1
                yield at, line if len(line) <= record_bytes_max else _measure(line), True
            rest = lines[0]
        under_way.add(rest)
    yield start, under_way.finish(backward=True), terminated


def judge_line(
    data: bytes, line_no: int | None, offset: int, *, terminated: bool = True
) -> RolloutRecord | None:
    """The record of one line, valid or not; None for a blank one (FORMAT.md, Reading)."""
    try:
        return RolloutRecord(line_no, offset, len(data), decode_line(data))
    except InvalidLine as error:
        return judge_refused(error, data, line_no, offset, terminated=terminated)


def judge_refused(
    error: InvalidLine, data: bytes, line_no: int | None, offset: int, *, terminated: bool = True
) -> RolloutRecord | None:
    """The record of a line that `decode_line` refused; None if it is blank."""
    if error.reason == "empty":
        return None
    from rollout.fused import describe_fused  # only damaged files need it

    message = error.detail + describe_fused(data)
    reason = error.reason
    if not terminated:
        reason, message = "torn_tail", f"the last line was never finished: {message}"
    return _warning_record(reason, message, line_no, offset, len(data))


def judge_long_line(
    line: LongLine, line_no: int | None, offset: int, *, terminated: bool, record_bytes_max: int
) -> RolloutRecord:
    """The record of a line whose bytes weren't kept."""
    if not line.only_nul:
        message = f"it is {line.size:,} bytes long; lines of up to {record_bytes_max:,} bytes are read"
        return _warning_record("too_long", message, line_no, offset, line.size)
    message = f"it is {line.size} NUL bytes"
    if terminated:
        return _warning_record("nul_bytes", message, line_no, offset, line.size)
    return _warning_record(
        "torn_tail", f"the last line was never finished: {message}", line_no, offset, line.size
    )


def judge_break(found: Break, offset: int) -> RolloutRecord:
    """The record of a place where bytes are missing. It is no line: it has no number and no size."""
    return _warning_record(found.reason, found.message, None, offset, 0)


def _warning_record(reason: str, message: str, line_no: int | None, offset: int, size: int) -> RolloutRecord:
    warning = LineWarning(reason, message, offset, size, line_no)
    return RolloutRecord(line_no, offset, size, None, warning)
