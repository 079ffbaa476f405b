"""The names in a folder as rows of the index: a summary that is always read, and the names, which seldom are.

Invariant: what comes back is what was written, or nothing: each row has a checksum over its folder, the state
of it, and the content. No file name holds a NUL or is a slash, so those part the names.
"""

from __future__ import annotations

import os
import zlib
from array import array
from collections.abc import Callable

from thread_store.listing.home_files import FolderNames

__all__ = ["checksum_of", "decode_names", "decode_summary", "encode_names", "encode_summary"]

_SECTION = "/"
_TAIL_BYTES = 8


def checksum_of(content: bytes, *about: object) -> int:
    """The checksum of a row: of its content and what it is about."""
    return zlib.crc32(content, zlib.crc32(repr(about).encode(errors="backslashreplace")))


def encode_summary(names: FolderNames) -> bytes:
    """All but the regular names."""
    texts = [names.newest, names.oldest, *names.folders, _SECTION, *names.odd]
    text = os.fsencode("\0".join(texts))
    return len(text).to_bytes(4, "big") + text + names.tails.tobytes()


def decode_summary(content: bytes, load: Callable[[], list[str]]) -> FolderNames:
    """What `encode_summary` wrote; `load` gives the regular names when they are asked for."""
    end = 4 + int.from_bytes(content[:4], "big")
    newest, oldest, *others = os.fsdecode(content[4:end]).split("\0")
    border = others.index(_SECTION)
    tails = array("Q")
    tails.frombytes(content[end : end + (len(content) - end) // _TAIL_BYTES * _TAIL_BYTES])
    return FolderNames(
        others[:border], others[border + 1 :], tails=tails, newest=newest, oldest=oldest, load=load
    )


def encode_names(names: FolderNames) -> bytes:
    """The regular names."""
    return "\0".join(names.regular).encode()


def decode_names(content: bytes) -> list[str]:
    """The names that `encode_names` wrote."""
    return content.decode().split("\0") if content else []
