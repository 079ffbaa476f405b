"""Every system call of the file sink, in one place, so that tests can make each of them fail.

Invariant: nothing else in `rollout` writes to a live rollout. The functions add nothing to
the system's own but what differs between systems (macOS: a sync is F_FULLFSYNC, because
fsync(2) there stops at the drive's cache).
"""

from __future__ import annotations

import logging
import os
import stat
import sys

if sys.platform == "darwin":
    import fcntl

__all__ = ["FILE_MODE", "FOLDER_MODE", "FileCalls", "drop", "let_go"]

_log = logging.getLogger("rollout.writer")

FILE_MODE = 0o600
FOLDER_MODE = 0o700

_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_CLOEXEC = getattr(os, "O_CLOEXEC", 0)
# O_NONBLOCK: a FIFO or device at the path must not hang the open; on regular files it means nothing.
_SAFE = _NOFOLLOW | _CLOEXEC | getattr(os, "O_NONBLOCK", 0)


class FileCalls:
    """The calls as methods. All raise OSError; `write` and `pwrite` may return short."""

    def open_append(self, path: str) -> int:
        """Open an existing file to read and append. Symlinks are refused (ELOOP)."""
        return os.open(path, os.O_RDWR | os.O_APPEND | _SAFE)

    def open_read(self, path: str) -> int:
        """Open to read. Symlinks are refused (ELOOP)."""
        return os.open(path, os.O_RDONLY | _SAFE)

    def open_new(self, path: str) -> int:
        """Make a file that isn't there yet (EEXIST), mode 0600 whatever the umask."""
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | _SAFE, FILE_MODE)
        os.fchmod(descriptor, FILE_MODE)
        return descriptor

    def open_overwrite(self, path: str) -> int:
        """Open without O_APPEND: on an O_APPEND descriptor pwrite(2) appends on Linux (its BUGS section)."""
        return os.open(path, os.O_WRONLY | _SAFE)

    def open_folder(self, path: str) -> int:
        return os.open(path, os.O_RDONLY | _CLOEXEC)

    def dup(self, descriptor: int) -> int:
        return os.dup(descriptor)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def write(self, descriptor: int, data: memoryview | bytes) -> int:
        return os.write(descriptor, data)

    def pwrite(self, descriptor: int, data: memoryview | bytes, offset: int) -> int:
        return os.pwrite(descriptor, data, offset)

    def pread(self, descriptor: int, size: int, offset: int) -> bytes:
        return os.pread(descriptor, size, offset)

    def fstat(self, descriptor: int) -> os.stat_result:
        return os.fstat(descriptor)

    def lstat(self, path: str) -> os.stat_result:
        return os.lstat(path)

    def truncate(self, descriptor: int, size: int) -> None:
        os.ftruncate(descriptor, size)

    def datasync(self, descriptor: int) -> None:
        """Bring the data, and the size it needs to be read back, to stable storage (fdatasync(2))."""
        if sys.platform == "darwin":
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
        elif hasattr(os, "fdatasync"):
            os.fdatasync(descriptor)
        else:
            os.fsync(descriptor)

    def sync_folder(self, path: str) -> None:
        """Bring the entries of a folder to stable storage."""
        descriptor = self.open_folder(path)
        try:
            os.fsync(descriptor)
        finally:
            drop(descriptor, path)

    def make_folder(self, path: str) -> None:
        """Make one folder, mode 0700 whatever the umask. EEXIST if it is there."""
        os.mkdir(path, FOLDER_MODE)
        os.chmod(path, FOLDER_MODE)

    def link(self, source: str, target: str) -> None:
        os.link(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def rename(self, source: str, target: str) -> None:
        """Give a file another name; replaces what stands there."""
        os.rename(source, target)

    def set_look(self, descriptor: int, status: os.stat_result) -> None:
        """Give a file the owner, mode and times of another one."""
        here = os.fstat(descriptor)
        if (here.st_uid, here.st_gid) != (status.st_uid, status.st_gid):
            os.fchown(descriptor, status.st_uid, status.st_gid)
        os.fchmod(descriptor, stat.S_IMODE(status.st_mode))
        os.utime(descriptor, ns=(status.st_atime_ns, status.st_mtime_ns))

    def current_path(self, descriptor: int) -> str | None:
        """Where the file of an open descriptor lies now, where the system can tell.

        The name there is the one it was opened by, as long as that lives (proc(5)): a file that was linked to
        its place from a temporary name has none.
        """
        try:
            name = os.readlink(f"/proc/self/fd/{descriptor}")
            return name if os.path.samestat(os.lstat(name), os.fstat(descriptor)) else None
        except OSError:  # no /proc on this system, or the name is gone: the answer is unknown
            return None

    @staticmethod
    def is_regular(status: os.stat_result) -> bool:
        return stat.S_ISREG(status.st_mode)


def let_go(calls: FileCalls, descriptor: int, path: str) -> None:
    """Close. An error changes nothing: the descriptor is gone all the same (close(2)), its number may be
    somebody else's already, and what counts was synced. It must not hide an error that came before."""
    try:
        calls.close(descriptor)
    except OSError as error:
        _log.info("%s: closing it was reported as failed: %s", path, error)


def drop(descriptor: int, path: str | os.PathLike[str]) -> None:
    """As `let_go`, of what was only read, synced or held for its lock."""
    try:
        os.close(descriptor)
    except OSError as error:
        _log.info("%s: closing it was reported as failed: %s", os.fspath(path), error)
