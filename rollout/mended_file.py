"""The file under repair: opened, locked, and changed at its end only.

Invariant: what is cut is what the caller looked at, or nothing; an append leaves whole lines or an
error and whole lines, so that whatever fails, another repair can go on.
"""

from __future__ import annotations

import errno
import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from protocol.errors import NotARollout, RolloutReplaced, RolloutWriteError
from rollout.file_lock import lock_rollout
from rollout.kept import make_folders
from rollout.live_file import folders_up_to_home
from rollout.source import open_source, raise_unreadable
from rollout.syscalls import FileCalls, let_go
from rollout.thread_lock import refuse_active_writer

__all__ = ["MendedFile", "open_mended"]

_log = logging.getLogger("rollout.repair")

_HINT = "What was done so far stays done; repair it again when the cause is gone"
_READ_FLAGS = (
    os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
)
_BLOCK_BYTES = 1 << 20
# What an append-only attribute (chattr +a) answers to a cut.
_FORBIDDEN = frozenset({errno.EPERM, errno.EACCES})


@contextmanager
def open_mended(path: str, calls: FileCalls, *, dry_run: bool, create: bool) -> Iterator[MendedFile]:
    """The very file that stands at the path, locked unless nothing will be changed.

    `create`: make it if it isn't there.

    Raises:
        ThreadNotFound, NotARollout (a link, a folder, a device), RolloutUnreadable: it can't be opened.
        ActiveWriter: somebody writes it.
        RolloutReplaced: another file took its place meanwhile.
    """
    descriptor = _open_to_look(path, create=create) if dry_run else _open(path, calls, create=create)
    try:
        try:
            _take_hold(path, descriptor, calls, dry_run=dry_run)
            file = MendedFile(path, descriptor, calls)
        except OSError as error:
            raise_unreadable(path, error, "open")
        yield file
    finally:
        let_go(calls, descriptor, path)


def _take_hold(path: str, descriptor: int, calls: FileCalls, *, dry_run: bool) -> None:
    status = calls.fstat(descriptor)
    if not calls.is_regular(status):
        raise NotARollout(path=path, reason="it is no regular file")
    if dry_run:
        refuse_active_writer(path)
        return
    lock_rollout(descriptor, path)
    at_path = calls.lstat(path)
    if (at_path.st_dev, at_path.st_ino) != (status.st_dev, status.st_ino):
        raise RolloutReplaced(path=path, reason="it was replaced while it was opened")


def _open_to_look(path: str, *, create: bool) -> int:
    try:
        return os.open(path, _READ_FLAGS)
    except OSError as error:
        if create and isinstance(error, FileNotFoundError):
            with tempfile.TemporaryFile() as empty:  # stands in for the file that would be made
                return os.dup(empty.fileno())
        _raise_unopened(path, error)


def _open(path: str, calls: FileCalls, *, create: bool) -> int:
    try:
        return calls.open_append(path)
    except OSError as error:
        if create and isinstance(error, FileNotFoundError):
            return _make(path, calls)
        _raise_unopened(path, error)


def _raise_unopened(path: str, error: OSError) -> NoReturn:
    if error.errno == errno.ELOOP:
        raise NotARollout(
            path=path, reason="it is a symbolic link", hint="Give the file that it leads to"
        ) from error
    raise_unreadable(path, error, "open")


def _make(path: str, calls: FileCalls) -> int:
    folder = Path(path).parent
    with _translated(path, "create"):
        make_folders(calls, folder)
        descriptor = calls.open_new(path)
        calls.sync_folder(os.fspath(folder))
    return descriptor


@contextmanager
def _translated(path: str, operation: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RolloutWriteError(path=path, operation=operation, cause=error, hint=_HINT) from error


class MendedFile:
    """All methods but `kept_mtime` raise `RolloutWriteError` where the system refuses."""

    def __init__(self, path: str, descriptor: int, calls: FileCalls) -> None:
        self.path = path
        self.descriptor = descriptor
        self.calls = calls
        self.source = open_source(descriptor, name=path)
        """The same file to look at."""

    def append(self, data: bytes) -> None:
        """All of `data`; or an error, and those of its lines that found room whole."""
        start, done = self.source.size(), 0
        with _translated(self.path, "append"):
            try:
                while done < len(data):
                    done += self._write(data[done:])
            except OSError:
                self._cut_back(start + data.rfind(b"\n", 0, done) + 1, start + done)
                raise

    def _write(self, data: bytes) -> int:
        written = self.calls.write(self.descriptor, data)
        if not written:
            raise OSError(errno.EIO, "write returned 0")
        return written

    def _cut_back(self, border: int, end: int) -> None:
        if border == end:
            return
        try:
            self.calls.truncate(self.descriptor, border)
        except OSError as error:
            _log.warning("%s: a broken line stays until the next repair: %s", self.path, error)

    def cut(self, size: int, *, expected_size: int) -> bool:
        """Cut to `size`; False where cutting is forbidden."""
        with _translated(self.path, "cut"):
            if self.calls.fstat(self.descriptor).st_size != expected_size:
                raise OSError(errno.EBUSY, "another program writes it without a lock")
            try:
                self.calls.truncate(self.descriptor, size)
            except OSError as error:
                if error.errno not in _FORBIDDEN:
                    raise
                return False
        return True

    def write_again(self, start: int) -> None:
        """Same bytes, same offsets, from `start` to the end. What a failed fsync left there counts as
        clean and may not be on the disk; no later one would bring it out (G3)."""
        with _translated(self.path, "write"):
            try:
                descriptor = self.calls.open_overwrite(self.path)
            except OSError as error:
                if error.errno not in _FORBIDDEN:
                    raise
                return  # append-only by attribute: what stands there can't be written again
            try:
                if not os.path.samestat(self.calls.fstat(descriptor), self.calls.fstat(self.descriptor)):
                    raise OSError(errno.ESTALE, "another file stands at the path")
                self._copy_onto_itself(descriptor, start)
            finally:
                let_go(self.calls, descriptor, self.path)

    def _copy_onto_itself(self, descriptor: int, offset: int) -> None:
        while block := self.calls.pread(self.descriptor, _BLOCK_BYTES, offset):
            written = self.calls.pwrite(descriptor, block, offset)
            if not written:
                raise OSError(errno.EIO, "pwrite returned 0")
            offset += written

    def sync(self) -> None:
        """Bring everything to stable storage."""
        with _translated(self.path, "sync"):
            self.calls.datasync(self.descriptor)
            for folder in folders_up_to_home(self.path):  # its writer may have died before it could
                self.calls.sync_folder(folder)

    @contextmanager
    def kept_mtime(self) -> Iterator[None]:
        """Mending is no activity of the thread, and lists sort by the time of the last one."""
        with _translated(self.path, "check"):
            before = self.calls.fstat(self.descriptor)
        yield
        try:
            os.utime(self.descriptor, ns=(before.st_atime_ns, before.st_mtime_ns))
        except PermissionError as error:
            _log.debug("%s: its time of change can't be set back: %s", self.path, error)
