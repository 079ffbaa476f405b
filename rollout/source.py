"""Where the bytes of a rollout come from: a path, a descriptor, an open file, or `-` for stdin.

Invariant: what the operating system refuses comes out as one of our errors and names the file.
The position of a descriptor that belongs to somebody else is never moved, and nothing is
mapped into memory: another process may shrink the file at any time.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from typing import BinaryIO, NoReturn

from protocol.errors import NotARollout, RolloutUnreadable, ThreadNotFound
from rollout.courtesy import Courtesy
from rollout.syscalls import drop

__all__ = ["ByteSource", "RolloutSource", "is_compressed", "open_source", "raise_unreadable", "status_of"]

RolloutSource = str | os.PathLike[str] | BinaryIO | int
"""What can be read: a path, `-` for stdin, an open binary file, or a descriptor."""

STDIN = "-"

_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR})
_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_FRAME = b"\x28\xb5\x2f\xfd"
_SKIPPABLE_FRAMES = tuple(bytes([low]) + b"\x2a\x4d\x18" for low in range(0x50, 0x60))


def is_compressed(head: bytes) -> bool:
    """Whether the bytes begin a zstd frame (RFC 8878, section 3.1). The name of a file proves nothing."""
    return head.startswith(_FRAME) or head.startswith(_SKIPPABLE_FRAMES)


class ByteSource:
    """Bytes with a name. `read` goes on where the last one ended, `read_at` reads anywhere.

    `seekable` says whether `read_at`, `size` and setting `position` are possible.
    """

    __slots__ = ("_courtesy", "_descriptor", "_file", "_owned", "name", "position", "seekable")

    def __init__(
        self,
        name: str,
        *,
        descriptor: int = -1,
        file: BinaryIO | None = None,
        owned: bool = False,
        seekable: bool,
    ) -> None:
        self.name = name
        self.position = 0
        self.seekable = seekable
        self._descriptor = descriptor
        self._file = file
        self._owned = owned
        self._courtesy = Courtesy()

    def read(self, size: int) -> bytes:
        """At least one byte and at most `size`; nothing only at the end."""
        try:
            data = self.read_at(size, self.position) if self.seekable else self._read_on(size)
        except OSError as error:
            raise_unreadable(self.name, error, "read")
        self.position += len(data)
        return data

    def _read_on(self, size: int) -> bytes:
        self._courtesy.give_way()
        if self._file is None:
            return os.read(self._descriptor, size)
        # read1 gives what has arrived: a line that came through a pipe isn't held back for the next.
        data = getattr(self._file, "read1", self._file.read)(size)
        if data is None:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return bytes(data)

    def read_at(self, size: int, offset: int) -> bytes:
        """The bytes from `offset` on; fewer than `size` only where the file ends."""
        parts: list[bytes] = []
        try:
            while size > 0 and (part := self._read_once(size, offset)):
                parts.append(part)
                offset, size = offset + len(part), size - len(part)
        except OSError as error:
            raise_unreadable(self.name, error, "read")
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _read_once(self, size: int, offset: int) -> bytes:
        self._courtesy.give_way()
        if self._file is not None:
            self._file.seek(offset)
            return self._file.read(size)
        if sys.platform == "win32":
            os.lseek(self._descriptor, offset, os.SEEK_SET)
            return os.read(self._descriptor, size)
        return os.pread(self._descriptor, size, offset)

    def size(self) -> int:
        """How many bytes there are now. Other processes may change that at any time."""
        try:
            if self._file is not None:
                return self._file.seek(0, os.SEEK_END)
            return os.fstat(self._descriptor).st_size
        except OSError as error:
            raise_unreadable(self.name, error, "stat")

    def close(self) -> None:
        """Close what `open_source` opened itself; may be called again."""
        if self._owned and self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            drop(descriptor, self.name)

    def __del__(self) -> None:
        self.close()  # a reader that was never iterated


def open_source(source: RolloutSource, *, name: str | None = None) -> ByteSource:
    """Open a path, or wrap what is open already (it stays the caller's, and stays open).

    An open file is read from its start if it can seek, else from where it stands.

    Raises:
        ThreadNotFound: nothing stands at the path.
        NotARollout: a folder or a socket stands there.
        RolloutUnreadable: the system refuses.
    """
    if isinstance(source, int):
        name = name or f"descriptor {source}"
        seekable = stat.S_ISREG(status_of(source, name).st_mode)
        return ByteSource(name, descriptor=source, seekable=seekable)
    if isinstance(source, str | os.PathLike):
        return (
            _open_path(os.fspath(source))
            if source != STDIN
            else _wrap_file(sys.stdin.buffer, "standard input")
        )
    return _wrap_file(source, name)


def _wrap_file(file: BinaryIO, name: str | None) -> ByteSource:
    if isinstance(file.read(0), str):
        raise TypeError("a rollout is read as bytes: open the file in binary mode")
    named = name or getattr(file, "name", None)
    return ByteSource(named if isinstance(named, str) else "a stream", file=file, seekable=file.seekable())


def _open_path(path: str) -> ByteSource:
    try:
        descriptor = os.open(path, _FLAGS)
    except OSError as error:
        raise_unreadable(path, error, "open")
    try:
        mode = status_of(descriptor, path).st_mode
        if stat.S_ISDIR(mode):
            raise NotARollout(path=path, reason="it is a folder", hint="Give one of the files in it")
    except BaseException:
        drop(descriptor, path)
        raise
    return ByteSource(path, descriptor=descriptor, owned=True, seekable=stat.S_ISREG(mode))


def status_of(descriptor: int, path: str) -> os.stat_result:
    """What the system says of an open file. Raises as `raise_unreadable`: it may refuse even that."""
    try:
        return os.fstat(descriptor)
    except OSError as error:
        raise_unreadable(path, error, "stat")


def raise_unreadable(path: str, cause: OSError, operation: str) -> NoReturn:
    """Translate what the system answered.

    Raises:
        ThreadNotFound, NotARollout, RolloutUnreadable: one of them, the cause chained.
    """
    if cause.errno in _ABSENT:
        missing = ThreadNotFound(path)
        missing.path = path
        raise missing from cause
    if cause.errno == errno.EISDIR:
        raise NotARollout(path=path, reason="it is a folder", hint="Give one of the files in it") from cause
    if cause.errno == errno.ENXIO:
        raise NotARollout(path=path, reason="it is a socket or a device without a driver") from cause
    raise RolloutUnreadable(path=path, cause=cause, operation=operation) from cause
