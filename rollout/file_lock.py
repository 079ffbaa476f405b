"""The lock of a stand-alone recorder: flock on the rollout itself.

Invariant: of all descriptors of one inode, over all processes of a host, at most one holds it.
It ends with the last descriptor, so the death of a process frees it; who closes unlocks, because a
subprocess may have inherited one. Threads of a home have lock files of their own besides (thread_store).
"""

from __future__ import annotations

import errno
import logging
import os
import sys
from pathlib import Path

from protocol.errors import ActiveWriter, WriterHolder

if sys.platform != "win32":
    import fcntl

__all__ = ["find_holder", "lock_rollout", "unlock_rollout"]

_log = logging.getLogger("rollout.locks")

# What a file system answers that has no flock: the caller goes on without (design: the lease path).
_UNSUPPORTED = frozenset({errno.EBADF, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL})


def lock_rollout(descriptor: int, path: str, *, thread_id: str | None = None) -> bool:
    """Take the lock for `descriptor`, without waiting. False where the system has no flock.

    Raises:
        ActiveWriter: another descriptor holds it; the error names the process where it can be known.
        OSError: the system refuses for another reason.
    """
    if sys.platform == "win32":
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ActiveWriter(path=path, holder=find_holder(descriptor), thread_id=thread_id) from None
    except OSError as error:
        if error.errno in _UNSUPPORTED:
            return False
        raise
    return True


def unlock_rollout(descriptor: int, path: str) -> None:
    """Give the lock up for every descriptor of this opening, inherited ones too. Never raises."""
    if sys.platform == "win32":
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    except OSError as error:  # closing it does the same, unless somebody has inherited it
        _log.info("%s: unlocking it failed: %s", path, error)


def find_holder(descriptor: int) -> WriterHolder:
    """Who holds the flock of this inode, from /proc/locks; an empty holder where that is unknown."""
    if sys.platform == "win32":
        return WriterHolder()
    status = os.fstat(descriptor)
    wanted = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    try:
        locks = Path("/proc/locks").read_text(encoding="ascii", errors="replace")
    except OSError:  # no /proc here: nothing is known of the holder
        return WriterHolder()
    for row in locks.splitlines():
        words = row.split()
        if "FLOCK" in words and "->" not in words and wanted in words:
            return _describe(int(words[words.index(wanted) - 1]))
    return WriterHolder()


def _describe(pid: int) -> WriterHolder:
    try:
        command = (
            Path(f"/proc/{pid}/cmdline")
            .read_bytes()
            .rstrip(b"\0")
            .replace(b"\0", b" ")
            .decode(errors="replace")
        )
    except OSError:  # it ended in the meantime, or belongs to another pid namespace
        command = ""
    return WriterHolder(pid=pid, host=os.uname().nodename, command=command[:200] or None)
