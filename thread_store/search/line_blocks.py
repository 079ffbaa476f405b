"""Blocks of whole lines of one rollout after another, through one buffer that is used again.

Invariant: nothing is mapped (another process may shrink the file), and a block holds whole lines; the
beginning of a line that a read cut is moved to the front and comes with its rest. Offsets count decompressed
bytes. What a writer adds while a plain file is read isn't seen. Memory is the buffer, which grows only for a
longer line, and not beyond `RECORD_BYTES_MAX`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from io import FileIO
from typing import NamedTuple

import stringzilla as sz

from protocol.errors import NotARollout
from rollout.lines import RECORD_BYTES_MAX, Break
from rollout.source import is_compressed, raise_unreadable

__all__ = ["BUFFER_BYTES", "LineBlock", "LineBlocks", "LongGap"]

BUFFER_BYTES = 1 << 20
_KEPT_BYTES_MAX = 8 << 20
_ZSTD_READ_BYTES = 256 << 10

_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


class LineBlock(NamedTuple):
    """Whole lines; of the last one the newline may be missing. Valid until the next one is asked for."""

    data: memoryview
    offset: int
    terminated: bool


class LongGap(NamedTuple):
    """A line that is too long to be looked at."""

    offset: int
    size: int


class LineBlocks:
    """The buffer. One file at a time."""

    def __init__(self, buffer_bytes: int = BUFFER_BYTES, line_bytes_max: int = RECORD_BYTES_MAX) -> None:
        self._buffer_bytes = buffer_bytes
        self._line_bytes_max = line_bytes_max
        self._buffer = bytearray(buffer_bytes)
        self.compressed = False
        """Whether the file that is being read is."""

    def read(
        self, path: str, *, end: int | None = None, compressed: bool = True
    ) -> Iterator[LineBlock | LongGap | Break]:
        """The lines of a file, up to the (decompressed) offset `end`. Nothing comes of a compressed one
        unless `compressed`; the attribute tells.

        Raises:
            ThreadNotFound, NotARollout, RolloutUnreadable: at the first step, the last one also later.
        """
        try:
            descriptor = os.open(path, _FLAGS)
        except OSError as error:
            raise_unreadable(path, error, "open")
        with FileIO(descriptor) as file:
            try:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise NotARollout(path=path, reason="it is no regular file")
                yield from self._read(file, end, compressed)
            except OSError as error:
                raise_unreadable(path, error, "read")
        if len(self._buffer) > _KEPT_BYTES_MAX:
            self._buffer = bytearray(self._buffer_bytes)

    def _read(self, file: FileIO, end: int | None, compressed: bool) -> Iterator[LineBlock | LongGap | Break]:
        head = file.read(4) or b""
        file.seek(0)
        self.compressed = is_compressed(head)
        if not self.compressed:
            size = os.fstat(file.fileno()).st_size
            yield from self._plain(file, size if end is None else min(end, size))
        elif compressed:
            yield from self._decompressed(file, end)

    def _plain(self, file: FileIO, end: int) -> Iterator[LineBlock | LongGap]:
        run = _Run(self)
        while True:
            space = run.space()[: end - run.position]
            size = file.readinto(space) if space else 0
            if not size:
                break
            yield from run.take(size)
        yield from run.finish()

    def _decompressed(self, file: FileIO, end: int | None) -> Iterator[LineBlock | LongGap | Break]:
        from rollout.compressed import decompress  # zstandard is for those who need it

        run = _Run(self)
        for piece in decompress(iter(lambda: file.read(_ZSTD_READ_BYTES) or b"", b"")):
            if isinstance(piece, Break):
                yield from run.finish()
                yield piece
                continue
            if end is not None:
                piece = piece[: end - run.position]
            while piece:
                space = run.space()
                part = piece[: len(space)]
                space[: len(part)] = part
                run.held_back += len(part)
                piece = piece[len(part) :]
                if len(part) == len(space):
                    yield from run.settle()
        yield from run.finish()


class _Run:
    """Fills the buffer with one file, and gives out what is whole."""

    def __init__(self, blocks: LineBlocks) -> None:
        self._blocks = blocks
        self._begin = 0
        """The offset of the buffer's first byte."""
        self._size = 0
        self._looked = 0
        """So many bytes at the front hold no newline."""
        self._lost = 0
        """Of the line that is passed over, so many bytes are gone."""
        self.held_back = 0
        """Bytes that are in the buffer and were not looked at yet."""

    @property
    def position(self) -> int:
        return self._begin + self._size + self.held_back

    def space(self) -> memoryview:
        """The free part of the buffer."""
        return memoryview(self._blocks._buffer)[self._size + self.held_back :]

    def take(self, size: int) -> Iterator[LineBlock | LongGap]:
        self.held_back += size
        yield from self.settle()

    def settle(self) -> Iterator[LineBlock | LongGap]:
        """Give out the whole lines, and make room."""
        self._size, self.held_back = self._size + self.held_back, 0
        view = memoryview(self._blocks._buffer)[: self._size]
        last = sz.rfind(view, b"\n", self._looked, self._size)
        if last < 0:
            self._looked = self._size
            self._make_room()
            return
        first = 0
        if self._lost:
            first = sz.find(view, b"\n") + 1
            yield LongGap(self._begin - self._lost, self._lost + first - 1)
            self._lost = 0
        if last + 1 > first:
            yield LineBlock(view[first : last + 1], self._begin + first, True)
        self._drop(last + 1)

    def finish(self) -> Iterator[LineBlock | LongGap]:
        """Give out what is left, which no newline ends."""
        yield from self.settle()
        if self._lost:
            yield LongGap(self._begin - self._lost, self._lost + self._size)
        elif self._size:
            yield LineBlock(memoryview(self._blocks._buffer)[: self._size], self._begin, False)
        self._lost = 0
        self._drop(self._size)

    def _drop(self, size: int) -> None:
        rest = self._size - size
        buffer = self._blocks._buffer
        if rest:
            memoryview(buffer)[:rest] = bytes(memoryview(buffer)[size : self._size])
        self._begin += size
        self._size = self._looked = rest

    def _make_room(self) -> None:
        buffer, limit = self._blocks._buffer, self._blocks._line_bytes_max
        if self._lost or self._size > limit:
            self._lost += self._size
            self._drop(self._size)
        elif self._size == len(buffer):
            grown = bytearray(min(2 * len(buffer), limit + self._blocks._buffer_bytes))
            grown[: self._size] = buffer
            self._blocks._buffer = grown
