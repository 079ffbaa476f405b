"""Taking the titles of deleted threads out of `session_index.jsonl`, as Codex does.

Invariant: all other lines stay, byte for byte, also those that are no JSON and an unfinished last one. The
file is replaced whole, under the lock that everybody holds who appends to it, and only if it is still
the one that was read.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
import time
from collections.abc import Iterator, Set
from contextlib import contextmanager
from pathlib import Path

import msgspec

from protocol.errors import RolloutWriteError
from rollout.guarded_replace import replace_file
from rollout.staged_file import TEMPORARY_SUFFIX, remove_file
from rollout.syscalls import FILE_MODE, drop
from thread_store.forks.fork_copy import write_all
from thread_store.locks.errors import LocksBusy
from thread_store.upkeep.calls import UpkeepCalls

if sys.platform != "win32":
    import fcntl

__all__ = ["remove_titles"]

_LOCK_SECONDS = 10.0
_POLL_SECONDS = 0.005
_UNSUPPORTED = frozenset(
    {errno.EBADF, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL}
)
_LOCK = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)


class _Title(msgspec.Struct):
    id: str


def remove_titles(home: Path, thread_ids: Set[str], *, calls: UpkeepCalls) -> int:
    """Remove all lines of these threads; returns how many there were. On stable storage on return.

    Raises:
        LocksBusy: somebody holds the lock of the file for too long.
        RolloutWriteError: the system refuses; nothing was changed.
    """
    path = home / "session_index.jsonl"
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            raise OSError(errno.EINVAL, "it is no plain file")
        with _locked(f"{path}.lock"):
            _sweep(path, calls)
            return _remove(os.fspath(path), thread_ids, calls)
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise RolloutWriteError(
            path=path, operation="replace", cause=error, hint="The titles are all there still"
        ) from error


def _sweep(path: Path, calls: UpkeepCalls) -> None:
    """Replacements whose process was killed. They are written under the lock, which is held now."""
    prefix = f".{path.name}."
    for name in os.listdir(path.parent):
        if name.startswith(prefix) and name.endswith(TEMPORARY_SUFFIX):
            remove_file(os.fspath(path.parent / name), calls)


def _remove(path: str, thread_ids: Set[str], calls: UpkeepCalls) -> int:
    descriptor = calls.open_read(path)
    with open(descriptor, "rb") as file:
        before = os.fstat(descriptor)
        lines = file.readlines()
    kept = [line for line in lines if _id_of(line) not in thread_ids]
    if len(kept) == len(lines):
        return 0

    def is_the_same() -> bool:
        now = calls.lstat(path)
        if (now.st_ino, now.st_size, now.st_mtime_ns) != (
            before.st_ino,
            before.st_size,
            before.st_mtime_ns,
        ):
            raise OSError(errno.EBUSY, "another program changed it without its lock")
        return True

    def fill(target: int) -> None:
        write_all(calls, target, b"".join(kept))

    replace_file(path, fill, calls=calls, check=is_the_same, like=before)
    return len(lines) - len(kept)


def _id_of(line: bytes) -> str | None:
    try:
        return msgspec.json.decode(line, type=_Title).id.lower()
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


@contextmanager
def _locked(path: str) -> Iterator[None]:
    descriptor = os.open(path, _LOCK, FILE_MODE)
    try:
        _wait_for(descriptor, path)
        yield
    finally:
        drop(descriptor, path)


def _wait_for(descriptor: int, path: str) -> None:
    if sys.platform == "win32":
        return
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise LocksBusy(path=path, seconds=_LOCK_SECONDS) from None
            time.sleep(_POLL_SECONDS)
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
            return
        else:
            return
