"""The backlog: every accepted byte that is not durable yet, in order. No I/O.

Invariant: the chunks of `handed`, then those of `waiting`, are one gapless run of the stream
from `durable` on. A chunk leaves only when a sync has covered it, so a failed write, a failed
sync and a lost file can all be mended from here. Owned by the writer; no locks.

Two kinds of position: a *stream* position counts the bytes accepted by this recorder; an
*offset* is a place in the file. They part where another program's bytes stand between ours.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from protocol.blobs import Blob

__all__ = ["Backlog", "Chunk"]


class Chunk:
    """A run of whole lines. `handed` of its bytes were given to the OS, the first at `offset`."""

    __slots__ = ("blobs", "blobs_placed", "data", "handed", "items", "note_bytes", "offset", "start")

    def __init__(
        self,
        data: bytearray,
        *,
        start: int,
        items: int,
        note_bytes: int = 0,
        blobs: Sequence[Blob] = (),
    ) -> None:
        self.data = data
        self.start = start
        """Stream position of the first byte behind the note."""
        self.items = items
        """How many of the caller's items end in it."""
        self.note_bytes = note_bytes
        """Leading bytes that the writer put in itself; they take no stream position."""
        self.offset = -1
        """File offset of the first byte; -1 while nothing was handed over."""
        self.handed = 0
        self.blobs = blobs
        """What its lines name; they stand in its sink before any of these does."""
        self.blobs_placed = False

    @property
    def end(self) -> int:
        """Stream position behind the last byte."""
        return self.start + len(self.data) - self.note_bytes

    @property
    def written(self) -> int:
        """Stream position up to which the OS has it."""
        return self.start + max(0, self.handed - self.note_bytes)

    def lines(self) -> bytes:
        """Its lines, so that they can be read without anything else: blobs that stand nowhere are in them."""
        data = bytes(self.data)
        if not self.blobs or self.blobs_placed:
            return data
        from protocol.inlining import inline_lines  # for the few who bound their storage

        return inline_lines(data, {each.sha256: each.data for each in self.blobs})

    def drop_first(self, size: int) -> None:
        """Forget the first `size` bytes, which were handed over."""
        del self.data[:size]
        notes = min(self.note_bytes, size)
        self.start += size - notes
        self.note_bytes -= notes
        self.offset += size
        self.handed -= size

    def __repr__(self) -> str:
        return f"Chunk(start={self.start}, size={len(self.data)}, handed={self.handed}, offset={self.offset})"


class Backlog:
    """The chunks between durable and accepted, split where the OS has them."""

    def __init__(self, *, chunk_bytes: int) -> None:
        self.handed: deque[Chunk] = deque()
        self.waiting: deque[Chunk] = deque()
        self.durable = 0
        """Stream position that a successful sync has covered."""
        self.durable_offset = 0
        """Where the file stood then. Bytes before it are ours to report, never to rewrite."""
        self.flushed_items = 0
        self.note_ms = 0
        """The time of a note that is inserted now, behind everything else."""
        self._chunk_bytes = chunk_bytes
        self._end = 0

    def add(self, chunks: Iterable[Chunk]) -> None:
        """Take sealed chunks from the pending queue."""
        for chunk in chunks:
            self.waiting.append(chunk)
            self._end = chunk.end

    def __iter__(self) -> Iterator[Chunk]:
        yield from self.handed
        yield from self.waiting

    @property
    def written(self) -> int:
        """Stream position up to which everything was handed to the OS."""
        return self.waiting[0].written if self.waiting else self._end

    @property
    def end(self) -> int:
        return self._end

    def pass_written(self) -> None:
        """Move the chunks that are wholly with the OS from `waiting` to `handed`."""
        while self.waiting and self.waiting[0].handed == len(self.waiting[0].data):
            chunk = self.waiting.popleft()
            self.flushed_items += chunk.items
            self._keep(chunk)

    def _keep(self, chunk: Chunk) -> None:
        # A flush after each item makes tiny chunks: joined here, so that their number stays small.
        last = self.handed[-1] if self.handed else None
        if (
            last is not None
            and not chunk.note_bytes
            and not chunk.blobs
            and not last.blobs  # they leave with their chunk
            and len(last.data) + len(chunk.data) <= self._chunk_bytes
            and last.offset + len(last.data) == chunk.offset
        ):
            last.data += chunk.data
            last.items += chunk.items
            last.handed = len(last.data)
        else:
            self.handed.append(chunk)

    def note_durable(self, stream: int, *, offset: int) -> None:
        """A sync has covered everything up to `stream`, which ends at file `offset`.

        What leaves is told by the offset: the writer's own notes have none in the stream.
        """
        self.durable = max(self.durable, stream)
        self.durable_offset = offset
        while self.handed and self.handed[0].offset + len(self.handed[0].data) <= offset:
            self.handed.popleft()
        first = self.handed[0] if self.handed else self.waiting[0] if self.waiting else None
        if first is not None and first.handed and first.offset < offset:
            first.drop_first(offset - first.offset)

    def requeue(self, chunk: Chunk) -> None:
        """Everything from `chunk` on is not in the file: it waits again, in its old order."""
        if not self.waiting or self.waiting[0] is not chunk:
            while self.handed:
                back = self.handed.pop()
                self.flushed_items -= back.items
                self.waiting.appendleft(back)
                if back is chunk:
                    break
        for waiting in self.waiting:
            waiting.handed, waiting.offset = 0, -1

    def split(self, chunk: Chunk, size: int, *, offset: int) -> None:
        """The first `size` bytes of the first waiting chunk stand at `offset`; the rest comes elsewhere."""
        if not size:
            return
        note_bytes = min(chunk.note_bytes, size)
        head = Chunk(chunk.data[:size], start=chunk.start, items=0, note_bytes=note_bytes)
        head.offset, head.handed = offset, size
        del chunk.data[:size]
        chunk.start = head.end
        chunk.note_bytes -= note_bytes
        self.handed.append(head)

    def insert_first(self, note: bytes) -> None:
        """Put lines of the writer itself before everything that waits, of which nothing was handed over
        (a gap note, a lost header)."""
        if self.waiting:
            first = self.waiting[0]
            first.data[:0] = note
            first.note_bytes += len(note)
        else:
            self.waiting.appendleft(Chunk(bytearray(note), start=self.written, items=0, note_bytes=len(note)))

    def undurable_lines(self) -> list[bytes]:
        """What a crash of the machine would lose now, in order."""
        return [chunk.lines() for chunk in self]
