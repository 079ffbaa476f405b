"""Files that are a lock by being there: never half written, and judged by what they say.

Invariant: such a file gets its name whole, by link(2) or rename(2), so whoever reads one reads all of it.
Its `key` is its own for ever: a key that has left a path never comes back to it. `may_act` says `DEAD`
only of a holder that can't act any more; an empty or garbled file, which nobody here makes, counts as
somebody's for a time of grace.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from protocol.errors import WriterHolder
from rollout.file_lock import find_holder
from thread_store.locks.calls import LockCalls
from thread_store.locks.folder import require_regular
from thread_store.locks.holder import (
    HOLDER_BYTES_MAX,
    LockHolder,
    Verdict,
    decode_holder,
    encode_holder,
    judge,
    shares_processes,
)

__all__ = [
    "BEAT_SECONDS",
    "GRACE_SECONDS",
    "TEMPORARY",
    "Standing",
    "look_at",
    "may_act",
    "publish",
    "remove_quietly",
    "temporary",
]

_log = logging.getLogger("rollout.locks")

BEAT_SECONDS = 10.0
"""How often the time of a held lease is set to now."""

GRACE_SECONDS = 3 * BEAT_SECONDS
"""How long a file counts as somebody's that changed last so long ago, whatever else speaks against it."""

TEMPORARY = ".tmp"


class Standing(NamedTuple):
    """What stands at a path."""

    key: str
    """The holder's token, or for garbage what tells this file in this state from every other."""
    holder: LockHolder | None
    age_seconds: float
    """Since it was made or beat last; negative where clocks disagree."""
    flocked: WriterHolder
    """Who is seen to hold a flock on it: where one system has none, another one may."""

    @property
    def writer(self) -> WriterHolder:
        """As the errors name the holder."""
        if self.flocked.pid is not None or self.holder is None:
            return self.flocked
        return self.holder.writer


def look_at(calls: LockCalls, path: str) -> Standing | None:
    """What stands at the path; None: nothing."""
    try:
        descriptor = calls.open_to_read(path)
    except FileNotFoundError:
        return None
    try:
        status = calls.fstat(descriptor)
        require_regular(status, path)
        holder = decode_holder(calls.read(descriptor, HOLDER_BYTES_MAX + 1))
        by_flock = WriterHolder() if holder is not None and holder.lease else find_holder(descriptor)
    finally:
        calls.close(descriptor)
    state = f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}"
    key = state if holder is None else holder.token
    return Standing(key, holder, calls.now() - status.st_mtime, by_flock)


def may_act(standing: Standing) -> Verdict:
    """Whether who made it can still act."""
    fresh = abs(standing.age_seconds) < GRACE_SECONDS
    if standing.flocked.pid is not None:
        return Verdict.LIVE
    if standing.holder is None:
        return Verdict.UNKNOWN if fresh else Verdict.DEAD
    if fresh and shares_processes(standing.holder) is False:
        return Verdict.UNKNOWN  # it still beats: another host of this host's name
    return judge(standing.holder)


@contextmanager
def temporary(calls: LockCalls, folder: str, holder: LockHolder) -> Iterator[str]:
    """A file that names `holder`, whole, under a name of its own for as long as the block runs."""
    path = os.path.join(folder, f".{secrets.token_hex(8)}{TEMPORARY}")
    descriptor = calls.open_new(path)
    try:
        try:
            calls.make_private(descriptor)
            calls.overwrite(descriptor, encode_holder(holder))
        finally:
            calls.close(descriptor)
        yield path
    finally:
        remove_quietly(calls, path)


def publish(calls: LockCalls, source: str, path: str) -> bool:
    """Give a temporary file its name, if nothing has that name yet."""
    try:
        calls.link(source, path)
    except OSError as error:
        # A server of files that dies after the call reports one that was done as failed (link(2), on NFS).
        if _is_same(calls, source, path):
            return True
        if isinstance(error, FileExistsError):
            return False
        raise
    return True


def _is_same(calls: LockCalls, one: str, other: str) -> bool:
    try:
        return os.path.samestat(calls.lstat(one), calls.lstat(other))
    except FileNotFoundError:
        return False


def remove_quietly(calls: LockCalls, path: str) -> None:
    """Remove a file that means nothing any more; what can't be removed is left to the next sweep."""
    try:
        calls.unlink(path)
    except FileNotFoundError:
        return
    except OSError as error:
        _log.warning("%s: it can't be removed: %s", path, error)
