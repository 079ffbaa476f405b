"""A file of unwritten items: lines that a recorder accepted and could not get into their rollout.

Invariant: a header line says how many bytes follow and what they hash to; lines that don't
match it are never used. The file is read whole: a recorder never holds more than its pending
limit, so neither does this.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct, field

from protocol.codec import encode_value
from protocol.errors import NotARollout, RolloutUnreadable, RolloutWriteError
from protocol.timestamps import now_ms
from rollout.syscalls import FileCalls

__all__ = [
    "Unwritten",
    "UnwrittenHeader",
    "mark_replayed",
    "path_text",
    "read_unwritten",
    "read_unwritten_header",
]

HEADER_BYTES_MAX = 64 << 10

Piece = bytes | bytearray | memoryview


class UnwrittenHeader(Struct, frozen=True, kw_only=True, tag_field="kind", tag="unwritten"):
    """The first line of such a file (FORMAT.md, Kept files)."""

    version: int = 1
    rollout: str
    """Where the rollout was, as an absolute path."""
    thread_id: str | None
    offset_bytes: int
    """Where the first of the lines would have begun: some may stand there, written but not synced."""
    items: int
    content_bytes: int = field(name="bytes")
    sha256: str
    at_ms: int

    @classmethod
    def describe(
        cls,
        pieces: Sequence[Piece],
        *,
        rollout_path: str | os.PathLike[str],
        thread_id: str | None,
        offset_bytes: int,
        items: int,
    ) -> UnwrittenHeader:
        """The header for lines that come in pieces of any size."""
        digest = hashlib.sha256()
        for piece in pieces:
            digest.update(piece)
        return cls(
            rollout=path_text(rollout_path),
            thread_id=thread_id,
            offset_bytes=offset_bytes,
            items=items,
            content_bytes=sum(len(piece) for piece in pieces),
            sha256=digest.hexdigest(),
            at_ms=now_ms(),
        )

    def encode(self) -> bytes:
        """The header as a line."""
        return encode_value(self) + b"\n"


class Unwritten(Struct, frozen=True):
    """The verified content: whole lines with their newlines."""

    header: UnwrittenHeader
    lines: list[bytes]


def path_text(path: str | os.PathLike[str]) -> str:
    """An absolute path as text that JSON can hold, whatever its bytes are."""
    return os.fsencode(os.path.abspath(path)).decode("utf-8", "backslashreplace")


def read_unwritten(path: str | os.PathLike[str]) -> Unwritten:
    """Read a file of unwritten items and verify it against its header.

    Raises:
        NotARollout: it is no such file, or its content isn't what was set aside.
        RolloutUnreadable: the system refuses.
    """
    head, _, content = _read_file(path).partition(b"\n")
    header = _decode_header(path, head)
    if len(content) != header.content_bytes or hashlib.sha256(content).hexdigest() != header.sha256:
        raise NotARollout(
            path=path,
            reason="its content is not what was set aside: the checksum differs",
            hint="Nothing of it was used; its lines can still be looked at",
        )
    lines = content.removesuffix(b"\n").split(b"\n") if content else []
    return Unwritten(header, [line + b"\n" for line in lines])


def read_unwritten_header(path: str | os.PathLike[str]) -> UnwrittenHeader:
    """The header alone; its content is not verified. Raises as `read_unwritten`."""
    return _decode_header(path, _read_file(path, HEADER_BYTES_MAX).partition(b"\n")[0])


def _decode_header(path: str | os.PathLike[str], line: bytes) -> UnwrittenHeader:
    try:
        return msgspec.json.decode(line, type=UnwrittenHeader)
    except (msgspec.DecodeError, RecursionError) as error:
        raise NotARollout(path=path, reason=f"it is no file of unwritten items: {error}") from error


def _read_file(path: str | os.PathLike[str], bytes_max: int = -1) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0))
        with open(descriptor, "rb") as file:
            return file.read(bytes_max)
    except OSError as error:
        raise RolloutUnreadable(path=path, cause=error, operation="read") from error


def mark_replayed(path: str | os.PathLike[str], *, calls: FileCalls | None = None) -> Path:
    """Its lines are in the rollout now, and synced: rename it to `….replayed`. Nothing is deleted.

    Raises:
        RolloutWriteError: it can't be renamed; replaying it again adds nothing.
    """
    target = Path(f"{os.fspath(path)}.replayed")
    try:
        os.rename(path, target)
        (calls or FileCalls()).sync_folder(os.fspath(target.parent))
    except OSError as error:
        raise RolloutWriteError(
            path=path,
            operation="rename",
            cause=error,
            hint="Its lines are in the rollout; replaying them again adds nothing",
        ) from error
    return target
