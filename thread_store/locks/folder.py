"""The folder of lock files in a home: `<home>/thread-writer-locks/` (FORMAT.md, Locks).

Invariant: a path in here is made of a `ThreadId` and nothing else. The folder is a real one, made with
mode 0700, when the home's own name is on stable storage; a link that stands in its place is refused, as is
anything but a plain file where a lock file belongs. Names that are no lock's are passed over and left alone.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from protocol.errors import InvalidThreadId, RolloutError, RolloutUnreadable
from protocol.ids import ThreadId
from thread_store.locks.calls import LockCalls
from thread_store.locks.holder import HOLDER_BYTES_MAX, LockHolder, decode_holder

__all__ = ["LockFolder", "read_holder", "require_regular", "translated"]

_log = logging.getLogger("rollout.locks")

_LOCK = ".lock"
_KINDS = ((stat.S_ISLNK, "a symbolic link"), (stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a pipe"))
_NO_LOCK_FILE = frozenset({errno.ENOENT, errno.ELOOP, errno.EISDIR, errno.ENXIO})
"""How a path answers that is no lock file's: nothing, a link, a folder, a socket."""
_NOT_TO_BE_SYNCED = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP}
)
"""How a folder answers that isn't ours to read, or on a system that syncs no folders."""


class LockFolder:
    """The folder of one home. `home` is resolved: its links are the user's choice."""

    def __init__(self, home: str | os.PathLike[str], calls: LockCalls) -> None:
        self.path = os.path.join(os.path.realpath(home), "thread-writer-locks")
        self.coordination_path = os.path.join(self.path, ".coordination.lock")
        self._calls = calls

    def lock_path(self, thread_id: str) -> str:
        """Where the lock of a thread stands.

        Raises:
            InvalidThreadId: the id is no UUID.
        """
        return os.path.join(self.path, ThreadId.parse(thread_id) + _LOCK)

    def names(self) -> list[str]:
        """Everything in it; nothing if it isn't there."""
        try:
            self._require_real()
            return self._calls.names_in(self.path)
        except FileNotFoundError:
            return []

    def threads(self) -> list[ThreadId]:
        """The threads that have a lock file, held or not."""
        return [found for name in self.names() if (found := _thread_of(name)) is not None]

    def make(self) -> None:
        """See to it that it is there, and a real folder."""
        if not os.path.lexists(self.path):
            self._make_home()
            self._make_one(self.path)
        self._require_real()

    def _make_home(self) -> None:
        """The home with the folders above it, their names on stable storage: no other step of a new thread
        finds them missing. Also where the home is there already: who made it may have died before that.
        """
        home = folder = os.path.dirname(self.path)
        missing = []
        while not os.path.lexists(folder):
            missing.append(folder)
            folder = os.path.dirname(folder)
        for each in reversed(missing):
            self._make_one(each)
        for each in reversed(missing or [home]):
            self._sync_name(each)

    def _make_one(self, path: str) -> None:
        try:
            self._calls.make_folder(path)
        except FileExistsError:
            return  # another process was quicker

    def _sync_name(self, path: str) -> None:
        try:
            self._calls.sync_folder(os.path.dirname(path))
        except OSError as error:
            if error.errno not in _NOT_TO_BE_SYNCED:
                raise
            _log.info("whether %s outlives a power cut can't be seen to: %s", path, error)

    def _require_real(self) -> None:
        mode = self._calls.lstat(self.path).st_mode
        if not stat.S_ISDIR(mode):
            raise _refusal(self.path, mode, errno.ENOTDIR, "a folder")


def _thread_of(name: str) -> ThreadId | None:
    if not name.endswith(_LOCK):
        return None
    try:
        found = ThreadId.parse(name.removesuffix(_LOCK))
    except InvalidThreadId:  # somebody else's file, or the coordination lock
        return None
    return found if found + _LOCK == name else None


def require_regular(status: os.stat_result, path: str) -> None:
    """Refuse whatever is no plain file."""
    if not stat.S_ISREG(status.st_mode):
        raise _refusal(path, status.st_mode, errno.EINVAL, "a lock file")


def read_holder(calls: LockCalls, path: str) -> LockHolder | None:
    """Whom the lock file at the path names; None: nobody, or there is no such file."""
    try:
        descriptor = calls.open_to_read(path)
        try:
            return decode_holder(calls.read(descriptor, HOLDER_BYTES_MAX + 1))
        finally:
            calls.close(descriptor)
    except OSError as error:
        if error.errno in _NO_LOCK_FILE:
            return None
        raise


@contextmanager
def translated(calls: LockCalls, path: str, operation: str = "lock") -> Iterator[None]:
    """Say as `RolloutUnreadable` what the system refuses here."""
    try:
        yield
    except RolloutError:
        raise
    except OSError as error:
        raise _explain(calls, path, operation, error) from error


def _explain(calls: LockCalls, path: str, operation: str, error: OSError) -> RolloutUnreadable:
    """The error, and what stands at the path if that is the trouble: the system's own words don't help."""
    if isinstance(error.filename, str) and error.filename2 is None:
        path = error.filename
    if error.errno in _NO_LOCK_FILE - {errno.ENOENT}:
        try:
            return _refusal(path, calls.lstat(path).st_mode, error.errno, "a lock file")
        except OSError as gone:
            error = gone
    return RolloutUnreadable(path=path, cause=error, operation=operation)


def _refusal(path: str, mode: int, number: int, wanted: str) -> RolloutUnreadable:
    kind = next((text for is_kind, text in _KINDS if is_kind(mode)), "no plain file")
    found = RolloutUnreadable(
        path=path, cause=OSError(number, f"it is {kind}, not {wanted}"), operation="lock"
    )
    found.hint = "Look where it comes from, and remove it"
    return found
