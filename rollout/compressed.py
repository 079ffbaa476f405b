"""Compressed rollouts (`.jsonl.zst`): their decompressed bytes, block by block.

Invariant: memory stays bounded whatever the frames claim: the input is fed one zstd block at a
time (RFC 8878, section 3.1.1.2), and a block never expands beyond 128 KiB. What can be decoded
is given; where a frame is cut short or damaged a `Break` says so, and reading goes on at the
next frame.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import zstandard

from rollout.lines import Break
from rollout.source import is_compressed

__all__ = ["decompress"]

_MAGIC = b"\x28\xb5\x2f\xfd"
_RLE = 1
_RESERVED = 3
_CHECKSUM_BYTES = 4


class _Input:
    """The compressed bytes, taken in pieces of any size; `offset` counts what was taken."""

    def __init__(self, blocks: Iterable[bytes]) -> None:
        self._blocks = iter(blocks)
        self._buffer = b""
        self.offset = 0

    def peek(self, size: int) -> bytes:
        """Up to `size` bytes without taking them; fewer only at the end."""
        while len(self._buffer) < size and (block := next(self._blocks, b"")):
            self._buffer += block
        return self._buffer[:size]

    def take(self, size: int) -> bytes:
        data = self.peek(size)
        self._buffer = self._buffer[size:]
        self.offset += len(data)
        return data

    def skip(self, size: int) -> bool:
        """Pass over `size` bytes; False if the input ends before."""
        while size > 0 and (data := self.take(min(size, 1 << 16))):
            size -= len(data)
        return size <= 0

    def skip_to_frame(self) -> int:
        """Pass over bytes until a frame begins, or the input ends; returns how many."""
        skipped = 0
        while data := self.peek(1 << 16):
            found = data.find(_MAGIC)
            if found >= 0:
                self.take(found)
                return skipped + found
            step = max(1, len(data) - len(_MAGIC) + 1) if len(data) > len(_MAGIC) else len(data)
            self.take(step)
            skipped += step
        return skipped


class _Damaged(Exception):
    """This frame ends here, before its end."""


def decompress(blocks: Iterable[bytes]) -> Iterator[bytes | Break]:
    """The decompressed bytes of all frames, in pieces of at most some 128 KiB."""
    source = _Input(blocks)
    while source.peek(1):
        begin = source.offset
        try:
            yield from _decode_frame(source)
        except (_Damaged, zstandard.ZstdError) as error:
            at = source.offset
            if at == begin:
                source.take(1)
            skipped = source.offset - at + source.skip_to_frame()
            yield Break("damaged_frame", _describe(error, at, skipped))


def _describe(error: Exception, at: int, skipped: int) -> str:
    reason = str(error) if isinstance(error, _Damaged) else "a zstd frame is damaged"
    tail = f"; {skipped:,} compressed bytes were passed over" if skipped else ""
    return f"{reason} at byte {at:,} of the compressed file{tail}"


def _decode_frame(source: _Input) -> Iterator[bytes]:
    head = source.peek(8)
    if not is_compressed(head):
        raise _Damaged("what follows is no zstd frame,")
    if not head.startswith(_MAGIC):
        if len(head) < 8 or not source.skip(8 + int.from_bytes(head[4:8], "little")):
            raise _Damaged("a skippable frame is cut short")
        return
    decoder = zstandard.ZstdDecompressor().decompressobj()
    checksum = head[4:5] and head[4] & 4
    yield from _feed(decoder, _take_whole(source, _header_bytes(head)))
    last = False
    while not last:
        descriptor = _take_whole(source, 3)
        value = int.from_bytes(descriptor, "little")
        last, kind, size = bool(value & 1), value >> 1 & 3, value >> 3
        if kind == _RESERVED:
            raise _Damaged("a zstd frame is damaged")
        size = 1 if kind == _RLE else size
        content = source.take(size)
        yield from _feed(decoder, descriptor + content)
        if len(content) < size:
            raise _Damaged("a zstd frame is cut short")
    if checksum:
        yield from _feed(decoder, _take_whole(source, _CHECKSUM_BYTES))


def _header_bytes(head: bytes) -> int:
    """How long a frame header is, from its first five bytes (RFC 8878, section 3.1.1.1)."""
    if len(head) < 5:
        raise _Damaged("a zstd frame is cut short")
    flags = head[4]
    single_segment = flags >> 5 & 1
    dictionary = (0, 1, 2, 4)[flags & 3]
    content_size = (single_segment, 2, 4, 8)[flags >> 6]
    return len(_MAGIC) + 1 + (1 - single_segment) + dictionary + content_size


def _take_whole(source: _Input, size: int) -> bytes:
    data = source.take(size)
    if len(data) < size:
        raise _Damaged("a zstd frame is cut short")
    return data


def _feed(decoder: zstandard.ZstdDecompressionObj, data: bytes) -> Iterator[bytes]:
    decoded = decoder.decompress(data)
    if decoded:
        yield decoded
