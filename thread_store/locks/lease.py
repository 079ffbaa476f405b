"""Leases: locks where the file system has no flock. The file at the path is the lock.

Invariant: a lease of another holder is removed or replaced only by the exclusive right to exactly
that lease (`claims`), and without force only if its holder can't act any more: same host, boot and pid
namespace, and the process is gone or the number is another's now; or an earlier boot of this host; or
an empty or garbled file after a time of grace. What isn't known counts as live: there is no
expiry, because a stopped process that goes on after its lease expired would be a second writer.

A lease appears whole or not at all, by link(2), or by rename(2) over the dead one. It is told from every
other by its token, not by its inode: nobody holds it open, and inodes are used again.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

from protocol.errors import ActiveWriter, RolloutError, RolloutUnreadable, WriterHolder
from protocol.ids import ThreadId
from thread_store.locks.calls import LockCalls
from thread_store.locks.claims import Claims
from thread_store.locks.errors import LocksBusy
from thread_store.locks.folder import LockFolder, read_holder, translated
from thread_store.locks.heartbeat import Heartbeat
from thread_store.locks.holder import LockHolder, Verdict, describe_self
from thread_store.locks.lease_file import (
    TEMPORARY,
    Standing,
    look_at,
    may_act,
    publish,
    remove_quietly,
    temporary,
)
from thread_store.locks.seen import LockState, SeenLock
from thread_store.locks.writer_lock import Loss, WriterLock

__all__ = ["LeasedLock", "Leases"]

_log = logging.getLogger("rollout.locks")

_ATTEMPTS = 64
"""Each failed one means that somebody else got further."""

_POLL_SECONDS = 0.01

_STATES = {
    Verdict.LIVE: LockState.LIVE,
    Verdict.DEAD: LockState.STALE,
    Verdict.UNKNOWN: LockState.UNKNOWN,
}


class Leases:
    """The locks of one home, held as leases."""

    def __init__(self, folder: LockFolder, calls: LockCalls) -> None:
        self.heartbeat = Heartbeat()
        self._folder = folder
        self._calls = calls
        self._claims = Claims(folder, calls)

    def acquire(self, thread_id: ThreadId) -> LeasedLock:
        """Take the lease of a thread, if nobody has it who may still act."""
        return self._obtain(thread_id, force=False)[0]

    def take_over(self, thread_id: ThreadId) -> tuple[LeasedLock, WriterHolder | None]:
        """Take it from whoever has it."""
        return self._obtain(thread_id, force=True)

    def wait(self, thread_id: ThreadId, timeout: float) -> LeasedLock:
        """Take the lease as soon as it is free.

        Raises:
            LocksBusy: it could not be had within `timeout` seconds.
        """
        deadline = self._calls.monotonic() + timeout
        while True:
            try:
                return self.acquire(thread_id)
            except ActiveWriter as busy:
                if self._calls.monotonic() >= deadline:
                    raise LocksBusy(path=str(busy.path), seconds=timeout, holder=busy.holder) from None
            self._calls.sleep(_POLL_SECONDS)

    def _obtain(self, thread_id: ThreadId, *, force: bool) -> tuple[LeasedLock, WriterHolder | None]:
        self._folder.make()
        path, standing = self._folder.lock_path(thread_id), None
        for _ in range(_ATTEMPTS):
            standing = look_at(self._calls, path)
            live = standing is not None and may_act(standing) is not Verdict.DEAD
            if standing is not None and live and not force:
                break
            lock = self._try_to_get(thread_id, path, standing)
            if lock is not None:
                self.heartbeat.add(lock)
                return lock, standing.writer if standing is not None and live else None
        raise ActiveWriter(path=path, holder=standing.writer if standing else None, thread_id=thread_id)

    def _try_to_get(self, thread_id: ThreadId, path: str, standing: Standing | None) -> LeasedLock | None:
        """Make our lease, where nothing or just this one stands. None: something else stands there now."""
        old = standing.holder if standing is not None else None
        holder = describe_self(fence=1 if old is None else old.fence + 1, lease=True)
        with temporary(self._calls, self._folder.path, holder) as source:
            if standing is None:
                done = publish(self._calls, source, path)
            else:
                done = self.act_on(thread_id, standing.key, lambda: self._calls.replace(source, path))
        return LeasedLock(thread_id, path, holder, self._calls, self) if done else None

    def act_on(
        self, thread_id: ThreadId, key: str, action: Callable[[], None], *, ends_it: bool = True
    ) -> bool:
        """Do something to the lease of this key, by the right to it. False: it stands there no more.

        Raises:
            ActiveWriter: a live process has the right.
        """
        path = self._folder.lock_path(thread_id)
        while (claim := self._claims.take(thread_id, key)) is None:
            if not self._stands(path, key):
                return False
        gone = False
        try:
            gone = not self._stands(path, key)
            if gone:
                return False
            action()
            gone = ends_it
            return True
        finally:
            self._claims.end(claim, gone=gone)

    def _stands(self, path: str, key: str) -> bool:
        found = look_at(self._calls, path)
        return found is not None and found.key == key

    def rewrite(self, thread_id: ThreadId, holder: LockHolder) -> bool:
        """Put another text of the same token in the place of a lease."""
        path = self._folder.lock_path(thread_id)
        with temporary(self._calls, self._folder.path, holder) as source:
            return self.act_on(
                thread_id, holder.token, lambda: self._calls.replace(source, path), ends_it=False
            )

    def remove(self, thread_id: ThreadId, key: str) -> bool:
        """Remove the lease of this key."""
        path = self._folder.lock_path(thread_id)
        return self.act_on(thread_id, key, lambda: self._calls.unlink(path))

    def sweep(self) -> list[ThreadId]:
        """Remove the leases of the dead, and what they left half done; returns their threads."""
        names = self._folder.names()
        swept = [each for each in self._folder.threads() if self._sweep_one(each)]
        self._claims.sweep(names)
        for path in (os.path.join(self._folder.path, name) for name in names if _is_temporary(name)):
            standing = look_at(self._calls, path)
            if standing is not None and may_act(standing) is Verdict.DEAD:
                remove_quietly(self._calls, path)
        return swept

    def _sweep_one(self, thread_id: ThreadId) -> bool:
        path = self._folder.lock_path(thread_id)
        try:
            with translated(self._calls, path):
                standing = look_at(self._calls, path)
                if standing is None or may_act(standing) is not Verdict.DEAD:
                    return False
                return self.remove(thread_id, standing.key)
        except (ActiveWriter, RolloutUnreadable) as error:
            _log.warning("%s", error)
            return False

    def look(self) -> list[SeenLock]:
        """Every lease, and whether its holder may still act."""
        seen = [self._look_at(each) for each in self._folder.threads()]
        return [each for each in seen if each is not None]

    def _look_at(self, thread_id: ThreadId) -> SeenLock | None:
        path = self._folder.lock_path(thread_id)
        try:
            with translated(self._calls, path):
                standing = look_at(self._calls, path)
        except RolloutUnreadable as error:
            return SeenLock(thread_id, path, LockState.UNKNOWN, problem=error)
        if standing is None:
            return None
        state = _STATES[may_act(standing)]
        return SeenLock(
            thread_id, path, state, standing.writer, standing.holder, age_seconds=standing.age_seconds
        )


class LeasedLock(WriterLock):
    """A lease that we made."""

    def __init__(
        self, thread_id: ThreadId, path: str, holder: LockHolder, calls: LockCalls, leases: Leases
    ) -> None:
        super().__init__(thread_id, path, holder, calls)
        self._leases = leases

    def _is_ours(self) -> bool:
        # Opening asks the server, where there is one; lstat may be answered from what it said before.
        found = read_holder(self._calls, self.path)
        return found is not None and found.token == self.token

    def beat(self) -> None:
        """Set its time to now. Somebody else's is left alone."""
        if self._is_ours():
            self._calls.touch(self.path)

    def _rewrite(self, holder: LockHolder) -> None:
        try:
            self._leases.rewrite(self.thread_id, holder)
        except ActiveWriter as error:
            raise self._fenced(Loss(f"{error.holder} is taking it over", error.holder)) from None

    def _give_back(self) -> None:
        self._leases.heartbeat.discard(self)
        try:
            self._leases.remove(self.thread_id, self.token)
        except (RolloutError, OSError) as error:  # it is being taken over, or the disk is in trouble
            _log.warning("%s: the lease was given up, and its file stays: %s", self.path, error)


def _is_temporary(name: str) -> bool:
    return name.startswith(".") and name.endswith(TEMPORARY)
