"""One rollout, opened to be looked at, as it was at that moment.

Invariant: the file is never changed, and what its writer appends meanwhile isn't seen: `size` is
fixed when it is opened, and `end` is the byte behind the last newline before that. Offsets count
decompressed bytes. A compressed rollout is put aside decompressed (`rollout.spool`) once
somebody reads beyond its head, because borders are looked for from the end.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from functools import cached_property
from types import TracebackType
from typing import Self

from protocol.errors import NotARollout, RolloutUnreadable
from protocol.line import RolloutLine
from protocol.meta import SessionMeta, meta_of
from rollout.head import RolloutHead, find_head
from rollout.lines import (
    BOM,
    RECORD_BYTES_MAX,
    Break,
    LongLine,
    ReadAt,
    judge_break,
    judge_line,
    judge_long_line,
    split_lines,
    split_lines_backward,
)
from rollout.paths import RolloutName
from rollout.record import RolloutRecord
from rollout.source import ByteSource, is_compressed, open_source, raise_unreadable, status_of
from rollout.spool import Spool, spool
from rollout.stream import decoded_blocks
from rollout.syscalls import drop

__all__ = ["BLOCK_BYTES", "OpenRollout"]

BLOCK_BYTES = 256 << 10

_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)


class OpenRollout:
    """A rollout file of this format, plain or compressed. Close it, or use it as a context manager.

    Raises:
        ThreadNotFound, RolloutUnreadable: there is no such file, or the system refuses.
        NotARollout: it is something else, has no session_meta, or is of a format without envelope.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self.name = RolloutName.match(os.path.basename(self.path))
        self._spool: Spool | None = None
        self.descriptor = _open(self.path)
        try:
            self._status = status_of(self.descriptor, self.path)
            self._source = open_source(self.descriptor, name=self.path)
            if not self._source.seekable:
                raise NotARollout(path=self.path, reason="it is no regular file")
            self.compressed = is_compressed(self._source.read_at(4, 0))
            self._head = self._require_head()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file, and of what was put aside. May be called again."""
        if self._spool is not None:
            self._spool.close()
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            drop(descriptor, self.path)

    # Whose it is

    def _require_head(self) -> RolloutHead:
        head = find_head(open_source(self.descriptor, name=self.path))
        line = None if head.meta is None else head.meta.line
        if line is None:
            raise NotARollout(path=self.path, reason="it has no session_meta")
        if line.upcast_from is not None:
            raise NotARollout(
                path=self.path,
                reason=f"it is of an older format ({line.upcast_from}), whose lines have no envelope",
                hint="It can be read; import it to go on from it",
            )
        return head

    @property
    def identity(self) -> tuple[int, int]:
        """Device and inode."""
        return (self._status.st_dev, self._status.st_ino)

    @property
    def thread_id(self) -> str | None:
        """As its meta says."""
        return self._head.thread_id

    @property
    def rollout_id(self) -> str | None:
        """The last uuid in its name, which is the thread id for a thread's first rollout; None without such
        a name."""
        return None if self.name is None else self.name.rollout_id or self.name.thread_id

    @property
    def meta_record(self) -> RolloutRecord:
        """Its first session_meta."""
        assert self._head.meta is not None
        return self._head.meta

    @property
    def meta_line(self) -> RolloutLine:
        """The line of that record."""
        line = self.meta_record.line
        assert line is not None
        return line

    @cached_property
    def meta(self) -> SessionMeta:
        """Its first session_meta, decoded."""
        return meta_of(self.meta_line)

    @property
    def paginated(self) -> bool:
        """Whether its records are numbered, as its meta says."""
        return self.meta.history_mode == "paginated"

    @property
    def meta_end(self) -> int:
        """The byte behind the line of its meta."""
        return self.meta_record.offset + self.meta_record.size + 1

    # What is in it

    @cached_property
    def start(self) -> int:
        """Where the first line begins: behind a byte order mark, if there is one."""
        return len(BOM) if self.read_at(len(BOM), 0) == BOM else 0

    @cached_property
    def size(self) -> int:
        """How many bytes there were, an unfinished tail included."""
        return self._decompressed().segments[-1].end if self.compressed else self._status.st_size

    @property
    def damage(self) -> str | None:
        """What is broken in the compressed file; None if nothing is. Bytes are missing there."""
        ended_by = self._decompressed().segments[0].ended_by if self.compressed else None
        return None if ended_by is None else ended_by.message

    @cached_property
    def end(self) -> int:
        """The byte behind the last newline; 0 if there is none."""
        position = self.size
        while position > 0:
            size = min(BLOCK_BYTES, position)
            found = self.read_at(size, position - size).rfind(b"\n")
            if found >= 0:
                return position - size + found + 1
            position -= size
        return 0

    def _decompressed(self) -> Spool:
        if self._spool is None:
            self._spool = spool(self.path, decoded_blocks(self._fresh_source(), BLOCK_BYTES))
        return self._spool

    def _fresh_source(self) -> ByteSource:
        return open_source(self.descriptor, name=self.path)

    @property
    def read_at(self) -> ReadAt:
        """`(size, offset)` to bytes; fewer only at the end."""
        return self._decompressed().read_at if self.compressed else self._source.read_at

    def is_border(self, offset: int) -> bool:
        """Whether a line begins there, or the last whole one ends."""
        return offset == 0 or (0 < offset <= self.end and self.read_at(1, offset - 1) == b"\n")

    def blocks(self, start: int, end: int, *, block_bytes: int = BLOCK_BYTES) -> Iterator[bytes]:
        """The bytes between two offsets.

        Raises:
            RolloutUnreadable: there are fewer, because another program cut the file.
        """
        while start < end:
            block = self.read_at(min(block_bytes, end - start), start)
            if not block:
                raise _shrunk(self.path)
            yield block
            start += len(block)

    def forward(self, start: int, end: int, *, block_bytes: int = BLOCK_BYTES) -> Iterator[RolloutRecord]:
        """The records between two borders, without line numbers."""
        blocks = self.blocks(start, end, block_bytes=block_bytes)
        parts = split_lines(blocks, start, record_bytes_max=RECORD_BYTES_MAX)
        for offset, part, terminated in parts:
            if isinstance(part, list):
                for data in part:
                    record = judge_line(data, None, offset, terminated=terminated) if data else None
                    if record is not None:
                        yield record
                    offset += len(data) + 1
            elif isinstance(part, LongLine):
                yield _judge_long(part, offset, terminated=terminated)

    def backward(self, start: int, end: int) -> Iterator[RolloutRecord]:
        """The same, newest first; reads no more than is taken."""
        lines = split_lines_backward(
            self.read_at, start, end, block_bytes=64 << 10, record_bytes_max=RECORD_BYTES_MAX
        )
        for offset, line, terminated in lines:
            if isinstance(line, Break):
                yield judge_break(line, offset)
            elif isinstance(line, LongLine):
                yield _judge_long(line, offset, terminated=terminated)
            elif line:
                record = judge_line(line, None, offset, terminated=terminated)
                if record is not None:
                    yield record

    def next_ordinal(self, end: int) -> int | None:
        """One more than the newest ordinal before a border; None if no record has one."""
        for record in self.backward(0, end):
            number = None if record.line is None else record.line.number
            if number is not None:
                return number + 1
        return None

    def last_line(self, end: int) -> bytes:
        """The bytes of the line that ends at a border, without its newline."""
        pieces: list[bytes] = []
        position = end - 1
        while position > 0:
            size = min(BLOCK_BYTES, position)
            block = self.read_at(size, position - size)
            found = block.rfind(b"\n")
            pieces.append(block[found + 1 :])
            if found >= 0:
                break
            position -= size
        return b"".join(reversed(pieces))


def _judge_long(line: LongLine, offset: int, *, terminated: bool) -> RolloutRecord:
    return judge_long_line(line, None, offset, terminated=terminated, record_bytes_max=RECORD_BYTES_MAX)


def _open(path: str) -> int:
    try:
        return os.open(path, _FLAGS)
    except OSError as error:
        raise_unreadable(path, error, "open")


def _shrunk(path: str) -> RolloutUnreadable:
    cause = OSError(errno.ESTALE, "another program cut it while it was read")
    return RolloutUnreadable(path=path, cause=cause, operation="read")
