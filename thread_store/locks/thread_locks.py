"""The locks of a home's threads: who may write, over all processes that keep to the protocol, Codex included.

Invariant: of a thread at most one `WriterLock` verifies at any time, whatever is killed, stopped or forked.
All calls block, for the disk and for the coordination lock: make them off the loop.

By flock where there is one (`flocks`), else by leases (`lease`). The first file system call that says so
decides, for good: a home lies on one file system.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from protocol.errors import WriterHolder
from protocol.ids import ThreadId
from thread_store.locks.calls import FlockUnsupported, LockCalls
from thread_store.locks.coordination import COORDINATION_SECONDS, CoordinationLock
from thread_store.locks.flocks import Flocks
from thread_store.locks.folder import LockFolder, translated
from thread_store.locks.lease import Leases
from thread_store.locks.seen import SeenLock
from thread_store.locks.writer_lock import WriterLock

__all__ = ["ThreadLocks"]

_log = logging.getLogger("rollout.locks")

_COORDINATION = ThreadId("00000000-0000-0000-0000-000000000000")
"""No thread's id: the lease that stands for the coordination lock where there is no flock."""

_T = TypeVar("_T")


class ThreadLocks:
    """The locks of one home. Safe from any thread; needs no closing."""

    def __init__(
        self,
        home: str | os.PathLike[str],
        *,
        coordination_seconds: float = COORDINATION_SECONDS,
        calls: LockCalls | None = None,
    ) -> None:
        """
        Args:
            home: need not exist. Links in it are resolved, so that each way to it leads to the same locks.
            coordination_seconds: how long to wait for the coordination lock, which is held for moments only.
        """
        self._calls = calls or LockCalls()
        self._folder = LockFolder(home, self._calls)
        self._coordination_seconds = coordination_seconds
        self._coordination = CoordinationLock(self._folder, self._calls, coordination_seconds)
        self._flocks = Flocks(self._folder, self._calls, self._coordination)
        self._leases = Leases(self._folder, self._calls)
        self._has_flock = True

    def __repr__(self) -> str:
        return f"ThreadLocks({os.path.dirname(self._folder.path)!r})"

    def acquire(self, thread_id: str) -> WriterLock:
        """Take the lock of a thread. Never waits for its holder; waits for the coordination lock.

        Raises:
            ActiveWriter: somebody holds it, perhaps this process; the error names them.
            LocksBusy: the coordination lock could not be had in time.
            RolloutUnreadable: something else stands where the lock file belongs, or the system refuses.
            InvalidThreadId: the id is no UUID.
        """
        wanted = ThreadId.parse(thread_id)
        return self._run(wanted, lambda: self._flocks.acquire(wanted), lambda: self._leases.acquire(wanted))

    def take_over(self, thread_id: str) -> tuple[WriterLock, WriterHolder | None]:
        """Take the lock of a thread from whoever holds it, by force; returns also who that was.

        The old holder is not stopped: it finds out when it next asks its own lock (`WriterFenced`), and
        what it had begun to write by then it may still write. None: nobody held it.

        A Codex that goes on removes the file at the path when it ends, whosever it is; the lock that was
        taken from it is lost then. Kill it, or let it end first.

        Raises:
            ActiveWriter: another take-over is under way.
            LocksBusy: the coordination lock could not be had in time.
            RolloutUnreadable: something else stands where the lock file belongs, or the system refuses.
            InvalidThreadId: the id is no UUID.
        """
        wanted = ThreadId.parse(thread_id)
        return self._run(
            wanted, lambda: self._flocks.take_over(wanted), lambda: self._leases.take_over(wanted)
        )

    def sweep(self) -> list[ThreadId]:
        """Remove the lock files that nobody holds; returns their threads. Other files are left alone.

        Raises:
            LocksBusy: the coordination lock could not be had in time.
            RolloutUnreadable: the system refuses.
        """
        if not self._folder_is_there():
            return []
        swept = self._run(None, self._flocks.sweep, self._leases.sweep)
        return [each for each in swept if each != _COORDINATION]

    def holders(self) -> list[SeenLock]:
        """Every lock file, and whether somebody holds it. No acquisition fails because of the look.

        Raises:
            RolloutUnreadable: the system refuses.
        """
        if not self._folder_is_there():
            return []
        seen = self._run(None, self._flocks.look, self._leases.look)
        return [each for each in seen if each.thread_id != _COORDINATION]

    @contextmanager
    def coordinated(self) -> Iterator[None]:
        """Keep everybody from taking or giving back a lock of this home for as long as the block runs.

        With leases it keeps out only those who come through here, too. Not to be nested.

        Raises:
            LocksBusy: it could not be had in time.
            RolloutUnreadable: the system refuses.
        """
        give_back = self._run(
            None,
            lambda: self._coordination.take().close,
            lambda: self._leases.wait(_COORDINATION, self._coordination_seconds).release,
        )
        try:
            yield
        finally:
            give_back()

    def _folder_is_there(self) -> bool:
        with translated(self._calls, self._folder.path, "list"):
            return bool(self._folder.names())

    def _run(self, thread_id: ThreadId | None, by_flock: Callable[[], _T], by_lease: Callable[[], _T]) -> _T:
        path = self._folder.path if thread_id is None else self._folder.lock_path(thread_id)
        with translated(self._calls, path):
            if self._has_flock:
                try:
                    return by_flock()
                except FlockUnsupported as error:
                    self._has_flock = False
                    _log.warning("%s: no flock here (%s), leases take its place", self._folder.path, error)
            return by_lease()
