"""Locks by flock: the rule, and the protocol that Codex keeps (FORMAT.md, Locks).

Invariant: every lock file is made, locked, looked at and removed under the coordination lock, and
counts as locked only if its path still means it afterwards. What can be flocked is stale, whatever it says,
but for a lease of somebody on another system whose flock doesn't reach this one.
"""

from __future__ import annotations

import errno
import logging

from protocol.errors import ActiveWriter, RolloutUnreadable, WriterHolder
from protocol.ids import ThreadId
from thread_store.locks.calls import FlockUnsupported, LockCalls
from thread_store.locks.coordination import CoordinationLock
from thread_store.locks.errors import LocksBusy
from thread_store.locks.folder import LockFolder, read_holder, translated
from thread_store.locks.holder import LockHolder, Verdict, describe_self, judge
from thread_store.locks.lock_file import LockFile
from thread_store.locks.seen import LockState, SeenLock
from thread_store.locks.writer_lock import FlockedLock

__all__ = ["Flocks"]

_log = logging.getLogger("rollout.locks")

_ATTEMPTS = 16
"""Only somebody who doesn't keep to the protocol can make a second one necessary."""

_LOOK_SECONDS = 1.0
"""How long a look at the holders waits for the coordination lock: a person asks just when something hangs."""


class Flocks:
    """The locks of one home, held by flock. All methods raise `FlockUnsupported` where there is none."""

    def __init__(self, folder: LockFolder, calls: LockCalls, coordination: CoordinationLock) -> None:
        self._coordination = coordination
        self._folder = folder
        self._calls = calls

    def acquire(self, thread_id: ThreadId) -> FlockedLock:
        """Take the lock of a thread, without waiting for a holder."""
        with self._coordination.held():
            return self._take(thread_id)

    def take_over(self, thread_id: ThreadId) -> tuple[FlockedLock, WriterHolder | None]:
        """Take it from whoever holds it: they keep their file, and the path means a new one."""
        path = self._folder.lock_path(thread_id)
        with self._coordination.held():
            try:
                return self._take(thread_id), None
            except ActiveWriter as busy:
                old = busy.holder
            written = read_holder(self._calls, path)
            self._calls.unlink(path)
            return self._take(thread_id, above=written.fence if written else 0), old

    def _take(self, thread_id: ThreadId, above: int = 0) -> FlockedLock:
        """Lock and name ourselves, with a fence above what the file says."""
        file, written = self._lock(thread_id)
        holder = describe_self(fence=max(above, written.fence if written else 0) + 1)
        file.write(holder)
        return FlockedLock(thread_id, file, holder, self._calls, self._coordination)

    def _lock(self, thread_id: ThreadId) -> tuple[LockFile, LockHolder | None]:
        """The file, locked, and whom it named before."""
        path, written = self._folder.lock_path(thread_id), None
        for _ in range(_ATTEMPTS):
            file = LockFile(path, self._calls, create=True)
            try:
                written = file.read() or written
                if self._is_free(file, written, thread_id):
                    return file, written
            except BaseException:
                file.close()
                raise
            file.close()
        cause = OSError(errno.EAGAIN, "another program keeps replacing it")
        raise RolloutUnreadable(path=path, cause=cause, operation="lock")

    def _is_free(self, file: LockFile, written: LockHolder | None, thread_id: ThreadId) -> bool:
        """Take the flock. False: the path means another file by now."""
        if not _try_lock(file):
            raise ActiveWriter(path=file.path, holder=file.name_holder(), thread_id=thread_id)
        if written is not None and _is_lease_in_use(written):
            raise ActiveWriter(path=file.path, holder=written.writer, thread_id=thread_id)
        if file.has_other_names():
            file.remove()  # what else has this content is none of ours: never write into it
        return file.stands_at_path()

    def sweep(self) -> list[ThreadId]:
        """Remove the lock files that nobody holds; returns their threads."""
        with self._coordination.held():
            return [thread_id for thread_id in self._folder.threads() if self._sweep_one(thread_id)]

    def _sweep_one(self, thread_id: ThreadId) -> bool:
        try:
            file = self._open_existing(thread_id)
        except RolloutUnreadable as error:
            _log.warning("%s", error)  # no lock of ours: it stays
            return False
        if file is None:
            return False
        try:
            stale = _try_lock(file) and not _is_lease_in_use(file.read())
            if stale:
                file.remove()
            return stale
        finally:
            file.close()

    def _open_existing(self, thread_id: ThreadId) -> LockFile | None:
        path = self._folder.lock_path(thread_id)
        with translated(self._calls, path):
            try:
                return LockFile(path, self._calls, create=False)
            except FileNotFoundError:
                return None

    def look(self) -> list[SeenLock]:
        """Every lock file, and whether somebody holds it. Nobody who keeps to the protocol meets us at it."""
        if not self._folder.threads():
            return []
        try:
            with self._coordination.held(_LOOK_SECONDS):
                seen = [self._look_at(each, probe=True) for each in self._folder.threads()]
        except LocksBusy as error:
            _log.warning("%s", error)
            seen = [self._look_at(each, probe=False) for each in self._folder.threads()]
        return [each for each in seen if each is not None]

    def _look_at(self, thread_id: ThreadId, *, probe: bool) -> SeenLock | None:
        path = self._folder.lock_path(thread_id)
        try:
            file = self._open_existing(thread_id)
        except RolloutUnreadable as error:
            return SeenLock(thread_id, path, LockState.UNKNOWN, problem=error)
        if file is None:
            return None
        try:
            written, writer = file.read(), file.name_holder()
            state = _probe(file, written) if probe else _guess(file)
            return SeenLock(thread_id, path, state, writer, written)
        finally:
            file.close()


def _try_lock(file: LockFile) -> bool:
    """As `LockFile.try_lock`, under the coordination lock: there is flock then, whatever the system says."""
    try:
        return file.try_lock()
    except FlockUnsupported as error:
        raise OSError(error.errno, error.strerror, file.path) from error


def _probe(file: LockFile, written: LockHolder | None) -> LockState:
    held = not _try_lock(file) or _is_lease_in_use(written)
    return LockState.LIVE if held else LockState.STALE


def _guess(file: LockFile) -> LockState:
    """Without touching the lock, only a holder that the system shows is sure."""
    return LockState.LIVE if file.is_seen_locked() else LockState.UNKNOWN


def _is_lease_in_use(holder: LockHolder | None) -> bool:
    return holder is not None and holder.lease and judge(holder) is not Verdict.DEAD
