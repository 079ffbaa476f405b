"""What a reference rests on, brought to stable storage by somebody who only reads it.

Invariant: a sync that failed is not made good by one that succeeds. The system tells of the error once, and
counts the pages as clean; only who writes the file can write them again. So this process relies no more on
such a file, unless its writer is here and vouches for it.
"""

from __future__ import annotations

import errno
import os

from rollout.syscalls import FileCalls
from thread_store.chain.open_rollout import OpenRollout

__all__ = ["sync_source"]

_unsure: set[tuple[int, int, str]] = set()


def sync_source(file: OpenRollout, calls: FileCalls) -> None:
    """Sync a rollout that others write.

    Raises:
        OSError: the system refuses, or has refused it before.
    """
    status = os.fstat(file.descriptor)
    key = (status.st_dev, status.st_ino, file.path)
    if key in _unsure:
        raise OSError(
            errno.EIO,
            "an earlier sync of it failed, so nobody knows what of it is on the disk; fork it by a copy",
            file.path,
        )
    try:
        calls.datasync(file.descriptor)
    except OSError:
        _unsure.add(key)
        raise
