"""A rollout's successor: the same bytes in another file (compressed, expanded, on another disk), which takes
its place.

Invariant: at each moment one of the two files has all the bytes, on stable storage. The order is fixed: the
successor is written and synced under a temporary name, read back and compared, published where nothing
stands, its folder synced; only then the original goes, and only if it is what was read. Who is killed
leaves the original, or both (`twins` settles that), or the successor.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from protocol.errors import (
    NotARollout,
    RolloutError,
    RolloutExists,
    RolloutReplaced,
    RolloutUnreadable,
    RolloutWriteError,
)
from rollout.file_lock import lock_rollout
from rollout.kept import make_folders
from rollout.source import is_compressed, raise_unreadable, status_of
from rollout.staged_file import StagedFile, remove_file
from rollout.syscalls import let_go
from thread_store.forks.fork_copy import write_all
from thread_store.upkeep.calls import UpkeepCalls
from thread_store.upkeep.zstd_form import LEVEL, compressed, decompressed

__all__ = ["Contents", "blocks_of", "contents_of", "held_file", "make_successor"]

BLOCK_BYTES = 1 << 20

_HINT = "The rollout is as it was; try again when the cause is gone"

Progress = Callable[[int], None]
"""Called with the bytes of the original that were dealt with since the last call."""


class Contents(NamedTuple):
    """What the (decompressed) bytes of a file are known by."""

    size: int
    sha256: str


def make_successor(
    source: str,
    target: str,
    *,
    calls: UpkeepCalls,
    fence: Callable[[], None],
    level: int | None = None,
    progress: Progress | None = None,
) -> None:
    """Let `target` take the place of the rollout `source`. Blocks. The caller holds the thread's lock.

    The target is compressed if its name says so. It keeps owner, mode and times. `fence` raises if the
    lock was lost; it is asked before each step that others see.

    Raises:
        ActiveWriter: somebody holds the file itself.
        RolloutExists: something stands at the target.
        RolloutReplaced: another program changed the original meanwhile.
        NotARollout: it is no regular file.
        ThreadNotFound, RolloutUnreadable: it can't be read; a compressed one may be damaged.
        RolloutWriteError: the system refuses. The rollout stands where it was; at the target if only the
            last sync failed.
    """
    with held_file(source, calls) as descriptor:
        change = _Change(source, target, descriptor, calls, fence)
        change.make(level or LEVEL, progress or _ignore)


@contextmanager
def held_file(path: str, calls: UpkeepCalls) -> Iterator[int]:
    """The rollout at a path, opened to read and locked for as long as the block runs.

    Raises:
        ActiveWriter: a recorder of its own has it open.
        NotARollout: no regular file stands there.
        ThreadNotFound, RolloutUnreadable: it can't be opened.
    """
    try:
        descriptor = calls.open_read(path)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise NotARollout(path=path, reason="it is a symbolic link") from error
        raise_unreadable(path, error, "open")
    try:
        _take(descriptor, path, calls)
        yield descriptor
    finally:
        let_go(calls, descriptor, path)


def _take(descriptor: int, path: str, calls: UpkeepCalls) -> None:
    try:
        if not calls.is_regular(calls.fstat(descriptor)):
            raise NotARollout(path=path, reason="it is no regular file")
        lock_rollout(descriptor, path)
    except OSError as error:
        if isinstance(error, RolloutError):
            raise
        raise_unreadable(path, error, "lock")


class _Change:
    """One replacement. `make` is the order of steps; the others are the steps."""

    def __init__(
        self, source: str, target: str, descriptor: int, calls: UpkeepCalls, fence: Callable[[], None]
    ) -> None:
        self.source = source
        self.target = target
        self._descriptor = descriptor
        self._calls = calls
        self._fence = fence
        self._status = status_of(descriptor, source)

    def make(self, level: int, progress: Progress) -> None:
        if os.path.lexists(self.target):
            raise RolloutExists(path=self.target, reason="nothing takes the place of another rollout")
        staged = StagedFile(self.target, self._calls)
        try:
            make_folders(self._calls, Path(self.target).parent)
            self._stage(staged, level, progress)
            self._fence()
            self._require_unchanged()
            staged.publish()
            staged.settle()
            self._fence()
            self._require_unchanged()
            self._remove_source()
        except FileExistsError as error:
            self._undo(staged)
            raise RolloutExists(path=self.target, reason="it appeared meanwhile") from error
        except OSError as error:
            self._undo(staged)
            raise RolloutWriteError(path=self.target, operation="create", cause=error, hint=_HINT) from error
        except BaseException:
            self._undo(staged)
            raise
        self._sync_folder()

    def _undo(self, staged: StagedFile) -> None:
        """Leave the original alone; where that is gone (Ctrl-C just behind the last step) the successor."""
        if os.path.lexists(self.source):
            staged.discard()
        else:
            remove_file(staged.temporary, self._calls)

    def _stage(self, staged: StagedFile, level: int, progress: Progress) -> None:
        read = hashlib.sha256()
        size = 0

        def taken() -> Iterator[bytes]:
            nonlocal size
            for block in blocks_of(self._descriptor, self.source, self._calls, progress):
                read.update(block)
                size += len(block)
                yield block

        def fill(descriptor: int) -> None:
            pieces = compressed(taken(), level) if self.target.endswith(".zst") else taken()
            for piece in pieces:
                write_all(self._calls, descriptor, piece)

        staged.write(fill, like=self._status)
        found = contents_of(staged.temporary, self._calls)
        if found != Contents(size, read.hexdigest()):
            raise OSError(errno.EIO, "it doesn't read back as it was written")

    def _require_unchanged(self) -> None:
        try:
            now = self._calls.lstat(self.source)
        except FileNotFoundError:
            raise RolloutReplaced(path=self.source, reason="it was moved or deleted meanwhile") from None
        if _look(now) != _look(self._status):
            raise RolloutReplaced(path=self.source, reason="another program changed it meanwhile")

    def _remove_source(self) -> None:
        try:
            self._calls.unlink(self.source)
        except OSError:
            if os.path.lexists(self.source):
                raise

    def _sync_folder(self) -> None:
        folder = os.path.dirname(self.source)
        try:
            self._calls.sync_folder(folder)
        except OSError as error:
            raise RolloutWriteError(
                path=folder, operation="sync", cause=error, hint="It is done; a power cut may undo it"
            ) from error


def _look(status: os.stat_result) -> tuple[int, ...]:
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def _ignore(size: int) -> None:
    del size


def blocks_of(
    descriptor: int, path: str, calls: UpkeepCalls, progress: Progress | None = None
) -> Iterator[bytes]:
    """The decompressed bytes of an open file, from its start.

    Raises:
        RolloutUnreadable: it can't be read, or decompressed.
    """
    os.lseek(descriptor, 0, os.SEEK_SET)
    try:
        raw = _raw_blocks(descriptor, calls, progress or _ignore)
        first = next(raw, b"")
        blocks = _with_first(first, raw)
        yield from decompressed(blocks) if is_compressed(first) else blocks
    except OSError as error:
        if error.errno == errno.EBADMSG:
            raise _damaged(path, error) from error
        raise_unreadable(path, error, "read")


def _damaged(path: str, cause: OSError) -> RolloutUnreadable:
    found = RolloutUnreadable(path=path, cause=cause, operation="decompress")
    found.hint = f"What can be read of it: rollout show {shlex.quote(path)}"
    return found


def _raw_blocks(descriptor: int, calls: UpkeepCalls, progress: Progress) -> Iterator[bytes]:
    while block := calls.read(descriptor, BLOCK_BYTES):
        progress(len(block))
        yield block


def _with_first(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    if first:
        yield first
        yield from rest


def contents_of(path: str, calls: UpkeepCalls) -> Contents:
    """Read a file whole.

    Raises:
        ThreadNotFound, RolloutUnreadable: it can't be read, or decompressed.
    """
    try:
        descriptor = calls.open_read(path)
    except OSError as error:
        raise_unreadable(path, error, "open")
    try:
        digest, size = hashlib.sha256(), 0
        for block in blocks_of(descriptor, path, calls):
            digest.update(block)
            size += len(block)
        return Contents(size, digest.hexdigest())
    finally:
        let_go(calls, descriptor, path)
