"""The names in a folder as rows of the index: a summary that is always read, and the names, which seldom are.

Invariant: what comes back is what was written, or nothing: each row has a checksum over its folder, the state
of it, and the content. No file name holds a NUL or is a slash, so those part the names.
"""

from __future__ import annotations

import os
import zlib
from array import array
from collections.abc import Callable

from thread_store.listing.folder_names import FolderNames

__all__ = ["checksum_of", "decode_names", "decode_summary", "decode_tails", "encode_names", "encode_summary"]

_SECTION = "/"


def checksum_of(content: bytes, *about: object) -> int:
    """The checksum of a row: of its content and what it is about."""
    return zlib.crc32(content, zlib.crc32(repr(about).encode(errors="backslashreplace")))


def encode_summary(names: FolderNames) -> bytes:
    """All but the regular names."""
    return os.fsencode("\0".join([names.newest, names.oldest, *names.folders, _SECTION, *names.odd]))


def decode_summary(
    content: bytes, load: Callable[[], list[str]], load_tails: Callable[[], array[int] | None]
) -> FolderNames:
    """What `encode_summary` wrote; the two give the rest when it is asked for."""
    newest, oldest, *others = os.fsdecode(content).split("\0")
    border = others.index(_SECTION)
    return FolderNames(
        others[:border],
        others[border + 1 :],
        newest=newest,
        oldest=oldest,
        load=load,
        load_tails=load_tails,
    )


def decode_tails(content: bytes) -> array[int]:
    """The tails that `tobytes` gave."""
    tails = array("Q")
    tails.frombytes(content)
    return tails


def encode_names(names: FolderNames) -> bytes:
    """The regular names."""
    return "\0".join(names.regular).encode()


def decode_names(content: bytes) -> list[str]:
    """The names that `encode_names` wrote."""
    return content.decode().split("\0") if content else []
