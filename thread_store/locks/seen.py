"""A lock file as somebody sees it who only looks."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from protocol.errors import RolloutUnreadable, WriterHolder
from protocol.ids import ThreadId
from thread_store.locks.holder import LockHolder

__all__ = ["LockState", "SeenLock"]


class LockState(StrEnum):
    """Whether somebody holds it."""

    LIVE = "live"
    STALE = "stale"
    UNKNOWN = "unknown"


class SeenLock(NamedTuple):
    """One lock file. `writer` names the holder as far as that is known, from its text or from the system."""

    thread_id: ThreadId
    path: str
    state: LockState
    writer: WriterHolder = WriterHolder()
    holder: LockHolder | None = None
    """What the file says; None where it says nothing (Codex's are empty)."""
    age_seconds: float | None = None
    """Since a lease was renewed last; None with flock, where the age says nothing."""
    problem: RolloutUnreadable | None = None
    """Why it can't be told more."""
