"""The coordination lock of a home: taken before any lock file is made, locked or removed, as Codex does.

Invariant: who holds it sees no lock file come or go by the hand of anybody who keeps to the protocol.
It is held for moments. Its file stays for ever. Waiting is polling, because a blocking flock
can't be given up: a stopped process must not stop everybody else without a word.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from thread_store.locks.calls import LockCalls
from thread_store.locks.errors import LocksBusy
from thread_store.locks.folder import LockFolder
from thread_store.locks.lock_file import LockFile

__all__ = ["COORDINATION_SECONDS", "CoordinationLock"]

COORDINATION_SECONDS = 10.0
"""How long somebody waits for it by default."""

_POLL_SECONDS_MIN, _POLL_SECONDS_MAX = 0.0005, 0.02
_POLL_GROWTH = 1.5


class CoordinationLock:
    """The lock of one home."""

    def __init__(self, folder: LockFolder, calls: LockCalls, seconds: float = COORDINATION_SECONDS) -> None:
        """`seconds`: how long somebody waits for it who doesn't say otherwise."""
        self._folder = folder
        self._calls = calls
        self._seconds = seconds

    @contextmanager
    def held(self, timeout: float | None = None) -> Iterator[None]:
        """Hold it for as long as the block runs. Raises as `take` does."""
        file = self.take(timeout)
        try:
            yield
        finally:
            file.close()

    def take(self, timeout: float | None = None) -> LockFile:
        """Take it; closing the file gives it back. It can't be held twice, not by one thread either.

        Raises:
            LocksBusy: it could not be had within `timeout` seconds.
            FlockUnsupported: there is no flock here.
            OSError: the system refuses.
        """
        timeout = self._seconds if timeout is None else timeout
        self._folder.make()
        return self._wait(self._calls.monotonic() + timeout, timeout)

    def _wait(self, deadline: float, timeout: float) -> LockFile:
        pause = _POLL_SECONDS_MIN
        file = self._open()
        while not self._take(file):
            left = deadline - self._calls.monotonic()
            if left <= 0:
                raise self._busy(file, timeout)
            self._calls.sleep(min(pause, left))
            pause = min(pause * _POLL_GROWTH, _POLL_SECONDS_MAX)
            if not file.stands_at_path():  # somebody cleaned the home: that file is nobody's lock any more
                file.close()
                file = self._open()
        return file

    def _open(self) -> LockFile:
        return LockFile(self._folder.coordination_path, self._calls, create=True)

    def _take(self, file: LockFile) -> bool:
        try:
            return file.try_lock() and file.stands_at_path()
        except BaseException:
            file.close()
            raise

    def _busy(self, file: LockFile, timeout: float) -> LocksBusy:
        try:
            return LocksBusy(path=file.path, seconds=timeout, holder=file.name_holder())
        finally:
            file.close()
