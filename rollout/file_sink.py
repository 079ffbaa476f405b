"""The file sink: appends chunks to one rollout file, and heals it after whatever befell it.

Invariant: every byte before `end_bytes` was handed over by this sink, stood there when the
file was opened, or was seen there by `heal`. Another writer's bytes are never cut, and a
line that was cut short is either taken back whole or completed.

Left to others: what is pending (`backlog`), which bytes stand where (`reconcile`), inode and
path (`live_file`), when to write, sync and retry (`writer`).
"""

from __future__ import annotations

import errno
import logging
import re
import threading
from collections.abc import Callable

from protocol.errors import RolloutExists
from rollout.backlog import Backlog, Chunk
from rollout.kept import keep_torn_tail
from rollout.live_file import LiveFile
from rollout.reconcile import Standing, compare, header_end, whole_lines
from rollout.sink import SinkDisturbed
from rollout.syscalls import FileCalls

__all__ = ["FileSink"]

_log = logging.getLogger("rollout.writer")

_BLOCK_BYTES = 1 << 20
# A process that died after a failed fsync may have left this much clean in the cache, not on the disk.
_SUSPECT_BYTES = 1 << 20
# Enough to tell another program's bytes from ours: timestamp, ordinal or call ids stand in it.
_DURABLE_TAIL_BYTES = 256
_STAMP = re.compile(rb'"timestamp":"[^"]*"')
# How a file answers that may only be appended to (chattr +a).
_FORBIDDEN = frozenset({errno.EPERM, errno.EACCES})


class FileSink:
    """One rollout file, as a `Sink`."""

    def __init__(
        self,
        path: str,
        *,
        first_line: bytes,
        gap_line: Callable[[int, str, int], bytes],
        calls: FileCalls | None = None,
        lock: bool = True,
        fence: Callable[[], None] | None = None,
        on_close: Callable[[], None] | None = None,
    ) -> None:
        """
        Args:
            first_line: the meta line with its newline: it heads the file whatever happens to it.
            gap_line: makes the `x_gap` line for a number of destroyed bytes, a cause and a time in ms.
            lock: take a flock on the file itself.
            fence: raises `WriterFenced` when the thread's lock is lost.
            on_close: called when the file was let go of, perhaps more than once; it must not block.
        """
        self.path = path
        self.end_bytes = 0
        self.epoch = 0
        self._calls = calls or FileCalls()
        self._file = LiveFile(path, self._calls, lock=lock)
        self._fence = fence
        self._on_close = on_close
        self._gap_line = gap_line
        self.first_line = first_line
        self._needs_newline = False
        self._torn_from: int | None = None
        self._kept: tuple[int, int] | None = None
        """What was set aside last, so that a cut that is tried again doesn't set it aside again."""
        self._suspect: tuple[int, int] | None = None
        self._rewrite = False
        self._durable_tail = (-1, b"")
        """The durable offset, and the bytes before it as they were when that was synced."""
        self._healing = False
        # Healing and writing again never overlap: one would put bytes where the other has moved them.
        self._placing = threading.Lock()
        self._sync_descriptor = -1

    @property
    def created(self) -> bool:
        return self._file.is_open

    # Opening

    def take(self, descriptor: int, *, torn_from: int | None) -> None:
        """Take over an existing file that the caller opened, locked and scanned. The bytes from
        `torn_from` on are no line: they are set aside and cut before the first append."""
        # Taken last: nothing may fail once the lock has a second descriptor.
        self.end_bytes = self._calls.fstat(descriptor).st_size
        self._durable_tail = self._tail_before(self.end_bytes, descriptor)
        self._file.take(descriptor)
        self._suspect = (max(0, self.end_bytes - _SUSPECT_BYTES), self.end_bytes)
        self._torn_from = torn_from

    def create(self, backlog: Backlog) -> None:
        fresh = self._file.create()
        if fresh:
            return
        # An earlier open may have made the file and then been reported as failed.
        try:
            self._take_own_prefix(backlog)
        except BaseException:
            self._file.close()
            raise

    def _take_own_prefix(self, backlog: Backlog) -> None:
        size = self._file.size()
        standing = compare(backlog, start=0, size=size, read=self._file.read)
        if standing.foreign_bytes:
            raise RolloutExists(path=self.path, reason="it holds something else")
        self._settle(standing, backlog, size)

    # The healthy path

    def verify(self) -> None:
        if self._fence is not None:
            self._fence()
        if self._file.is_open:
            self._file.verify(self.end_bytes)

    def append(self, chunk: Chunk) -> None:
        if self._torn_from is not None:
            raise SinkDisturbed("the last line is torn")
        if not chunk.handed:
            chunk.offset = self.end_bytes
            if self._needs_newline and not chunk.data.startswith(b"\n"):
                chunk.data[:0] = b"\n"  # as a part of the chunk: one write, and written again with it
                chunk.note_bytes += 1
            self._needs_newline = False
        try:
            with memoryview(chunk.data) as view:
                self._append_rest(chunk, view)
        except OSError:
            self._cut_broken_line(chunk)
            raise

    def _append_rest(self, chunk: Chunk, view: memoryview) -> None:
        while True:
            with view[chunk.handed :] as rest:
                written = self._calls.write(self._file.descriptor, rest)
            if written <= 0:
                raise OSError(errno.EIO, f"write returned {written}")
            chunk.handed += written
            self.end_bytes += written
            if chunk.handed == len(view):
                return
            # A short write. Before going on inside a line: did nobody come between?
            if self._file.size() != self.end_bytes:
                raise SinkDisturbed("another writer appended inside a line")

    def _cut_broken_line(self, chunk: Chunk) -> None:
        """After a failed write: end the file on a line border at once, if the broken line is all there is."""
        boundary = whole_lines(chunk.data, chunk.handed)
        if boundary == chunk.handed:
            return
        try:
            if self._file.size() != self.end_bytes or not self._cut(chunk.offset + boundary):
                return
        except OSError as error:
            # `heal` does it before the next write; until then readers see a torn tail.
            _log.debug("%s: the broken line stays for now: %s", self.path, error)
            return
        self.end_bytes = chunk.offset + boundary
        chunk.handed = boundary

    def _cut(self, size: int) -> bool:
        """Cut the file to `size`. False where that is forbidden."""
        if not self._file.may_cut:
            return False
        try:
            self._calls.truncate(self._file.descriptor, size)
        except OSError as error:
            if error.errno not in _FORBIDDEN:
                raise
            return False
        return True

    # Syncing

    def sync_job(self, backlog: Backlog) -> Callable[[], None]:
        # Ours may be reopened while this one syncs; a duplicate reports the same errors (open(2)).
        # First, because it may fail: then nothing that is still to be done was forgotten.
        descriptor = self._sync_descriptor = self._calls.dup(self._file.descriptor)
        end, epoch = self.end_bytes, self.epoch
        rewrites = (
            [(chunk.offset, bytes(chunk.data[: chunk.handed])) for chunk in backlog if chunk.handed]
            if self._rewrite
            else []
        )
        self._rewrite = False
        suspect, self._suspect = self._suspect, None
        folders, self._file.unsynced_folders = self._file.unsynced_folders, []

        def job() -> None:
            done = False
            try:
                if suspect is not None or rewrites:
                    self._write_again(descriptor, suspect, rewrites, epoch)
                self._calls.datasync(descriptor)
                for folder in dict.fromkeys(folders):
                    self._calls.sync_folder(folder)
                done = True
                self._verify_synced(descriptor, end, epoch)
                self._durable_tail = self._tail_before(end, descriptor)
            finally:
                if not done:
                    self._rewrite = self._rewrite or bool(rewrites)
                    self._suspect = self._suspect or suspect
                    self._file.unsynced_folders[:0] = folders
                self._sync_descriptor = -1
                self._file.let_go(descriptor)

        return job

    def _verify_synced(self, descriptor: int, end: int, epoch: int) -> None:
        """After the sync, in its thread: what was synced is what stands at the path."""
        if self._fence is not None:
            self._fence()
        held = self._calls.fstat(descriptor)
        try:
            at_path = self._calls.lstat(self.path)
        except FileNotFoundError:
            raise SinkDisturbed("the path is gone") from None
        if (at_path.st_dev, at_path.st_ino) != (held.st_dev, held.st_ino) or held.st_size < end:
            raise SinkDisturbed("the file is not the one that was synced")
        self._require_unhealed(epoch)

    def _require_unhealed(self, epoch: int) -> None:
        """What a healing wrote meanwhile isn't covered, and where things stand may have changed."""
        if self.epoch != epoch or self._healing:
            raise SinkDisturbed("it was healed during the sync")

    def sync_failed(self) -> None:
        self._rewrite = True

    def _write_again(
        self, source: int, suspect: tuple[int, int] | None, rewrites: list[tuple[int, bytes]], epoch: int
    ) -> None:
        """Same bytes, same offsets: makes pages dirty again that a failed fsync marked clean (G3)."""
        try:
            descriptor = self._calls.open_overwrite(self.path)
        except OSError as error:
            if error.errno in _FORBIDDEN and not rewrites:
                return  # append-only by attribute: what stood there before us can't be written again
            raise
        try:
            if not self._file.is_ours(self._calls.fstat(descriptor)):
                raise OSError(errno.ESTALE, "another file stands at the path", self.path)
            with self._placing:
                if suspect is not None:
                    begin, end = suspect
                    data = self._file.read(begin, end - begin, descriptor=source)
                    self._pwrite_all(descriptor, data, begin, epoch)
                for offset, data in rewrites:
                    self._pwrite_all(descriptor, data, offset, epoch)
        finally:
            self._file.let_go(descriptor)

    def _pwrite_all(self, descriptor: int, data: bytes, offset: int, epoch: int) -> None:
        view = memoryview(data)
        while view:
            self._require_unhealed(epoch)
            written = self._calls.pwrite(descriptor, view, offset)
            if written <= 0:
                raise OSError(errno.EIO, f"pwrite returned {written}")
            view, offset = view[written:], offset + written

    # Healing

    def heal(self, backlog: Backlog) -> None:
        self._healing = True
        try:
            with self._placing:
                self._heal(backlog)
        finally:
            self._healing = False

    def _heal(self, backlog: Backlog) -> None:
        if self._fence is not None:
            self._fence()
        if not self._file.is_open:
            self.create(backlog)
            return
        self._file.find_again(first_line=self.first_line, durable_offset=backlog.durable_offset)
        if self._torn_from is not None:
            self._mend_torn_tail(self._torn_from, backlog)
        size = self._file.size()
        if size < backlog.durable_offset:
            size = self._note_gap(size, backlog)
        overwritten = not self._durable_stands(backlog.durable_offset)
        self._settle(self._compare(backlog, size), backlog, size)
        if overwritten:
            self._note_overwritten(backlog)

    def _compare(self, backlog: Backlog, size: int) -> Standing:
        touched = [*backlog.handed]
        if backlog.waiting:
            touched.append(backlog.waiting[0])
        return compare(touched, start=backlog.durable_offset, size=size, read=self._file.read)

    def _mend_torn_tail(self, offset: int, backlog: Backlog) -> None:
        """What a dead process left of its last line, from `offset` on: set aside, then cut or ended."""
        size = self._file.size()
        if size > self.end_bytes:
            # Somebody went on behind it, or inside it: it is theirs now.
            self._torn_from = None
            return
        # What we cut ourselves is no gap; what others cut before it is.
        if size > offset:
            self._set_aside(offset, size)
            backlog.durable_offset = self.end_bytes
        else:
            backlog.durable_offset = offset
        self._torn_from = None

    def _set_aside(self, offset: int, end: int) -> None:
        """Copy the end of the file to a kept file; then cut it off, or end it where cutting is forbidden."""
        if self._kept != (offset, end):
            keep_torn_tail(self._file.descriptor, offset, end, self.path, calls=self._calls)
            self._kept = (offset, end)
        if self._cut(offset):
            self.end_bytes = offset
        else:
            self.end_bytes = end
            self._needs_newline = True
        if self._suspect is not None:
            self._suspect = (min(self._suspect[0], self.end_bytes), min(self._suspect[1], self.end_bytes))

    def _settle(self, standing: Standing, backlog: Backlog, size: int) -> None:
        """Make sink and backlog agree with what stands in the file."""
        for chunk, offset in standing.placed:
            chunk.offset, chunk.handed = offset, len(chunk.data)
        self.end_bytes = size
        if standing.broken is not None:
            backlog.requeue(standing.broken)
            self._settle_broken(standing.broken, standing, backlog)
        backlog.pass_written()
        if standing.foreign_bytes:
            # Not where a line of ours is completed from the exact byte.
            self._needs_newline = not self._goes_on(backlog) and self._is_unended()
            _log.warning(
                "%s: %d bytes of another writer stand among ours; they stay",
                self.path,
                standing.foreign_bytes,
            )
        self.epoch += 1

    def _settle_broken(self, chunk: Chunk, standing: Standing, backlog: Backlog) -> None:
        boundary = whole_lines(chunk.data, standing.broken_bytes)
        offset = standing.broken_offset
        if standing.foreign_behind:
            # Whole lines of ours count; the rest lands behind the other's bytes, at another offset.
            backlog.split(chunk, boundary, offset=offset)
        elif boundary == standing.broken_bytes or (
            not standing.foreign_bytes and self._cut(offset + boundary)
        ):
            chunk.offset, chunk.handed = offset, boundary
            self.end_bytes = offset + boundary
        else:
            chunk.offset, chunk.handed = offset, standing.broken_bytes

    @staticmethod
    def _goes_on(backlog: Backlog) -> bool:
        """Whether what is written next completes a chunk in its place."""
        return bool(backlog.waiting and backlog.waiting[0].handed)

    def _is_unended(self) -> bool:
        """Whether the file's last line lacks its newline."""
        return self._file.read(max(0, self.end_bytes - 1), 1) not in (b"\n", b"")

    def _note_gap(self, size: int, backlog: Backlog) -> int:
        """Durable bytes are gone: end the file on a line border, and name what is missing (G1).

        Returns the file's size afterwards.
        """
        border = self._last_border(size)
        lost = backlog.durable_offset - border
        if border < size:
            self._set_aside(border, size)
        size = self._file.size()
        first = next(iter(backlog), None)
        if first is not None:
            backlog.requeue(first)  # gone with them; the note goes before all of it
        note = self._gap_note(lost, "truncated", backlog)
        backlog.insert_first(self._lost_header(border) + note)
        backlog.durable_offset = size
        self._suspect = None
        _log.warning("%s: %d durable bytes were destroyed by another program", self.path, lost)
        return size

    def _tail_before(self, offset: int, descriptor: int) -> tuple[int, bytes]:
        begin = max(0, offset - _DURABLE_TAIL_BYTES)
        return offset, self._file.read(begin, offset - begin, descriptor=descriptor)

    def _durable_stands(self, offset: int) -> bool:
        """Whether what stands before the durable offset is what was synced, as far as that is known."""
        known, tail = self._durable_tail
        return offset != known or self._file.read(offset - len(tail), len(tail)) == tail

    def _note_overwritten(self, backlog: Backlog) -> None:
        """Durable bytes were destroyed and others stand in their place. How many can't be told: the gap
        names those that are known to be gone (G1)."""
        known, tail = self._durable_tail
        if self._goes_on(backlog):
            first = backlog.waiting[0]
            # A line that lacks its newline only stands: the one before the note ends it.
            unended = first.data.startswith(b"\n", first.handed)
            size = first.handed if unended else whole_lines(first.data, first.handed)
            backlog.split(first, size, offset=first.offset)
            first.handed, first.offset = 0, -1
        note = self._gap_note(len(tail), "overwritten", backlog)
        backlog.insert_first(self._lost_header(self.end_bytes) + note)
        self._needs_newline = self._is_unended()
        self._durable_tail = (-1, b"")
        _log.warning("%s: another program wrote over durable bytes before byte %d", self.path, known)

    def _lost_header(self, size: int) -> bytes:
        """The meta line, if it isn't whole among the first `size` bytes; then it is written again."""
        end = header_end(self.first_line, self._file.read)
        return self.first_line if end is None or end > size else b""

    def _gap_note(self, lost: int, cause: str, backlog: Backlog) -> bytes:
        """The gap's line. It stands before lines that were stamped earlier, so it takes their time."""
        note = self._gap_line(lost, cause, backlog.note_ms)
        following = _STAMP.search(backlog.waiting[0].data) if backlog.waiting else None
        return note if following is None else _STAMP.sub(following.group(), note, count=1)

    def _last_border(self, size: int) -> int:
        """The offset behind the last newline before `size`."""
        position = size
        while position > 0:
            begin = max(0, position - _BLOCK_BYTES)
            found = self._file.read(begin, position - begin).rfind(b"\n")
            if found >= 0:
                return begin + found + 1
            position = begin
        return 0

    def close(self) -> None:
        self.epoch += 1  # a sync that still hangs must place nothing any more
        self._file.close()
        if self._on_close is not None:
            self._on_close()

    def close_in_child(self) -> None:
        self._file.close_in_child()
        self._file.let_go(self._sync_descriptor)
