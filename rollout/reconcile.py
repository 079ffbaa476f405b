"""Reconcile: which of our bytes stand in the file, and what stands there that isn't ours. No I/O.

Invariant: what `compare` says was seen by comparing bytes, never inferred from a count that
a system call returned. Bytes that are not ours are never proposed for cutting.

After an error nobody knows how much of a write arrived. The backlog holds every byte since
the last sync, so the answer is read off the file: chunk by chunk, each is found whole, in
part (the write was cut short), or not at all; anything else there belongs to another writer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rollout.backlog import Chunk

__all__ = ["HEAD_BYTES_MAX", "Standing", "compare", "header_end", "whole_lines"]

ReadAt = Callable[[int, int], bytes]
"""Read `size` bytes at `offset`; fewer only at the end of the file."""

HEAD_BYTES_MAX = 8 << 20
"""A meta line that stands behind so many other bytes is not looked for when the file was disturbed."""

_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Standing:
    """What was found from the durable offset on."""

    placed: tuple[tuple[Chunk, int], ...]
    """The chunks that stand whole, with their offsets."""
    end: int
    """Behind the last of them."""
    broken: Chunk | None
    """The first chunk that doesn't stand whole."""
    broken_offset: int
    """Where its first bytes stand."""
    broken_bytes: int
    """How many of them do."""
    foreign_bytes: int
    """Bytes of another writer, before, between or behind ours."""
    foreign_behind: int
    """Those of them that stand behind the last of ours: none, and ours may be cut or completed there."""


def whole_lines(data: bytes | bytearray, size: int) -> int:
    """How many of the first `size` bytes are whole lines."""
    return data.rfind(b"\n", 0, size) + 1


def header_end(first_line: bytes, read: ReadAt) -> int | None:
    """The offset behind the meta line; None if it isn't there. Another program may have written into the
    file before we did: its bytes are looked past, up to `HEAD_BYTES_MAX`."""
    if read(0, len(first_line)) == first_line:
        return len(first_line)
    found = read(0, HEAD_BYTES_MAX).find(first_line)
    return None if found < 0 else found + len(first_line)


def compare(chunks: Iterable[Chunk], *, start: int, size: int, read: ReadAt) -> Standing:
    """Compare the file from `start` (the durable offset) to `size` with the chunks that should follow.

    Only chunks that may have reached the OS are worth passing: all handed ones, and the first
    that waits. O(bytes between `start` and `size`).
    """
    placed: list[tuple[Chunk, int]] = []
    cursor, foreign = start, 0
    for chunk in chunks:
        offset = _find(chunk, cursor, size, read)
        if offset is None:
            offset = cursor  # not one of its lines arrived; a piece of its first line may have
        foreign += offset - cursor
        matched = _common(chunk.data, offset, size, read)
        if matched < len(chunk.data):
            behind = size - offset - matched
            return Standing(tuple(placed), cursor, chunk, offset, matched, foreign + behind, behind)
        placed.append((chunk, offset))
        cursor = offset + matched
    behind = size - cursor
    return Standing(tuple(placed), cursor, None, cursor, 0, foreign + behind, behind)


def _find(chunk: Chunk, cursor: int, size: int, read: ReadAt) -> int | None:
    """Where the first line of the chunk stands, at `cursor` or behind another writer's bytes.

    One that ends the file and lacks its newline only stands too: were it written again, it would be there
    twice as soon as a newline came. A shorter piece behind foreign bytes may be foreign itself.
    """
    first_line = bytes(chunk.data[: chunk.data.find(b"\n", 1) + 1])  # may begin with a lone newline
    found = _search(first_line, cursor, size, read)
    unended = size - len(first_line) + 1
    if found is None and unended >= cursor and read(unended, size - unended) == first_line[:-1]:
        return unended
    return found


def _search(first_line: bytes, cursor: int, size: int, read: ReadAt) -> int | None:
    if cursor + len(first_line) > size:
        return None
    if read(cursor, len(first_line)) == first_line:
        return cursor
    step = max(_BLOCK_BYTES, 2 * len(first_line))
    position = cursor
    while position < size:
        block = read(position, step)
        found = block.find(first_line)
        if found >= 0:
            return position + found
        if len(block) < step:
            return None
        position += step - len(first_line) + 1
    return None


def _common(data: bytearray, offset: int, size: int, read: ReadAt) -> int:
    """How many bytes of `data` stand at `offset`, up to the first that differs."""
    done, most = 0, min(len(data), size - offset)
    while done < most:
        block = read(offset + done, min(_BLOCK_BYTES, most - done))
        ours = data[done : done + len(block)]
        if block != ours:
            return done + _first_difference(block, ours)
        if not block:
            break
        done += len(block)
    return done


def _first_difference(left: bytes, right: bytes | bytearray) -> int:
    low, high = 0, len(left)
    while low < high:  # invariant: the first `low` bytes are equal, the first `high + 1` aren't all
        middle = (low + high + 1) // 2
        if left[:middle] == right[:middle]:
            low = middle
        else:
            high = middle - 1
    return low
