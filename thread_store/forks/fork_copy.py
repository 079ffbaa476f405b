"""Copying the bytes of a rollout into a new file, by the kernel where it can.

Invariant: exactly the bytes between two offsets arrive, in order, at the position of the target, or
an error does. The source is only read.

`copy_file_range(2)` shares the blocks of both files where the file system can (XFS, btrfs) and the
offsets in both are multiples of its blocks; no FICLONERANGE is needed for that. It needs a target
without O_APPEND. Where it refuses (two file systems, an old kernel, a network), `sendfile(2)` does it
in the kernel too, and at last read and write.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable

from protocol.errors import RolloutUnreadable
from rollout.syscalls import FileCalls
from thread_store.chain.open_rollout import OpenRollout

__all__ = ["ForkCalls", "Progress", "copy_range", "write_all"]

Progress = Callable[[int, int], None]
"""Called with the bytes that are done, and with how many there are in all."""

PIECE_BYTES = 128 << 20
"""What one call of the kernel is asked to copy: it can't be interrupted meanwhile."""

_BLOCK_BYTES = 1 << 20
_UNSUPPORTED = frozenset(
    {errno.EXDEV, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL, errno.ENOSYS, errno.EBADF, errno.EPERM}
    | {errno.ETXTBSY, errno.EOVERFLOW}
)


class ForkCalls(FileCalls):
    """The file sink's system calls, and those that making a fork needs besides. All raise OSError."""

    def copy_file_range(self, source: int, target: int, size: int, offset: int) -> int:
        """Copy from an offset to the position of the target; may be short."""
        if sys.platform != "linux":
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        return os.copy_file_range(source, target, size, offset)

    def send_file(self, source: int, target: int, size: int, offset: int) -> int:
        """The same without sharing blocks."""
        if sys.platform != "linux":
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))  # elsewhere only to sockets
        return os.sendfile(target, source, offset, size)


def copy_range(
    file: OpenRollout,
    start: int,
    end: int,
    target: int,
    *,
    calls: ForkCalls,
    progress: Callable[[int], None] | None = None,
) -> None:
    """Copy the (decompressed) bytes between two offsets to where the target stands.

    `progress` is called with the size of each piece.

    Raises:
        OSError: the system refuses to read or to write.
        RolloutUnreadable: another program cut the source meanwhile.
    """
    done = progress or _ignore
    position = start
    if not file.compressed:
        for copy in (calls.copy_file_range, calls.send_file):
            position = _by_kernel(copy, file.descriptor, position, end, target, done)
    while position < end:
        block = file.read_at(min(_BLOCK_BYTES, end - position), position)
        if not block:
            cause = OSError(errno.ESTALE, "another program cut it while it was copied")
            raise RolloutUnreadable(path=file.path, cause=cause, operation="copy")
        write_all(calls, target, block)
        position += len(block)
        done(len(block))


_KernelCopy = Callable[[int, int, int, int], int]


def _by_kernel(
    copy: _KernelCopy, source: int, position: int, end: int, target: int, done: Callable[[int], None]
) -> int:
    """Copy as far as this call can; returns how far that was."""
    while position < end:
        try:
            size = copy(source, target, min(PIECE_BYTES, end - position), position)
        except OSError as error:
            if error.errno in _UNSUPPORTED:
                return position
            raise
        if size <= 0:
            return position  # some file systems answer so instead of refusing; reading will tell
        position += size
        done(size)
    return position


def _ignore(size: int) -> None:
    del size


def write_all(calls: FileCalls, descriptor: int, data: bytes) -> None:
    """All of `data`, in as many writes as it takes. Raises OSError."""
    view = memoryview(data)
    while view:
        written = calls.write(descriptor, view)
        if not written:
            raise OSError(errno.EIO, "write returned 0")
        view = view[written:]
