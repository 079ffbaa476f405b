"""One opened lock file, and its flock.

Invariant: a flock is only ever taken on an opening that no forked child has a descriptor of; what is
opened when the process forks is closed in the child, without unlocking: there it is the parent's
(flock(2): one lock for all descriptors of an opening). Giving it up unlocks explicitly, so that a child
that escaped this can't keep it alive.
"""

from __future__ import annotations

import logging
import os
import weakref
from typing import NamedTuple

from protocol.errors import WriterHolder
from rollout.file_lock import find_holder
from thread_store.locks.calls import LockCalls, try_flock
from thread_store.locks.folder import require_regular
from thread_store.locks.holder import (
    HOLDER_BYTES_MAX,
    LockHolder,
    decode_holder,
    encode_holder,
    shares_processes,
)

__all__ = ["LockFile"]

_log = logging.getLogger("rollout.locks")

_OWNER_BITS = 0o600


class LockFile:
    """A lock file that is open; `close` ends it."""

    def __init__(self, path: str, calls: LockCalls, *, create: bool) -> None:
        """Open it.

        Raises:
            FileNotFoundError: there is none, and none may be made.
            RolloutUnreadable: what stands there is no plain file.
            OSError: the system refuses, links included.
        """
        self.path = path
        self._calls = calls
        self._locked = False
        self._descriptor = -1
        _opened.add(self)
        self._open(create)
        try:
            status = calls.fstat(self._descriptor)
            require_regular(status, path)
            if status.st_mode & _OWNER_BITS != _OWNER_BITS:
                calls.make_private(self._descriptor)  # just made, under an umask that took its owner's rights
        except BaseException:
            self.close()
            raise
        self._identity = (status.st_dev, status.st_ino)

    def _open(self, create: bool) -> None:
        while True:
            before = _forks.done
            self._descriptor = self._calls.open(self.path, create=create)
            if _forks == (0, before):
                return
            # A child was forked meanwhile and may have this opening, unknown to it: it must never be locked.
            self.close()

    def try_lock(self) -> bool:
        """Take the flock, without waiting. False: somebody holds it.

        Raises:
            FlockUnsupported: there is no flock here.
        """
        self._locked = try_flock(self._calls, self._descriptor)
        return self._locked

    def stands_at_path(self) -> bool:
        """Whether the path still means this file."""
        try:
            status = self._calls.lstat(self.path)
        except FileNotFoundError:
            return False
        return (status.st_dev, status.st_ino) == self._identity

    def has_other_names(self) -> bool:
        """Whether writing into it would change another file, too."""
        return self._calls.fstat(self._descriptor).st_nlink > 1

    def read(self) -> LockHolder | None:
        """Whom it names."""
        return decode_holder(self._calls.read(self._descriptor, HOLDER_BYTES_MAX + 1))

    def write(self, holder: LockHolder) -> None:
        """Name a holder. The lock is the flock and not this text: a full disk is no reason to refuse it."""
        try:
            self._calls.overwrite(self._descriptor, encode_holder(holder))
        except OSError as error:
            _log.warning("%s: it can't be written who holds it: %s", self.path, error)

    def name_holder(self) -> WriterHolder:
        """Who holds the flock, from the file or from the system; fields are None where that is unknown."""
        written, seen = self.read(), find_holder(self._descriptor)
        if written is None:
            return seen
        # Codex locks a file that a dead process of ours left behind, and doesn't touch what it says.
        if seen.pid not in (None, written.pid) and shares_processes(written):
            return seen
        return written.writer

    def is_seen_locked(self) -> bool:
        """Whether the system shows somebody who holds the flock; it doesn't show everybody."""
        return find_holder(self._descriptor).pid is not None

    def remove(self) -> None:
        """Take it away from the path, if it stands there."""
        if self.stands_at_path():
            self._calls.unlink(self.path)

    def close(self) -> None:
        """Give the flock up, and the descriptor. Never raises."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor < 0:
            return
        try:
            if self._locked:
                self._calls.unlock(descriptor)
        except OSError as error:
            _log.warning("%s: unlocking it failed, closing it does the same: %s", self.path, error)
        self._close(descriptor)

    def _close(self, descriptor: int) -> None:
        try:
            self._calls.close(descriptor)
        except OSError as error:  # the descriptor is gone all the same (close(2))
            _log.warning("%s: closing it was reported as failed: %s", self.path, error)

    def close_in_child(self) -> None:
        """In a forked child: the parent keeps its lock."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            self._close(descriptor)


class _Forks(NamedTuple):
    """Forks of this process: how many are under way, and how many are done."""

    under_way: int = 0
    done: int = 0


_opened: weakref.WeakSet[LockFile] = weakref.WeakSet()
_forks = _Forks()


def _before_fork() -> None:
    global _forks
    _forks = _Forks(_forks.under_way + 1, _forks.done)


def _after_in_parent() -> None:
    global _forks
    _forks = _Forks(_forks.under_way - 1, _forks.done + 1)


def _after_in_child() -> None:
    global _forks
    _forks = _Forks()
    for file in list(_opened):
        file.close_in_child()


# Not there on Windows, where no process forks.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
