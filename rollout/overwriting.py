"""Overwriting: stretches of a file get other bytes of the same length, in place or in a new file.

Invariant: the file stays as long as it was, and outside the stretches no byte of it changes. A stretch is
overwritten if there stands what was written down, or what takes its place, or (in the very same file) a
mix of both; anything else stands there by the hand of another program and is left. On return what was
written is on stable storage, also what stood there already: a sync may have failed since.

A compressed file is written anew, verified and put in the place of the old one.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import time
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from protocol.errors import ActiveWriter
from rollout.erase_journal import LEAD_BYTES, EraseCalls, ErasedFile, Patch, lead_hash
from rollout.file_lock import lock_rollout
from rollout.lines import Break
from rollout.source import is_compressed, open_source
from rollout.stream import decoded_blocks
from rollout.syscalls import let_go

__all__ = ["overwrite_file", "patched_blocks", "remove_path", "wipe_file"]

BLOCK_BYTES = 1 << 20
TITLES_NAME = "session_index.jsonl"
"""The one file whose lock is another file, `….lock`: it may be replaced."""

_SHARED_LOCK_TRIES, _SHARED_LOCK_SECONDS = 50, 0.02
"""How often, and how far apart, the lock of a file that all threads share is asked for."""


def overwrite_file(path: str, file: ErasedFile, calls: EraseCalls, *, locked: bool) -> bool:
    """Put all patches of a file into what lies at `path` now. False: it isn't what was written down.

    `locked`: the caller keeps its writers out; else flock on the file itself does.

    Raises:
        ActiveWriter: it is a file that threads share, and somebody keeps its lock.
        OSError: the system refuses.
    """
    descriptor = calls.open_read(path)
    try:
        if not calls.is_regular(calls.fstat(descriptor)):
            return False
        compressed = is_compressed(calls.pread(descriptor, 4, 0))
    finally:
        let_go(calls, descriptor, path)
    return _write_anew(path, file.patches, calls) if compressed else _overwrite(path, file, calls, locked)


# In its place


def _overwrite(path: str, file: ErasedFile, calls: EraseCalls, locked: bool) -> bool:
    descriptor = calls.open_append(path)  # O_APPEND: only to read and to lock
    lock = -1
    try:
        if not locked:
            lock = _lock_shared(descriptor, path, calls)
        status = calls.fstat(descriptor)
        same = (status.st_dev, status.st_ino) == (file.device, file.inode)
        known = 0
        writing = calls.open_overwrite(path)
        try:
            if not os.path.samestat(calls.fstat(writing), status):
                raise OSError(errno.ESTALE, "another file stands at the path", path)
            for patch in _within(file.patches, status.st_size):
                if _is_known(descriptor, patch, calls, same=same):
                    _write(writing, patch, calls)
                    known += 1
            calls.datasync(writing)
        finally:
            let_go(calls, writing, path)
    finally:
        let_go(calls, descriptor, path)
        if lock >= 0:
            let_go(calls, lock, path)
    return known == len(_within(file.patches, status.st_size))


def _within(patches: Iterable[Patch], size: int) -> list[Patch]:
    """What is there of them: another program may have cut the end off, which takes the stretch with it."""
    clipped = []
    for patch in sorted(patches, key=lambda each: each.offset):
        if patch.offset + patch.size > size:
            patch = replace(patch, size=max(0, size - patch.offset), text="")
        if patch.size:
            clipped.append(patch)
    return clipped


def _lock_shared(descriptor: int, path: str, calls: EraseCalls) -> int:
    """Flock on the file itself, for moments: of prompts, and of rollouts in no home. Titles have a lock file,
    whose descriptor is returned; else -1."""
    lock = calls.open_lock(f"{path}.lock") if os.path.basename(path) == TITLES_NAME else -1
    try:
        for tries in range(_SHARED_LOCK_TRIES):
            try:
                lock_rollout(descriptor if lock < 0 else lock, path)
                return lock
            except ActiveWriter:
                if tries == _SHARED_LOCK_TRIES - 1:
                    raise
                time.sleep(_SHARED_LOCK_SECONDS)
    except BaseException:
        if lock >= 0:
            let_go(calls, lock, path)
        raise
    return lock


def _is_known(descriptor: int, patch: Patch, calls: EraseCalls, *, same: bool) -> bool:
    """Whether there stands what was written down, or what takes its place, or (in the same file) a mix."""
    digest, size, newline = hashlib.sha256(), 0, False
    new = hashlib.sha256()
    for block in patch.blocks(BLOCK_BYTES):
        new.update(block)
    while size < patch.size:
        block = calls.pread(descriptor, min(BLOCK_BYTES, patch.size - size), patch.offset + size)
        if not block:
            return False
        size += len(block)
        digest.update(block)
        newline = newline or b"\n" in block
    if digest.hexdigest() in (patch.sha256, new.hexdigest()):
        return True
    return same and not newline and _follows_its_lead(descriptor, patch, calls)


def _follows_its_lead(descriptor: int, patch: Patch, calls: EraseCalls) -> bool:
    """An inode may be used again: a mix is believed only behind what it stood behind."""
    begin = max(0, patch.offset - LEAD_BYTES)
    lead = b""
    while begin + len(lead) < patch.offset:
        block = calls.pread(descriptor, patch.offset - begin - len(lead), begin + len(lead))
        if not block:
            return False
        lead += block
    return lead_hash(lead) == patch.lead


def _write(descriptor: int, patch: Patch, calls: EraseCalls) -> None:
    offset = patch.offset
    for block in patch.blocks(BLOCK_BYTES):
        view = memoryview(block)
        while view:
            written = calls.pwrite(descriptor, view, offset)
            if written <= 0:
                raise OSError(errno.EIO, f"pwrite returned {written}")
            view, offset = view[written:], offset + written


def wipe_file(path: str, calls: EraseCalls) -> None:
    """Overwrite a file with spaces, then delete it. Raises OSError."""
    try:
        descriptor = calls.open_overwrite(path)
    except FileNotFoundError:
        return
    try:
        size = calls.fstat(descriptor).st_size
        _write(descriptor, Patch.make(0, size, "", b""), calls)
        calls.datasync(descriptor)
    finally:
        let_go(calls, descriptor, path)
    remove_path(path, calls)


def remove_path(path: str, calls: EraseCalls) -> None:
    """Delete a file, for good; one that is gone is. Raises OSError."""
    try:
        calls.unlink(path)
    except FileNotFoundError:
        return
    calls.sync_folder(os.path.dirname(path))


# In a new file


def patched_blocks(blocks: Iterable[bytes], patches: Iterable[Patch]) -> Iterator[bytes]:
    """The same stream with what the patches put into it."""
    waiting = sorted(patches, key=lambda each: each.offset)
    position = 0
    for block in blocks:
        end = position + len(block)
        changed = bytearray(block)
        for patch in waiting:
            begin, until = max(patch.offset, position), min(patch.offset + patch.size, end)
            if begin < until:
                head = patch.head[begin - patch.offset : until - patch.offset]
                changed[begin - position : until - position] = head.ljust(until - begin)
        waiting = [each for each in waiting if each.offset + each.size > end]
        yield bytes(changed)
        position = end


def _write_anew(path: str, patches: tuple[Patch, ...], calls: EraseCalls) -> bool:
    """The compressed file, made again without it."""
    if not _stand_in(path, patches):
        return False
    folder, base = os.path.split(path)
    temporary = os.path.join(folder, f".{base}.{secrets.token_hex(6)}.tmp")
    descriptor = calls.open_new(temporary)
    try:
        wanted = _compress(descriptor, patched_blocks(_decompressed(path), patches), calls)
        calls.datasync(descriptor)
        if _digest(_decompressed(temporary)) != wanted:
            raise OSError(errno.EIO, "what was compressed doesn't read back", temporary)
        calls.rename(temporary, path)
    except BaseException:
        calls.unlink(temporary)
        raise
    finally:
        let_go(calls, descriptor, temporary)
    calls.sync_folder(folder)
    return True


def _stand_in(path: str, patches: tuple[Patch, ...]) -> bool:
    """Whether each stretch is what was written down, or what takes its place already."""
    expected = []
    for patch in patches:
        new = hashlib.sha256()
        for block in patch.blocks(BLOCK_BYTES):
            new.update(block)
        expected.append((patch, hashlib.sha256(), new.hexdigest()))
    position = 0
    for block in _decompressed(path):
        end = position + len(block)
        for patch, digest, _ in expected:
            begin, until = max(patch.offset, position), min(patch.offset + patch.size, end)
            if begin < until:
                digest.update(block[begin - position : until - position])
        position = end
    return all(digest.hexdigest() in (patch.sha256, new) for patch, digest, new in expected)


def _compress(descriptor: int, blocks: Iterable[bytes], calls: EraseCalls) -> str:
    import zstandard  # only compressed files need it

    compressor = zstandard.ZstdCompressor(write_checksum=True).compressobj()
    digest = hashlib.sha256()
    for block in blocks:
        digest.update(block)
        _write_all(descriptor, compressor.compress(block), calls)
    _write_all(descriptor, compressor.flush(), calls)
    return digest.hexdigest()


def _write_all(descriptor: int, data: bytes, calls: EraseCalls) -> None:
    view = memoryview(data)
    while view:
        view = view[calls.write(descriptor, view) :]


def _decompressed(path: str) -> Iterator[bytes]:
    source = open_source(path)
    try:
        for block in decoded_blocks(source, BLOCK_BYTES):
            if isinstance(block, Break):
                raise OSError(errno.EIO, f"it is damaged: {block.message}", path)
            yield block
    finally:
        source.close()


def _digest(blocks: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for block in blocks:
        digest.update(block)
    return digest.hexdigest()
