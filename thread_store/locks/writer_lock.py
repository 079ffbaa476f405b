"""The lock of one thread, held: what a writer asks before each batch.

Invariant: once `verify` has raised `WriterFenced` it always will: a lock that was lost is never found again.
In a forked child every lock counts as lost, and `release` does nothing: it is the parent's.

Two kinds: `FlockedLock`, which is the rule, and the lease (`thread_store.locks.lease`) where the file
system has no flock.
"""

from __future__ import annotations

import logging
import os
import threading
from abc import ABC, abstractmethod
from typing import NamedTuple

from msgspec.structs import replace

from protocol.errors import RolloutError, WriterFenced, WriterHolder
from protocol.ids import ThreadId
from thread_store.locks.calls import LockCalls
from thread_store.locks.coordination import CoordinationLock
from thread_store.locks.folder import read_holder
from thread_store.locks.holder import LockHolder
from thread_store.locks.lock_file import LockFile

__all__ = ["FlockedLock", "Loss", "WriterLock"]

_log = logging.getLogger("rollout.locks")


class Loss(NamedTuple):
    """Why a lock isn't ours any more, and whose it is now."""

    reason: str
    holder: WriterHolder | None = None


_FORKED = Loss("this is a forked child, and the lock is its parent's")
_RELEASED = Loss("it was released")


class WriterLock(ABC):
    """One held lock. `verify` is safe from any thread, and so is `release`."""

    def __init__(self, thread_id: ThreadId, path: str, holder: LockHolder, calls: LockCalls) -> None:
        self.thread_id = thread_id
        self.path = path
        self.holder = holder
        """This process, as the lock file names it."""
        self._calls = calls
        self._pid = os.getpid()
        self._lost: Loss | None = None
        self._given_back = False
        self._giving_back = threading.Lock()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.thread_id} fence={self.fence}>"

    @property
    def fence(self) -> int:
        """Greater than that of every earlier holder known."""
        return self.holder.fence

    @property
    def token(self) -> str:
        """Random; no other acquisition has it."""
        return self.holder.token

    def verify(self) -> None:
        """Ask whether the lock is still ours: the check before each batch (about 3 µs with flock).

        Raises:
            WriterFenced: it isn't; nothing may be written any more.
            OSError: it can't be told now. Nothing may be written until it can.
        """
        if self._pid != os.getpid():
            raise self._fenced(_FORKED)
        if self._lost is None and not self._is_ours():
            self._lost = self._find_loss()
        # Asked again: a release sets it before it lets go of the file that was just looked at.
        if self._lost is not None:
            raise self._fenced(self._lost)

    def _find_loss(self) -> Loss:
        try:
            holder = read_holder(self._calls, self.path)
        except OSError as error:
            return Loss(f"another file stands at its path ({error.strerror})")
        if holder is None:
            return Loss("its lock file was removed, or replaced by nobody who is known")
        return Loss(f"{holder.writer} took it over", holder.writer)

    def _fenced(self, loss: Loss) -> WriterFenced:
        return WriterFenced(path=self.path, reason=loss.reason, thread_id=self.thread_id, holder=loss.holder)

    def raise_fence(self, minimum: int) -> None:
        """Lift the fence to at least `minimum`: the rollout may know of more writers than the lock file.

        Raises:
            WriterFenced: the lock was lost.
            OSError: with a lease, that it can't be rewritten; the fence is as it was.
        """
        self.verify()
        if minimum > self.fence:
            holder = replace(self.holder, fence=minimum)
            self._rewrite(holder)
            self.holder = holder
            self.verify()

    def release(self) -> None:
        """Give the lock up and remove its file. Never raises; a second call does nothing."""
        if self._pid != os.getpid():
            return
        with self._giving_back:
            if not self._given_back:
                self._given_back = True
                self._lost = _RELEASED
                self._give_back()

    @abstractmethod
    def _is_ours(self) -> bool:
        """Whether the path still means what we made there."""

    @abstractmethod
    def _rewrite(self, holder: LockHolder) -> None:
        """Put the new holder's text in place of the old one."""

    @abstractmethod
    def _give_back(self) -> None:
        """End it. Raises nothing."""


class FlockedLock(WriterLock):
    """A lock file that we hold the flock of."""

    def __init__(
        self,
        thread_id: ThreadId,
        file: LockFile,
        holder: LockHolder,
        calls: LockCalls,
        coordination: CoordinationLock,
    ) -> None:
        super().__init__(thread_id, file.path, holder, calls)
        self._file = file
        self._coordination = coordination

    def _is_ours(self) -> bool:
        # Its inode can't be used again for another file: we hold it open.
        return self._file.stands_at_path()

    def _rewrite(self, holder: LockHolder) -> None:
        self._file.write(holder)

    def _give_back(self) -> None:
        try:
            with self._coordination.held():
                self._file.remove()
                self._file.close()
        except (RolloutError, OSError) as error:
            # A file that nobody holds is harmless: the next one takes it over, or sweeps it away.
            _log.warning("%s: the lock was given up, and its file stays: %s", self.path, error)
        finally:
            self._file.close()
