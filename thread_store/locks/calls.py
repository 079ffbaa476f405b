"""Every system call of the locks, in one place, so that tests can make each of them fail.

Invariant: no other module of this package makes, changes, locks or removes a file. A system without
flock (Windows) answers as a file system without it does: `FlockUnsupported`.
"""

from __future__ import annotations

import errno
import os
import sys
import time

if sys.platform != "win32":
    import fcntl

__all__ = ["FILE_MODE", "FOLDER_MODE", "FlockUnsupported", "LockCalls", "try_flock"]

FILE_MODE = 0o600
FOLDER_MODE = 0o700

_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
# O_NONBLOCK: a FIFO or a device at the path must not hang the open; on regular files it means nothing.
_SAFE = _NOFOLLOW | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_UNSUPPORTED = frozenset(
    {errno.EBADF, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL}
)


class FlockUnsupported(OSError):
    """There is no flock here; leases take its place."""


class LockCalls:
    """The calls as methods. All raise OSError."""

    def open(self, path: str, *, create: bool) -> int:
        """Open to read and write; made with mode 0600 if it may be and isn't there. No link is followed."""
        return os.open(path, os.O_RDWR | _SAFE | (os.O_CREAT if create else 0), FILE_MODE)

    def open_new(self, path: str) -> int:
        """Make a file that isn't there yet (EEXIST), mode 0600."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _SAFE, FILE_MODE)

    def make_private(self, descriptor: int) -> None:
        """Give a file that we made its mode in spite of the umask."""
        if sys.platform != "win32":
            os.fchmod(descriptor, FILE_MODE)

    def open_to_read(self, path: str) -> int:
        return os.open(path, os.O_RDONLY | _SAFE)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def flock(self, descriptor: int) -> None:
        """Take the lock without waiting (BlockingIOError)."""
        if sys.platform == "win32":
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def unlock(self, descriptor: int) -> None:
        """Give the lock up for every descriptor of this opening, inherited ones included."""
        if sys.platform != "win32":
            fcntl.flock(descriptor, fcntl.LOCK_UN)

    def fstat(self, descriptor: int) -> os.stat_result:
        return os.fstat(descriptor)

    def lstat(self, path: str) -> os.stat_result:
        return os.lstat(path)

    def read(self, descriptor: int, size: int) -> bytes:
        """The first `size` bytes of the file."""
        os.lseek(descriptor, 0, os.SEEK_SET)
        return os.read(descriptor, size)

    def overwrite(self, descriptor: int, data: bytes) -> None:
        """Put `data` in place of the content, by one write: a reader never sees the file empty meanwhile."""
        os.lseek(descriptor, 0, os.SEEK_SET)
        if (written := os.write(descriptor, data)) != len(data):
            raise OSError(errno.ENOSPC, f"only {written} of {len(data)} bytes were written")
        os.ftruncate(descriptor, len(data))

    def link(self, source: str, target: str) -> None:
        os.link(source, target)

    def replace(self, source: str, target: str) -> None:
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def touch(self, path: str) -> None:
        """Set the file's time to now, by the clock of whoever keeps the file."""
        os.utime(path, follow_symlinks=os.utime not in os.supports_follow_symlinks)

    def make_folder(self, path: str) -> None:
        """Make one folder, mode 0700 whatever the umask. EEXIST if it is there."""
        os.mkdir(path, FOLDER_MODE)
        os.chmod(path, FOLDER_MODE)

    def sync_folder(self, path: str) -> None:
        """Bring the entries of a folder to stable storage."""
        if sys.platform != "win32":
            descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def names_in(self, folder: str) -> list[str]:
        return sorted(os.listdir(folder))

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def try_flock(calls: LockCalls, descriptor: int) -> bool:
    """Take the lock. False: another descriptor holds it.

    Raises:
        FlockUnsupported: there is none to be had here.
        OSError: the system refuses for another reason.
    """
    try:
        calls.flock(descriptor)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in _UNSUPPORTED:
            raise FlockUnsupported(error.errno, error.strerror or str(error)) from error
        raise
    return True
