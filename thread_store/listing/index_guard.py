"""The guard of the index: nobody removes it while somebody has it open.

Invariant: a journal of one process never meets a new database of another one under the same name. Whoever
opens the index holds `.list-index` flocked shared; it is removed under an exclusive flock. Where the file
system has no flock, others are trusted not to remove it.
"""

from __future__ import annotations

import os
import sys

from rollout import syscalls

if sys.platform != "win32":
    import fcntl

__all__ = ["INDEX_NAME", "IndexGuard", "remove_index"]

INDEX_NAME = "list.sqlite"

_GUARD_NAME = ".list-index"
_FILES = (INDEX_NAME, f"{INDEX_NAME}-journal", f"{INDEX_NAME}-wal", f"{INDEX_NAME}-shm")
_FLAGS = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)


class IndexGuard:
    """The guard in one folder, held shared from `hold` to `drop`."""

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, _GUARD_NAME)
        self._descriptor = -1

    def hold(self, *, create: bool) -> bool:
        """Hold it, made if it may be. False: somebody is removing the index.

        Raises:
            OSError: it can't be made.
        """
        if self._descriptor >= 0 or sys.platform == "win32":
            return True
        flags = os.O_RDWR | os.O_CREAT if create else os.O_RDONLY
        try:
            self._descriptor = os.open(self._path, flags | _FLAGS, 0o600)
            if create:
                os.fchmod(self._descriptor, 0o600)  # whatever the umask
            fcntl.flock(self._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            if create and self._descriptor < 0:
                raise
        return True

    def drop(self) -> None:
        """Let go of it."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            syscalls.drop(descriptor, self._path)


def remove_index(home: str | os.PathLike[str]) -> bool:
    """Remove the index with everything that it remembers. Returns whether it is gone: it isn't while another
    process has it open, or where the system refuses.
    """
    folder = os.path.join(home, "thread-store", "derived")
    try:
        guard = os.open(os.path.join(folder, _GUARD_NAME), os.O_RDWR | os.O_CREAT | _FLAGS, 0o600)
    except OSError:
        return not os.path.lexists(os.path.join(folder, INDEX_NAME))
    try:
        if sys.platform != "win32":
            fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for name in _FILES:
            if os.path.lexists(os.path.join(folder, name)):
                os.unlink(os.path.join(folder, name))
        return True
    except OSError:
        return False
    finally:
        syscalls.drop(guard, folder)
