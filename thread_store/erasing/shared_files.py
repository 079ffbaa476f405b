"""Small files of many lines that stay what they are: titles, typed prompts, and items that were set aside.

Invariant: as many bytes as before, line for line. A title or a prompt keeps its form and whose it is; a set
of unwritten items can be replayed still, with erased lines where it held what is erased.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from typing import Any

from protocol.errors import NotARollout
from rollout.erase_journal import Patch
from rollout.unwritten import read_unwritten_header
from thread_store.erasing.errors import EraseRefused
from thread_store.erasing.masking import mask_line
from thread_store.erasing.needle import Needle

__all__ = ["OwnedPatch", "line_patch", "mask_lines", "patch_unwritten"]

OwnedPatch = tuple[str | None, Patch]
"""Of which thread a line is (None: that can't be told), and what is put in its place."""

Erased = Callable[[int, bytes], bytes]
"""The erased line in place of the one at an offset, without the spaces behind it."""


def line_patch(offset: int, line: bytes, head: bytes) -> Patch:
    """What is written down of one line."""
    return Patch.make(offset, len(line), hashlib.sha256(line).hexdigest(), head)


def mask_lines(path: str, data: bytes, needle: Needle, *, key: str) -> Iterator[OwnedPatch]:
    """The lines of a file of titles or prompts that hold the needle; `key` names the thread in each.

    Raises:
        EraseRefused: the needle stands where it can't be masked.
    """
    for offset, line in _lines(data):
        if not needle.is_in(line):
            continue
        owner = _owner(line, key)
        masked = mask_line(line, needle)
        if masked is None or (owner is not None and _owner(masked, key) != owner):
            if owner is None:  # no line of such a file: nobody reads it
                yield None, line_patch(offset, line, b"")
                continue
            raise EraseRefused("it is a part of what names a thread", path=path, offset_bytes=offset)
        yield owner, line_patch(offset, line, masked)


def patch_unwritten(path: str, data: bytes, needle: Needle, erased: Erased) -> list[Patch]:
    """The patches of a file of unwritten items, its header among them; none if it doesn't hold the needle.

    Raises:
        EraseRefused: the header holds it.
    """
    patches = [
        line_patch(offset, line, erased(offset, line)) for offset, line in _lines(data) if needle.is_in(line)
    ]
    if not patches:
        return []
    header_line, _, content = data.partition(b"\n")
    if patches[0].offset == 0:
        raise EraseRefused("it is a part of the rollout's name", path=path, offset_bytes=0)
    changed = bytearray(data)
    for patch in patches:
        changed[patch.offset : patch.offset + patch.size] = b"".join(patch.blocks(1 << 20))
    try:
        known = read_unwritten_header(path).sha256
    except NotARollout:
        return patches  # damaged before: nobody replays it
    old, new = (
        hashlib.sha256(content).hexdigest(),
        hashlib.sha256(changed[len(header_line) + 1 :]).hexdigest(),
    )
    if known == old:
        patches.insert(0, line_patch(0, header_line, header_line.replace(old.encode(), new.encode())))
    return patches


def _lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    offset = 0
    for line in data.split(b"\n"):
        if line:
            yield offset, line
        offset += len(line) + 1


def _owner(line: bytes, key: str) -> str | None:
    try:
        value: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None
    owner = value.get(key) if isinstance(value, dict) else None
    return owner.lower() if isinstance(owner, str) else None
