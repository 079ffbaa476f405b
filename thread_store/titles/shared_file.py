"""A small file of lines that several programs append to: names, prompts, labels.

Invariant: a line is appended whole, by one write behind the end, while a lock is held that other writers wait
for; what stands in the file already never changes. A line that somebody else left unfinished stays apart:
ours begins on a line of its own. A short write is taken back, so that no half line of ours stays.

Where there is no flock it is done without: O_APPEND keeps the lines apart all the same. Mode 0600; no link is
written through. Blocking: the lock is waited for, for about a second.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from protocol.errors import RolloutUnreadable, RolloutWriteError
from rollout.syscalls import FileCalls

if sys.platform != "win32":
    import fcntl

__all__ = ["ATTEMPTS", "SharedCalls", "SharedFile"]

ATTEMPTS = 10
_PAUSE_SECONDS = 0.1
_SAFE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
_NO_FLOCK = frozenset(
    {errno.EBADF, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL}
)
_HINT = "Nothing was written; try again when the cause is gone"


class SharedCalls(FileCalls):
    """The calls that only these files need."""

    def open_or_make(self, path: str) -> int:
        """Open to read and append; made with mode 0600 if it isn't there. Links are refused."""
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | _SAFE, 0o600)
        os.fchmod(descriptor, 0o600)
        return descriptor

    def try_lock(self, descriptor: int) -> bool:
        """Take the flock without waiting. True also where the file system has none."""
        if sys.platform == "win32":
            return True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno not in _NO_FLOCK:
                raise
        return True

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class SharedFile:
    """One file of lines. `lock_path`: the file that is locked, if it isn't this one itself."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        lock_path: str | os.PathLike[str] | None = None,
        calls: SharedCalls | None = None,
    ) -> None:
        self.path = os.fspath(path)
        self._lock_path = None if lock_path is None else os.fspath(lock_path)
        self._calls = calls or SharedCalls()

    # Reading

    def read(self) -> bytes:
        """The whole content; nothing if there is no such file.

        Raises:
            RolloutUnreadable: the system refuses, or no plain file stands there.
        """
        try:
            with open(os.open(self.path, os.O_RDONLY | _SAFE), "rb", buffering=0) as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise OSError(errno.EINVAL, "it is no plain file")
                return file.readall()
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise RolloutUnreadable(path=self.path, cause=error, operation="read") from error

    def status(self) -> tuple[int, int, int] | None:
        """Size, time of change in ns, and inode: by these a reader knows that nothing was appended."""
        try:
            found = os.lstat(self.path)
        except OSError:
            return None  # whoever reads it will say so
        return found.st_size, found.st_mtime_ns, found.st_ino

    # Appending

    def append(self, line: bytes) -> None:
        """Append a line, with its newline. On return it is on stable storage.

        Raises:
            RolloutWriteError: the lock can't be had in time, or the system refuses; nothing was appended.
        """
        from rollout.kept import make_folders  # readers don't need what it needs

        try:
            make_folders(self._calls, Path(self.path).parent)
            with self._locked() as descriptor:
                self._append(descriptor, line)
        except OSError as error:
            raise RolloutWriteError(path=self.path, operation="append", cause=error, hint=_HINT) from error

    def _append(self, descriptor: int, line: bytes) -> None:
        size = self._calls.fstat(descriptor).st_size
        torn = size > 0 and self._calls.pread(descriptor, 1, size - 1) != b"\n"
        data = b"\n" + line if torn else line
        try:
            written = self._calls.write(descriptor, data)
            if written != len(data):
                raise OSError(errno.ENOSPC, f"only {written} of {len(data)} bytes were written")
            self._calls.datasync(descriptor)
        except OSError:
            if self._calls.fstat(descriptor).st_size <= size + len(data):  # nobody wrote behind us
                self._calls.truncate(descriptor, size)
            raise

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """The file, open to append, while the lock is held and the path still means it."""
        if self._lock_path is None:
            with self._opened(self.path, lambda each: self._take(each, self.path)) as descriptor:
                yield descriptor
            return
        lock_path = self._lock_path
        with (
            self._opened(lock_path, lambda each: self._take(each, lock_path)),
            self._opened(self.path, lambda _: True) as descriptor,
        ):
            yield descriptor

    @contextmanager
    def _opened(self, path: str, take: Callable[[int], bool]) -> Iterator[int]:
        for attempt in range(ATTEMPTS):
            if attempt:
                self._calls.sleep(_PAUSE_SECONDS)
            descriptor = self._calls.open_or_make(path)
            try:
                if not stat.S_ISREG(self._calls.fstat(descriptor).st_mode):
                    raise OSError(errno.EINVAL, "it is no plain file")
                if take(descriptor):
                    yield descriptor
                    return
            finally:
                self._calls.close(descriptor)
        raise TimeoutError(errno.ETIMEDOUT, "another program keeps it locked")

    def _take(self, descriptor: int, path: str) -> bool:
        """False: somebody holds it, or has put another file into its place."""
        if not self._calls.try_lock(descriptor):
            return False
        ours = self._calls.fstat(descriptor)
        try:
            there = self._calls.lstat(path)
        except FileNotFoundError:
            return False
        return (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino)
