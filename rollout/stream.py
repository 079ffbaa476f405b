"""The bytes of a rollout as one stream: decompressed, without BOM, between two offsets.

Invariant: offsets count decompressed bytes from the start of the file, BOM included, whatever
the source is and however its blocks are cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from rollout.lines import BOM, Break
from rollout.source import ByteSource, is_compressed

__all__ = ["DOCUMENT_HEAD_BYTES", "RolloutStream", "begins_document", "decoded_blocks"]

DOCUMENT_HEAD_BYTES = 1024
"""Within these bytes a one-document rollout shows what it is."""

HEAD_BYTES = 64 << 10
"""How much of the start is kept, to say what a file is that is no rollout."""

_SPACE = b" \t\r\n"
_DOCUMENT_KEYS = (b'"session"', b'"items"')


def begins_document(head: bytes) -> bool | None:
    """Whether a file that begins so may be a rollout in one JSON document (`{"session": …, "items": …}`).

    None: more bytes are needed to tell.
    """
    if len(head) >= DOCUMENT_HEAD_BYTES:
        return bool(_begins_document(head[:DOCUMENT_HEAD_BYTES]))
    return _begins_document(head)


def _begins_document(head: bytes) -> bool | None:
    rest = head.lstrip(_SPACE)
    if not rest:
        return None
    if not rest.startswith(b"{"):
        return False
    rest = rest[1:].lstrip(_SPACE)
    for key in _DOCUMENT_KEYS:
        if rest.startswith(key):
            rest = rest[len(key) :].lstrip(_SPACE)
            return rest.startswith(b":") if rest else None
        if key.startswith(rest):
            return None
    return False


def _raw_blocks(source: ByteSource, block_bytes: int) -> Iterator[bytes]:
    """What the source holds from its position on, as it comes."""
    while block := source.read(block_bytes):
        yield block


def decoded_blocks(source: ByteSource, block_bytes: int) -> Iterator[bytes | Break]:
    """What the source holds, from its start and decompressed where it is compressed."""
    raw = _raw_blocks(source, block_bytes)
    head = b""
    while len(head) < 4 and (block := next(raw, b"")):
        head += block
    blocks = chain([head], raw)
    if not is_compressed(head):
        return blocks
    from rollout.compressed import decompress  # zstandard is for those who need it

    return decompress(blocks)


class RolloutStream:
    """Blocks of a source, read on demand.

    `offset` is where the first of `blocks` begins. `bom`: one was passed over. `document`: the file
    may be a one-document rollout. `head`: the first bytes. All are known once `begin()` has read them.
    """

    def __init__(
        self, source: ByteSource, *, block_bytes: int, start_offset: int = 0, end_offset: int | None = None
    ) -> None:
        self.offset = start_offset
        self.from_start = start_offset == 0
        self.bom = False
        self.document = False
        self.head = b""
        self._source = source
        self._block_bytes = block_bytes
        self._end_offset = end_offset
        self.blocks: Iterator[bytes | Break] = iter(())

    def begin(self) -> None:
        """Read as much as tells what the file is."""
        blocks = self._from_start_offset()
        if self._end_offset is not None:
            blocks = _until(blocks, self._end_offset - self.offset)
        self.blocks = self._past_bom(blocks) if self.offset == 0 else blocks

    def _from_start_offset(self) -> Iterator[bytes | Break]:
        source = self._source
        if source.seekable and self.offset and not is_compressed(source.read_at(4, 0)):
            source.position = self.offset
            return _raw_blocks(source, self._block_bytes)
        return _from(decoded_blocks(source, self._block_bytes), self.offset)

    def _past_bom(self, blocks: Iterator[bytes | Break]) -> Iterator[bytes | Break]:
        head = b""
        for block in blocks:
            if isinstance(block, Break):
                return chain([head, block], blocks)
            head += block
            if not self.bom and head.startswith(BOM):
                self.bom, self.offset, head = True, len(BOM), head[len(BOM) :]
            undecided = not self.bom and BOM.startswith(head)
            document = None if undecided else begins_document(head)
            if document is not None:
                self.document = document and self._end_offset is None
                break
        self.head = head[:HEAD_BYTES]
        return chain([head], blocks)

    def take_document(self, bytes_max: int) -> bytes | None:
        """Everything, if it is no more than `bytes_max`; else None, and `blocks` still gives it all."""
        taken: list[bytes | Break] = []
        size = 0
        for block in self.blocks:
            taken.append(block)
            if isinstance(block, Break):
                break
            size += len(block)
            if size > bytes_max:
                break
        else:
            self.blocks = iter(taken)
            return b"".join(block for block in taken if isinstance(block, bytes))
        self.blocks = chain(taken, self.blocks)
        return None


def _from(blocks: Iterable[bytes | Break], start: int) -> Iterator[bytes | Break]:
    """Pass over the first `start` bytes."""
    left = start
    for block in blocks:
        if isinstance(block, Break):
            if left <= 0:
                yield block
        elif left >= len(block):
            left -= len(block)
        else:
            yield block[left:] if left else block
            left = 0


def _until(blocks: Iterable[bytes | Break], size: int) -> Iterator[bytes | Break]:
    """No more than `size` bytes."""
    left = size
    if left <= 0:
        return
    for block in blocks:
        if isinstance(block, Break):
            yield block
            continue
        yield block[:left]
        left -= len(block)
        if left <= 0:
            return
