"""The compressed form of a rollout: zstd frames, each of a few MiB of its bytes (RFC 8878, section 3).

Invariant: decompressed, the frames in their order are the very bytes; each has its size and a checksum, so
that damage is noticed and takes one frame with it. Memory is bounded by a frame, whatever the file says.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator

from rollout.compressed import decompress
from rollout.lines import Break

__all__ = ["FRAME_BYTES", "LEVEL", "compressed", "decompressed"]

FRAME_BYTES = 4 << 20
"""Of the decompressed bytes, in each frame but the last."""

LEVEL = 3
"""As Codex compresses. 1 is the fastest, 19 the smallest."""


def compressed(blocks: Iterable[bytes], level: int = LEVEL) -> Iterator[bytes]:
    """The frames for these bytes."""
    import zstandard  # most runs compress nothing

    compressor = zstandard.ZstdCompressor(level=level, write_checksum=True, write_content_size=True)
    waiting = bytearray()
    for block in blocks:
        waiting += block
        while len(waiting) >= FRAME_BYTES:
            yield compressor.compress(bytes(waiting[:FRAME_BYTES]))
            del waiting[:FRAME_BYTES]
    if waiting:
        yield compressor.compress(bytes(waiting))


def decompressed(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """The bytes of all frames.

    Raises:
        OSError: EBADMSG, a frame is damaged or cut short.
    """
    for block in decompress(blocks):
        if isinstance(block, Break):
            raise OSError(errno.EBADMSG, block.message)
        yield block
