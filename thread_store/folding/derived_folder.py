"""Derived files: small files that hold what is known of a rollout, and may be deleted at any time.

Invariant: one that is read is whole, byte for byte what was written, or counts as not there. It is
replaced by rename, under a guard, so that nobody's older one takes the place of a newer one. None is
ever the truth, so nothing is synced: what a power cut leaves of one doesn't have the checksum that
stands in its first line. Mode 0600 in a folder of 0700; links are refused.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from protocol.ids import ThreadId
from rollout.guarded_replace import replace_file
from rollout.syscalls import FILE_MODE, FileCalls, drop

if sys.platform != "win32":
    import fcntl

__all__ = ["DERIVED_BYTES_MAX", "DerivedFolder"]

DERIVED_BYTES_MAX = 4 << 20
"""A larger file isn't read, and isn't written."""

_DIGEST_CHARS = 64
_READ = (
    os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
)
_GUARD = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)


class DerivedFolder:
    """`<home>/thread-store/derived/`. It is made with the first file."""

    def __init__(self, home: str | os.PathLike[str], *, calls: FileCalls | None = None) -> None:
        self._parent = os.path.join(os.path.realpath(home), "thread-store")
        self.path = os.path.join(self._parent, "derived")
        self._calls = calls or FileCalls()

    def file_path(self, rollout_id: ThreadId) -> str:
        """Where the file of a rollout stands."""
        return os.path.join(self.path, f"{rollout_id}.snapshot")

    def read(self, rollout_id: ThreadId) -> bytes | None:
        """The content; None if there is none, or it isn't whole, or no plain file stands there.

        Raises:
            OSError: the system refuses.
        """
        try:
            descriptor = os.open(self.file_path(rollout_id), _READ)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO):
                return None
            raise
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_size > DERIVED_BYTES_MAX:
                return None
            return _checked(self._read_all(descriptor, status.st_size))
        finally:
            drop(descriptor, self.path)

    def _read_all(self, descriptor: int, size: int) -> bytes:
        parts: list[bytes] = []
        while size > 0 and (part := self._calls.pread(descriptor, size, sum(map(len, parts)))):
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def replace(
        self, rollout_id: ThreadId, content: bytes, *, gives_way: Callable[[bytes | None], bool]
    ) -> bool:
        """Put a file in the place of the one that is there, if that one gives way. Returns whether it did.

        Raises:
            OSError: the system refuses; what was there is there still.
        """
        if len(content) > DERIVED_BYTES_MAX - _DIGEST_CHARS - 1:
            return False
        self._make()
        with self._guarded():
            if not gives_way(self.read(rollout_id)):
                return False
            self._write(self.file_path(rollout_id), _digest(content) + b"\n" + content)
            return True

    def remove(self, rollout_id: ThreadId) -> None:
        """Remove the file of a rollout, if it is there.

        Raises:
            OSError: the system refuses.
        """
        try:
            self._calls.unlink(self.file_path(rollout_id))
        except (FileNotFoundError, NotADirectoryError):
            return

    def _write(self, path: str, data: bytes) -> None:
        def fill(descriptor: int) -> None:
            view = memoryview(data)
            while view:
                view = view[self._calls.write(descriptor, view) :]

        replace_file(path, fill, calls=self._calls, durable=False)

    def _make(self) -> None:
        """No link is followed: what stands in the place of a folder must be one."""
        for folder in (self._parent, self.path):
            try:
                self._calls.make_folder(folder)
            except FileExistsError:
                if not stat.S_ISDIR(os.lstat(folder).st_mode):
                    raise

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """One at a time, over all processes, where the file system has flock."""
        descriptor = os.open(os.path.join(self.path, ".guard"), _GUARD, FILE_MODE)
        try:
            if sys.platform != "win32":
                _lock(descriptor)
            yield
        finally:
            drop(descriptor, self.path)


def _lock(descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EBADF):
            raise


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()


def _checked(data: bytes) -> bytes | None:
    digest, content = data[:_DIGEST_CHARS], data[_DIGEST_CHARS + 1 :]
    return (
        content if data[_DIGEST_CHARS : _DIGEST_CHARS + 1] == b"\n" and digest == _digest(content) else None
    )
