"""The lock of a thread in a home, as one of its rollouts sees it: asked and held, never made or removed.

Invariant: whoever writes a thread of a home, Codex included, holds a flock on
`<home>/thread-writer-locks/<thread id>.lock`. What changes a rollout without
being its writer must find that lock free, and keeps it while it works. Making and removing the
lock files is the store's.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from protocol.errors import ActiveWriter, RolloutUnreadable, WriterHolder
from protocol.ids import ThreadId
from rollout.file_lock import find_holder, lock_rollout
from rollout.kept import find_home
from rollout.paths import RolloutName
from rollout.syscalls import drop

__all__ = ["find_writer", "hold_thread_lock", "refuse_active_writer", "thread_lock_path"]

_FLAGS = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)


def thread_lock_path(rollout_path: str | os.PathLike[str], thread_id: str | None = None) -> Path | None:
    """Where the lock of the rollout's thread is, if it lies in a home; the file need not exist.

    The id comes from the file's name; `thread_id` serves where the name is no rollout's.
    """
    home = find_home(rollout_path)
    name = RolloutName.match(os.path.basename(os.fspath(rollout_path)))
    named = name.thread_id if name is not None else thread_id if isinstance(thread_id, ThreadId) else None
    return None if home is None or named is None else home / "thread-writer-locks" / f"{named}.lock"


@contextmanager
def hold_thread_lock(rollout_path: str | os.PathLike[str], thread_id: str | None = None) -> Iterator[None]:
    """Keep the thread's writers out for as long as the block runs, if their lock file is there.

    Raises:
        ActiveWriter: one of them holds it.
        RolloutUnreadable: the lock file can't be opened, or is a link.
    """
    path = thread_lock_path(rollout_path, thread_id)
    descriptor = -1 if path is None else _hold(path, os.fspath(rollout_path), thread_id)
    try:
        yield
    finally:
        if descriptor >= 0:
            drop(descriptor, rollout_path)


def _hold(path: Path, rollout_path: str, thread_id: str | None) -> int:
    """Flock the lock file that stands at the path; -1 if there is none."""
    while (descriptor := _open(path, os.O_RDWR | _NOFOLLOW)) >= 0:
        try:
            lock_rollout(descriptor, rollout_path, thread_id=thread_id)
            if _stands_at(path, descriptor):
                return descriptor
        except BaseException:
            drop(descriptor, path)
            raise
        drop(descriptor, path)  # its writer has just let go of it and removed it
    return -1


def _stands_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.lstat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def find_writer(rollout_path: str | os.PathLike[str], thread_id: str | None = None) -> WriterHolder | None:
    """Who writes the rollout now, as far as it shows without touching a lock; None: nobody that is known."""
    for path in (Path(rollout_path), thread_lock_path(rollout_path, thread_id)):
        descriptor = -1 if path is None else _open(path, os.O_RDONLY)
        if descriptor < 0:
            continue
        try:
            holder = find_holder(descriptor)
        finally:
            drop(descriptor, rollout_path)
        if holder.pid is not None:
            return holder
    return None


def refuse_active_writer(rollout_path: str | os.PathLike[str], thread_id: str | None = None) -> None:
    """Raise `ActiveWriter` if somebody is known to write the rollout."""
    holder = find_writer(rollout_path, thread_id)
    if holder is not None:
        raise ActiveWriter(path=rollout_path, holder=holder, thread_id=thread_id)


def _open(path: Path, access: int) -> int:
    """A descriptor, or -1 if there is no such file."""
    try:
        return os.open(path, access | _FLAGS)
    except FileNotFoundError:
        return -1
    except OSError as error:
        raise RolloutUnreadable(path=path, cause=error) from error
