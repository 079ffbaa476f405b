"""The entry of a file in the journal: which file it is, and the patches with what they stand behind.

Invariant: nothing is changed. The patches are in the order of the file.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from protocol.errors import RolloutUnreadable
from rollout.erase_journal import LEAD_BYTES, ErasedFile, Patch, lead_hash
from thread_store.erasing.places import ErasePlace

__all__ = ["identified"]


def identified(place: ErasePlace, patches: Iterable[Patch], *, remove: bool = False) -> ErasedFile:
    """The entry of a file in the journal.

    Raises:
        RolloutUnreadable: it is gone, or the system refuses.
    """
    ordered = sorted(patches, key=lambda each: each.offset)
    try:
        return _identified(place, ordered, remove)
    except OSError as error:
        raise RolloutUnreadable(path=place.path, cause=error, operation="look at") from error


def _identified(place: ErasePlace, ordered: list[Patch], remove: bool) -> ErasedFile:
    status = os.lstat(place.path)
    own = str(place.thread_id) if place.thread_id and place.rollout_id else None
    return ErasedFile(
        path=place.path,
        thread_id=own,
        action="remove" if remove else "overwrite",
        device=status.st_dev,
        inode=status.st_ino,
        patches=tuple(ordered if place.path.endswith(".zst") else _led(place.path, ordered)),
    )


def _led(path: str, patches: list[Patch]) -> Iterator[Patch]:
    """The same patches with what stands before each of them once the ones before are in."""
    done: list[Patch] = []
    with open(path, "rb", buffering=0) as file:
        for patch in patches:
            begin = max(0, patch.offset - LEAD_BYTES)
            file.seek(begin)
            lead = bytearray(file.read(patch.offset - begin))
            for each in reversed(done):
                end = each.offset + each.size
                if end <= begin:
                    break
                new = each.head.ljust(each.size)[max(0, begin - each.offset) :]
                lead[max(0, each.offset - begin) : end - begin] = new
            yield replace(patch, lead=lead_hash(bytes(lead)))
            done.append(patch)
