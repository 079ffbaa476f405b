"""Blobs that no record names: `<home>/blobs/<sha256>`, kept apart from the rollouts that mention them.

Invariant: one counts as unreferenced only if its name stands in no rollout, live or archived, compressed or
not, and in no kept file, whatever stands around it there, and if it is older than a day: what was just
stored is about to be named. What was written meanwhile is looked at again before anything goes. Where
a file can't be read nobody can tell, and all count as referenced.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import Struct

from protocol.errors import RolloutUnreadable, RolloutWriteError, ThreadNotFound
from rollout.syscalls import let_go
from thread_store.home import Home
from thread_store.upkeep.calls import UpkeepCalls
from thread_store.upkeep.leftovers import QUIET_SECONDS, Leftover
from thread_store.upkeep.successor import blocks_of

__all__ = ["UnreferencedBlobs", "blobs_folder", "find_unreferenced", "remove_unreferenced"]

Progress = Callable[[int], None]
"""Called with the bytes that were looked through since the last call."""

_NAME = re.compile(r"[0-9a-f]{64}")
_MENTION = re.compile(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
_OVERLAP_BYTES = 65
_CLOCK_SECONDS = 5.0
"""How far a file system's clock may be behind ours."""


class UnreferencedBlobs(Struct, frozen=True, kw_only=True):
    """What a look through the home found."""

    blobs: tuple[Leftover, ...]
    looked_at: float
    """When the look began, in seconds since the epoch."""
    problem: RolloutUnreadable | None = None
    """What couldn't be read, so that nobody can tell."""

    @property
    def bytes(self) -> int:
        """What would be free without them."""
        return sum(each.bytes for each in self.blobs)


def blobs_folder(home: Path) -> Path:
    """Where the blobs of a home lie."""
    return home / "blobs"


def find_unreferenced(
    home: Home, *, calls: UpkeepCalls, now: float | None = None, progress: Progress | None = None
) -> UnreferencedBlobs:
    """Look through the whole home, if it has any blob at all. Memory is bounded by the number of blobs."""
    looked_at = time.time() if now is None else now
    blobs = {os.path.basename(each.path): each for each in _old_blobs(blobs_folder(home.path), looked_at)}
    try:
        _drop_mentioned(blobs, home, calls, since=None, progress=progress)
    except RolloutUnreadable as error:
        return UnreferencedBlobs(blobs=(), looked_at=looked_at, problem=error)
    return UnreferencedBlobs(blobs=tuple(blobs.values()), looked_at=looked_at)


def remove_unreferenced(found: UnreferencedBlobs, home: Home, *, calls: UpkeepCalls) -> int:
    """Remove those that are not named by now; returns how many bytes that were.

    Raises:
        RolloutUnreadable: a rollout that was written meanwhile can't be read.
        RolloutWriteError: the system refuses; some may be gone.
    """
    blobs = {os.path.basename(each.path): each for each in found.blobs}
    _drop_mentioned(blobs, home, calls, since=found.looked_at - _CLOCK_SECONDS, progress=None)
    done = 0
    for each in blobs.values():
        try:
            if os.lstat(each.path).st_mtime > found.looked_at - QUIET_SECONDS:
                continue  # it was stored again meanwhile
            calls.unlink(each.path)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise RolloutWriteError(
                path=each.path, operation="remove", cause=error, hint="Nothing but unnamed blobs were removed"
            ) from error
        done += each.bytes
    return done


def _old_blobs(folder: Path, now: float) -> Iterator[Leftover]:
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in names:
        if _NAME.fullmatch(name):
            status = os.lstat(folder / name)
            if stat.S_ISREG(status.st_mode) and status.st_mtime <= now - QUIET_SECONDS:
                yield Leftover(path=os.fspath(folder / name), bytes=status.st_size)


def _drop_mentioned(
    blobs: dict[str, Leftover], home: Home, calls: UpkeepCalls, since: float | None, progress: Progress | None
) -> None:
    for path in _places(home, since) if blobs else ():
        for name in _mentioned(path, calls, progress):
            blobs.pop(name, None)
        if not blobs:
            return


def _places(home: Home, since: float | None) -> Iterator[str]:
    """The files that may name one; only those that were written since, if that is given."""
    kept = home.path / "thread-store" / "kept"
    others = [kept / name for name in os.listdir(kept)] if kept.is_dir() else []
    for path in (*(each.path for each in home.rollouts()), *others):
        try:
            status = os.lstat(path)
        except FileNotFoundError:
            continue  # moved or deleted just now
        if stat.S_ISREG(status.st_mode) and (since is None or status.st_mtime >= since):
            yield os.fspath(path)
    if home.passed_over:
        raise home.passed_over[0]


def _mentioned(path: str, calls: UpkeepCalls, progress: Progress | None) -> Iterator[str]:
    try:
        descriptor = calls.open_read(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise RolloutUnreadable(path=path, cause=error) from error
    try:
        carried = b""
        for block in blocks_of(descriptor, path, calls, progress):
            window = carried + block
            yield from (match.decode("ascii") for match in _MENTION.findall(window))
            carried = window[-_OVERLAP_BYTES:]
    except ThreadNotFound:
        return
    finally:
        let_go(calls, descriptor, path)
