"""The journal of an erasure: what is to be overwritten, written down before the first byte of it is.

Invariant: a journal is whole and on stable storage when it gets its name, and stays until all of it was done;
until then whoever opens a rollout of that home goes on with it (`rollout.erasing`). It holds nothing of
what is erased: of each stretch only where it stands, its SHA-256, and what takes its place.

It lies with the kept files, `<home>/thread-store/kept/<ms>-<random>.erasing`; outside a home beside the
rollout, with the rollout's name in front. FORMAT.md, Erasing, has its form.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import secrets
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec
from msgspec import Struct

from protocol.errors import NotARollout, RolloutUnreadable
from protocol.timestamps import now_ms
from rollout.kept import find_home, kept_folder, make_folders
from rollout.syscalls import FILE_MODE, FileCalls, let_go

__all__ = [
    "LEAD_BYTES",
    "EraseCalls",
    "EraseJournal",
    "ErasedFile",
    "Patch",
    "find_journals",
    "finish_begun",
    "lead_hash",
    "read_journal",
    "write_journal",
]

_log = logging.getLogger("rollout.erasing")

LEAD_BYTES = 64
"""So much before a stretch tells that it is where it was."""

_VERSION = 1
_LEAD_DIGITS = 16
_SUFFIX = ".erasing"
_LOCK = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)


class EraseCalls(FileCalls):
    """The file sink's system calls, and those that erasing needs besides. All raise OSError."""

    def open_lock(self, path: str) -> int:
        """Open a file that is only locked; it is made, mode 0600, if it isn't there."""
        return os.open(path, _LOCK, FILE_MODE)


class Patch(Struct, frozen=True, array_like=True):
    """A stretch of a file, without newlines, and what takes its place."""

    offset: int
    size: int
    sha256: str
    """Of what stood there, in hex."""
    text: str
    """What stands there then, before the spaces that fill it up; bytes that are no UTF-8 as surrogates."""
    lead: str | None = None
    """The beginning of the SHA-256 of up to `LEAD_BYTES` before the stretch, with all earlier patches in
    them; None: a stretch that was overwritten in part is not taken for what it was."""

    @classmethod
    def make(cls, offset: int, size: int, sha256: str, head: bytes) -> Patch:
        """`head` is no longer than `size`."""
        return cls(offset, size, sha256, head.decode(errors="surrogateescape"))

    @property
    def head(self) -> bytes:
        """The bytes of `text`."""
        return self.text.encode(errors="surrogateescape")

    def blocks(self, block_bytes: int) -> Iterator[bytes]:
        """What stands there then, spaces and all."""
        head = self.head
        for begin in range(0, len(head), block_bytes):
            yield head[begin : begin + block_bytes]
        left = self.size - len(head)
        while left > 0:
            yield b" " * min(left, block_bytes)
            left -= block_bytes


def lead_hash(lead: bytes) -> str:
    """How a patch names what stands before it."""
    return hashlib.sha256(lead).hexdigest()[:_LEAD_DIGITS]


class ErasedFile(Struct, frozen=True, kw_only=True):
    """A file and what is done to it. Offsets count decompressed bytes."""

    path: str
    thread_id: str | None
    """Whose writer must be kept out; None: nobody's."""
    action: Literal["overwrite", "remove"] = "overwrite"
    """`remove`: overwritten with spaces, then deleted."""
    device: int = 0
    inode: int = 0
    patches: tuple[Patch, ...] = ()


class EraseJournal(Struct, kw_only=True):
    """What was written down. `derived`: the folder whose files are deleted, if it is there."""

    path: str
    at_ms: int
    derived: str | None
    files: tuple[ErasedFile, ...]


class _Head(Struct, kw_only=True):
    kind: str
    version: int
    at_ms: int
    derived: str | None


def write_journal(
    rollout_path: str | os.PathLike[str],
    files: Sequence[ErasedFile],
    *,
    derived: str | None,
    calls: EraseCalls,
) -> EraseJournal:
    """Write it down, where the kept files of that rollout belong. On stable storage on return.

    Raises:
        OSError: it can't be had; nothing may be overwritten.
    """
    folder, prefix = kept_folder(rollout_path), _prefix(rollout_path)
    at_ms = now_ms()
    name = f"{prefix}{at_ms}-{secrets.token_hex(4)}{_SUFFIX}"
    temporary, final = os.path.join(folder, f".{name}.tmp"), os.path.join(folder, name)
    make_folders(calls, folder, below=find_home(rollout_path))
    descriptor = calls.open_new(temporary)
    try:
        view = memoryview(_encode(at_ms, derived, files))
        while view:
            view = view[calls.write(descriptor, view) :]
        calls.datasync(descriptor)
        calls.rename(temporary, final)
    except BaseException:
        calls.unlink(temporary)
        raise
    finally:
        let_go(calls, descriptor, temporary)
    calls.sync_folder(os.fspath(folder))
    return EraseJournal(path=final, at_ms=at_ms, derived=derived, files=tuple(files))


def _prefix(rollout_path: str | os.PathLike[str]) -> str:
    """In a home one look into a folder finds the journals of all threads; elsewhere each file has its own."""
    return "" if find_home(rollout_path) is not None else f"{os.path.basename(os.fspath(rollout_path))}."


def find_journals(rollout_path: str | os.PathLike[str]) -> list[str]:
    """The journals of the home that a rollout lies in (outside a home: its own), oldest first.

    Raises:
        RolloutUnreadable: their folder is there and can't be listed.
    """
    folder, prefix = kept_folder(rollout_path), _prefix(rollout_path)
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise RolloutUnreadable(path=folder, cause=error, operation="list") from error
    found = [each for each in names if each.startswith(prefix) and each.endswith(_SUFFIX) and each[0] != "."]
    return [os.path.join(folder, each) for each in sorted(found)]


def finish_begun(rollout_path: str | os.PathLike[str], *, thread_id: str | None = None) -> None:
    """What an erasure had begun to overwrite must be overwritten before anything goes on from it.

    Called before a rollout is opened, copied or mended; `thread_id`: whose writer the caller is. Costs a look
    into a folder where there is nothing to finish. Nothing keeps a thread from being opened: what can't be
    had now is logged and stays written down, and `check` tells of it.
    """
    try:
        found = find_journals(rollout_path)
    except RolloutUnreadable as error:
        _log.warning("whether an erasure was cut short can't be told: %s", error)
        return
    if found:
        from rollout.erasing import finish_erasures  # few openings need it

        finish_erasures(rollout_path, thread_id=thread_id)


def read_journal(path: str, *, calls: EraseCalls) -> EraseJournal | None:
    """Read it; None if it is gone: somebody else has ended it.

    Raises:
        NotARollout: it isn't what was written down.
        RolloutUnreadable: the system refuses.
    """
    try:
        data = _read_all(calls, path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RolloutUnreadable(path=path, cause=error, operation="read") from error
    digest, _, content = data.partition(b"\n")
    if digest != hashlib.sha256(content).hexdigest().encode():
        raise NotARollout(path=path, reason="the journal is not whole", hint="Erase again, then delete it")
    try:
        return _decode(path, content)
    except NotARollout:
        raise
    except (ValueError, RecursionError, IndexError, msgspec.ValidationError) as error:
        reason = f"the journal is no journal: {error}"
        raise NotARollout(path=path, reason=reason, hint="Erase again, then delete it") from error


def _decode(path: str, content: bytes) -> EraseJournal:
    lines = [json.loads(each) for each in content.splitlines()]
    head = msgspec.convert(lines[0], _Head)
    if head.version != _VERSION:
        raise NotARollout(
            path=path,
            reason=f"it is of version {head.version}",
            hint="Upgrade: pip install -U rollout-recorder",
        )
    files = tuple(msgspec.convert(each, ErasedFile) for each in lines[1:])
    return EraseJournal(path=path, at_ms=head.at_ms, derived=head.derived, files=files)


def _encode(at_ms: int, derived: str | None, files: Sequence[ErasedFile]) -> bytes:
    head = _Head(kind="erasing", version=_VERSION, at_ms=at_ms, derived=derived)
    # By json: paths and texts may hold lone surrogates.
    content = b"".join(json.dumps(msgspec.to_builtins(each)).encode() + b"\n" for each in (head, *files))
    return hashlib.sha256(content).hexdigest().encode() + b"\n" + content


def _read_all(calls: EraseCalls, path: str) -> bytes:
    descriptor = calls.open_read(path)
    try:
        parts: list[bytes] = []
        size = 0
        while part := calls.pread(descriptor, 1 << 20, size):
            parts.append(part)
            size += len(part)
        return b"".join(parts)
    finally:
        let_go(calls, descriptor, path)
