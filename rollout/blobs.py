"""The folder of blobs of a home: files named by the SHA-256 of what they hold.

Invariant: at a blob's name stands the whole of it, or what a power cut left of one that no sync has covered;
that is found out by its name when it is read, and mended when it is placed again. Nothing else is ever
changed: what is there already is left alone, its time apart. Mode 0600 in a folder of 0700, whatever the
umask; no link is followed. All calls block.

They lie in `<home>/blobs/`, or in `blobs/` beside a rollout that is in no home.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from protocol.blobs import Blob, BlobProblem
from rollout.kept import find_home, make_folders
from rollout.syscalls import FileCalls, let_go

__all__ = ["BLOB_FOLDER", "BlobCalls", "BlobFolder", "blob_folder"]

BLOB_FOLDER = "blobs"

BLOB_BYTES_MAX = 1 << 30
"""A larger file isn't read: no record of ours is as large."""

_NAME = re.compile(r"[0-9a-f]{64}\Z")
_TEMPORARY = re.compile(r"\.[0-9a-f]{64}\.[0-9a-f]{12}\.tmp\Z")


class BlobCalls(FileCalls):
    """What placing a blob needs beyond the calls of a rollout."""

    def touch(self, path: str) -> None:
        """Set the time of a file to now."""
        os.utime(path, follow_symlinks=False)


def blob_folder(rollout_path: str | os.PathLike[str]) -> str:
    """Where the blobs of a rollout belong; the folder need not exist."""
    path = os.path.abspath(rollout_path)
    return os.path.join(find_home(path) or os.path.dirname(path), BLOB_FOLDER)


class BlobFolder:
    """One folder of blobs. It is made with the first one."""

    def __init__(self, path: str | os.PathLike[str], *, calls: BlobCalls | None = None) -> None:
        self.path = os.fspath(path)
        self._calls = calls or BlobCalls()

    def file_path(self, sha256: str) -> str:
        """Where a blob stands.

        Raises:
            ValueError: that is no name of a blob.
        """
        if not _NAME.match(sha256):
            raise ValueError(f"{sha256[:80]!r} is no name of a blob")
        return os.path.join(self.path, sha256)

    # Writing

    def place(self, blob: Blob) -> None:
        """Hand a blob to the OS, unless it is there; then its time says that it was wanted again.

        Raises:
            OSError: the system refuses; there is nothing new at its name.
        """
        path = self.file_path(blob.sha256)
        if not (self._holds(path, blob.data) and self._touch(path)):
            self.replace(blob)

    def replace(self, blob: Blob) -> None:
        """Write it anew, whatever stands there. Raises as `place`."""
        calls = self._calls
        path = self.file_path(blob.sha256)
        temporary = os.path.join(self.path, f".{blob.sha256}.{secrets.token_hex(6)}.tmp")
        self._make()
        descriptor = calls.open_new(temporary)
        try:
            try:
                self._write(descriptor, blob.data)
            finally:
                let_go(calls, descriptor, temporary)
            calls.rename(temporary, path)
        except BaseException:
            self._remove(temporary)
            raise

    def sync(self, blobs: Iterable[Blob]) -> None:
        """Bring these blobs to stable storage, with their names; one that is gone is written again.

        Raises:
            OSError: the system refuses; none of them counts as durable.
        """
        for blob in blobs:
            path = self.file_path(blob.sha256)
            if not self._has_size(path, len(blob.data)):
                self.replace(blob)
            descriptor = self._calls.open_read(path)
            try:
                self._calls.datasync(descriptor)
            finally:
                let_go(self._calls, descriptor, path)
        self._calls.sync_folder(self.path)

    def _make(self) -> None:
        folder = Path(self.path)
        make_folders(self._calls, folder, below=folder.parent)
        if not stat.S_ISDIR(os.lstat(self.path).st_mode):
            raise NotADirectoryError(errno.ENOTDIR, "it is a link or a file", self.path)

    def _write(self, descriptor: int, data: bytes) -> None:
        view = memoryview(data)
        while view:
            written = self._calls.write(descriptor, view)
            if written <= 0:
                raise OSError(errno.EIO, f"write returned {written}")
            view = view[written:]

    def _remove(self, path: str) -> None:
        """What came first must not be hidden: a temporary file that stays is prune's."""
        try:
            self._calls.unlink(path)
        except FileNotFoundError:
            return
        except OSError as error:
            error.add_note(f"{path} stays")
            return

    def _touch(self, path: str) -> bool:
        try:
            self._calls.touch(path)
        except OSError as error:
            # Gone meanwhile, or somebody else's: ours takes its place.
            return bool(error.errno == errno.EROFS)
        return True

    def _has_size(self, path: str, size: int) -> bool:
        try:
            status = self._calls.lstat(path)
        except FileNotFoundError:
            return False
        return stat.S_ISREG(status.st_mode) and status.st_size == size

    def _holds(self, path: str, data: bytes) -> bool:
        """Whether just these bytes stand there."""
        return self._has_size(path, len(data)) and self._content(path, len(data)) == data

    def _content(self, path: str, size: int) -> bytes | None:
        """None: it is gone, or no file that may be read."""
        try:
            descriptor = self._calls.open_read(path)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ELOOP, errno.EACCES, errno.ENXIO):
                return None
            raise
        try:
            parts, position = [], 0
            while position < size and (part := self._calls.pread(descriptor, size - position, position)):
                parts.append(part)
                position += len(part)
            return b"".join(parts)
        finally:
            let_go(self._calls, descriptor, path)

    # Reading

    def read(self, sha256: str) -> bytes | BlobProblem:
        """The blob, checked against its name; or why it can't be had."""
        try:
            data = self._read_checked(self.file_path(sha256))
        except FileNotFoundError:
            return BlobProblem(sha256, "missing", f"{self.path} has no blob {sha256}")
        except (OSError, ValueError) as error:
            return BlobProblem(sha256, "unreadable", f"blob {sha256} can't be read: {error}")
        if hashlib.sha256(data).hexdigest() != sha256:
            return BlobProblem(sha256, "damaged", f"blob {sha256} holds other bytes than its name says")
        return data

    def _read_checked(self, path: str) -> bytes:
        status = self._calls.lstat(path)
        if not stat.S_ISREG(status.st_mode) or status.st_size > BLOB_BYTES_MAX:
            raise OSError(errno.EINVAL, "it is no regular file of a blob's size")
        data = self._content(path, status.st_size)
        if data is None:
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
        return data

    def entries(self) -> Iterator[tuple[str, os.stat_result]]:
        """The names of all blobs that are here, and of what was left of placing one, each with its figures.

        Raises:
            OSError: the folder is there and can't be listed.
        """
        try:
            listing = os.scandir(self.path)
        except (FileNotFoundError, NotADirectoryError):
            return
        with listing:
            for entry in listing:
                if _NAME.match(entry.name) or _TEMPORARY.match(entry.name):
                    status = _status(entry.stat)
                    if status is not None and stat.S_ISREG(status.st_mode):
                        yield entry.name, status


def _status(look: Callable[..., os.stat_result]) -> os.stat_result | None:
    try:
        return look(follow_symlinks=False)
    except FileNotFoundError:
        return None  # removed meanwhile
