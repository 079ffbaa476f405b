"""What a file held when the agent read it, so that an edit after a resume sees real conflicts and no others.

Invariant: size, time and hash of a snapshot belong together: a file that changes while it is hashed is
hashed again. Blocking.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat

from protocol.own import FilesItem
from protocol.timestamps import format_timestamp, now_ms
from rollout.syscalls import drop

__all__ = ["snapshot_file"]

_ATTEMPTS = 5
_BLOCK_BYTES = 1 << 20


def snapshot_file(path: str | os.PathLike[str]) -> FilesItem:
    """Size, time of change and SHA-256 of a file, following links: of what its reader has seen.

    Raises:
        OSError: it can't be read, is no regular file (EINVAL), or goes on changing (EBUSY).
    """
    name = os.path.abspath(os.fspath(path))
    descriptor = os.open(name, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0))
    try:
        for _ in range(_ATTEMPTS):
            before = os.fstat(descriptor)
            if not stat.S_ISREG(before.st_mode):
                raise OSError(errno.EINVAL, "it is no regular file", name)
            read_at = format_timestamp(now_ms())
            digest = _hash(descriptor)
            if _same(before, os.fstat(descriptor)):
                return FilesItem(
                    path=name,
                    size=before.st_size,
                    mtime_ns=before.st_mtime_ns,
                    sha256=digest,
                    read_at=read_at,
                )
    finally:
        drop(descriptor, name)
    raise OSError(errno.EBUSY, "it changes while it is read", name)


def _same(before: os.stat_result, after: os.stat_result) -> bool:
    return (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)


def _hash(descriptor: int) -> str:
    digest = hashlib.sha256()
    os.lseek(descriptor, 0, os.SEEK_SET)
    while block := os.read(descriptor, _BLOCK_BYTES):
        digest.update(block)
    return digest.hexdigest()
