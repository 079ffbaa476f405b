"""Blobs that nothing in a home names any more, for who removes them.

Invariant: a blob counts as unreferenced only if every file that could name it was read to its end, and if
nobody placed it lately. What can't be read keeps all of them. Nothing is removed but by `remove_blob`.

Theory of operation. A writer places a blob before the line that names it, and one that is there already gets
a new time then; so what is younger than `min_age_seconds` may be named in a moment. Files are read as
streams of bytes, no line is parsed. What changed, moved or came meanwhile is read again under the
coordination lock, under which no file is archived, compressed or removed.
"""

from __future__ import annotations

import logging
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from msgspec import Struct

from protocol.blobs import BLOB_NAME
from protocol.errors import RolloutError, RolloutUnreadable
from rollout.blobs import BLOB_FOLDER, BlobFolder
from rollout.kept import spill_folder
from rollout.lines import Break
from rollout.paths import ARCHIVED_FOLDER, SESSIONS_FOLDER
from rollout.source import ByteSource, is_compressed, open_source
from rollout.stream import decoded_blocks
from rollout.syscalls import FileCalls, drop
from thread_store.home import Home

__all__ = [
    "MIN_AGE_SECONDS",
    "UnreferencedBlob",
    "UnreferencedBlobs",
    "find_unreferenced_blobs",
    "remove_blob",
]

_log = logging.getLogger("thread_store")

MIN_AGE_SECONDS = 86_400.0
"""A day: no writer holds a blob for as long before it writes the line."""

_BLOCK_BYTES = 1 << 20
_OVERLAP_BYTES = 128
"""More than a name and what stands before it have."""
_READ = (
    os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
)


class UnreferencedBlob(Struct, frozen=True):
    """A blob that no record names, or what was left of placing one (`temporary`)."""

    path: str
    size_bytes: int
    modified_ns: int
    temporary: bool = False


class UnreferencedBlobs(Struct, frozen=True):
    """What was found. Where something was `passed_over`, nothing counts as unreferenced."""

    blobs: tuple[UnreferencedBlob, ...]
    referenced: int
    """How many blobs there are that some record names, or that are too young to tell."""
    passed_over: tuple[RolloutUnreadable, ...] = ()
    """What could not be read, so that it may name any of them."""

    @property
    def size_bytes(self) -> int:
        """How much room they take."""
        return sum(each.size_bytes for each in self.blobs)


def find_unreferenced_blobs(
    home: Home,
    *,
    coordination: AbstractContextManager[object],
    min_age_seconds: float = MIN_AGE_SECONDS,
    now: float | None = None,
    progress: Callable[[int], None] = lambda count: None,
) -> UnreferencedBlobs:
    """Read all rollouts of a home, live, archived and compressed, and what was set aside of them. Blocks.

    Args:
        coordination: the coordination lock of the home (`ThreadLocks(home.path).coordinated()`), taken for
            the end of the search.
        min_age_seconds: younger blobs are left out.
        now: what counts as now, in seconds since the epoch.
        progress: called with how many bytes were looked through since the last call.

    Raises:
        RolloutUnreadable: the folder of blobs is there and can't be listed.
    """
    now_ns = time.time_ns() if now is None else int(now * 1e9)
    search = _Search(home, before_ns=now_ns - int(min_age_seconds * 1e9), progress=progress)
    if search.candidates:
        search.read_new()
        with coordination:
            search.read_new()
    return search.result()


def remove_blob(blob: UnreferencedBlob, *, calls: FileCalls | None = None) -> bool:
    """Remove a blob that was found, unless it was placed again since. Returns whether it went. To be called
    under the coordination lock.

    Raises:
        OSError: the system refuses.
    """
    calls = calls or FileCalls()
    try:
        status = calls.lstat(blob.path)
        if not stat.S_ISREG(status.st_mode) or status.st_mtime_ns != blob.modified_ns:
            return False
        calls.unlink(blob.path)
    except FileNotFoundError:
        return False
    return True


class _Search:
    """The blobs that nobody was seen to name yet."""

    def __init__(self, home: Home, *, before_ns: int, progress: Callable[[int], None]) -> None:
        self._home = home
        self._progress = progress
        self._folder = BlobFolder(home.path / BLOB_FOLDER)
        self._read_upto: dict[tuple[int, int], int] = {}
        """By device and inode: the border up to which a file was read. What stands before it only an erase
        may change, which names nothing new. Of a compressed one: its size."""
        self._passed_over: dict[str, RolloutUnreadable] = {}
        self._temporary: list[UnreferencedBlob] = []
        self._count = 0
        self.candidates: dict[str, UnreferencedBlob] = {}
        try:
            entries = [*self._folder.entries()]
        except OSError as error:
            raise RolloutUnreadable(path=self._folder.path, cause=error, operation="list") from error
        for name, status in entries:
            temporary = name.startswith(".")
            self._count += not temporary
            if status.st_mtime_ns >= before_ns:
                continue
            path = os.path.join(self._folder.path, name)
            blob = UnreferencedBlob(path, status.st_size, status.st_mtime_ns, temporary)
            if temporary:
                self._temporary.append(blob)
            else:
                self.candidates[name] = blob

    def read_new(self) -> None:
        """Read every file that wasn't read as it is now."""
        self._passed_over = {}
        for path in self._files():
            if not self.candidates:
                return
            try:
                self._read(path)
            except FileNotFoundError:
                continue  # moved; it is met again at its new place, if not now then under the lock
            except (OSError, RolloutError) as error:
                cause = error if isinstance(error, OSError) else OSError(str(error))
                self._passed_over[str(path)] = RolloutUnreadable(path=path, cause=cause, operation="read")

    def _files(self) -> Iterator[Path]:
        for name in (SESSIONS_FOLDER, ARCHIVED_FOLDER, "thread-store/kept"):
            yield from self._walk(self._home.path / name)
        spilt = spill_folder(tempfile.gettempdir())
        if _is_own(spilt):
            yield from self._walk(spilt)

    def _walk(self, folder: Path) -> Iterator[Path]:
        try:
            with os.scandir(folder) as listing:
                entries = list(listing)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            self._passed_over[str(folder)] = RolloutUnreadable(path=folder, cause=error, operation="list")
            return
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from self._walk(folder / entry.name)
            elif entry.is_file(follow_symlinks=False):
                yield folder / entry.name

    def _read(self, path: Path) -> None:
        descriptor = os.open(path, _READ)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                return
            identity = (status.st_dev, status.st_ino)
            upto = self._read_upto.get(identity, 0)
            if upto < status.st_size:
                source = open_source(descriptor, name=os.fspath(path))
                self._read_upto[identity] = self._read_from(source, upto, status.st_size)
        finally:
            drop(descriptor, path)

    def _read_from(self, source: ByteSource, upto: int, size: int) -> int:
        """Returns up to where it need not be read again."""
        if is_compressed(source.read_at(4, 0)):
            self._strike(block for block in decoded_blocks(source, _BLOCK_BYTES))
            return size
        source.position = upto
        return upto + self._strike(iter(lambda: source.read(_BLOCK_BYTES), b""))

    def _strike(self, blocks: Iterable[bytes | Break]) -> int:
        """Strike out what these bytes name; returns how many of them are whole lines."""
        tail, position, border = b"", 0, 0
        for block in blocks:
            if isinstance(block, Break):
                raise OSError(block.message)
            data = tail + block
            for found in BLOB_NAME.finditer(data):
                self.candidates.pop(found[1].decode(), None)
            tail = data[-_OVERLAP_BYTES:]
            newline = block.rfind(b"\n")
            border = border if newline < 0 else position + newline + 1
            position += len(block)
            self._progress(len(block))
        return border

    def result(self) -> UnreferencedBlobs:
        """What is left, if everything could be read."""
        passed_over = tuple(self._passed_over.values())
        for each in passed_over:
            _log.warning("blobs can't be told from unreferenced ones: %s", each)
        blobs = () if passed_over else (*self.candidates.values(), *self._temporary)
        named = self._count - len(self.candidates)
        return UnreferencedBlobs(blobs, named, passed_over)


def _is_own(folder: Path) -> bool:
    """Whether nobody else can have put it there."""
    try:
        status = os.lstat(folder)
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(status.st_mode) and (not hasattr(os, "geteuid") or status.st_uid == os.geteuid())
