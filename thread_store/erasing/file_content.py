"""The bytes of any file of a home, whatever it is."""

from __future__ import annotations

from collections.abc import Iterator

from rollout.source import is_compressed, open_source
from rollout.stream import decoded_blocks

__all__ = ["content_blocks", "read_content"]

_BLOCK_BYTES = 4 << 20


def content_blocks(path: str) -> Iterator[bytes]:
    """Its bytes in blocks, decompressed where it is compressed; what is damaged in it is left out.

    Raises:
        ThreadNotFound, NotARollout (a folder), RolloutUnreadable: the system refuses.
    """
    source = open_source(path)
    try:
        if not source.seekable or not is_compressed(source.read_at(4, 0)):
            while block := source.read(_BLOCK_BYTES):
                yield block
            return
        for part in decoded_blocks(source, _BLOCK_BYTES):
            if isinstance(part, bytes):
                yield part
    finally:
        source.close()


def read_content(path: str) -> bytes:
    """All of them. Raises as `content_blocks`."""
    return b"".join(content_blocks(path))
