"""Twins: one rollout in two files, because somebody was killed while one took the place of the other.

Invariant: the one that goes holds nothing that the one that stays doesn't: its bytes are the beginning of the
other's, compared whole. Twins that differ are both left alone.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

from protocol.errors import RolloutError
from rollout.source import raise_unreadable
from rollout.syscalls import let_go
from thread_store.upkeep.calls import UpkeepCalls
from thread_store.upkeep.successor import blocks_of

__all__ = ["drop_twin", "is_beginning_of", "twin_of"]

_log = logging.getLogger("thread_store.upkeep")


def twin_of(path: str) -> str:
    """Where the other form of a rollout stands, if it does: compressed or plain, in the same folder."""
    return path.removesuffix(".zst") if path.endswith(".zst") else f"{path}.zst"


def drop_twin(stays: str, goes: str, calls: UpkeepCalls) -> bool:
    """Remove a twin that holds nothing of its own, if it is there. Returns whether it is gone.

    Raises:
        OSError: it can't be removed.
    """
    if not os.path.lexists(goes):
        return True
    try:
        if not is_beginning_of(goes, stays, calls):
            _log.warning("%s is not what %s was: both are left alone", goes, stays)
            return False
    except RolloutError as error:
        _log.warning("nobody can tell whether %s is what %s was; both are left alone: %s", goes, stays, error)
        return False
    calls.unlink(goes)
    calls.sync_folder(os.path.dirname(goes))
    return True


def is_beginning_of(path: str, whole: str, calls: UpkeepCalls) -> bool:
    """Whether the (decompressed) bytes of one rollout are the first ones of another, or all.

    Raises:
        ThreadNotFound, RolloutUnreadable: one of them can't be read.
    """
    ours, theirs = _bytes_of(path, calls), _bytes_of(whole, calls)
    left = b""
    for block in ours:
        while len(left) < len(block):
            more = next(theirs, b"")
            if not more:
                return False
            left += more
        if not left.startswith(block):
            return False
        left = left[len(block) :]
    return True


def _bytes_of(path: str, calls: UpkeepCalls) -> Iterator[bytes]:
    try:
        descriptor = calls.open_read(path)
    except OSError as error:
        raise_unreadable(path, error, "open")
    try:
        yield from blocks_of(descriptor, path, calls)
    finally:
        let_go(calls, descriptor, path)
