"""Who is told what was written, while it is written: for records that are made from other records.

Invariant: the writer never waits for a follower, except to end; and then no longer than it may take to
close. What a follower records itself goes into the queue as a note.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

__all__ = ["Follower", "NoFollower"]


class Follower(Protocol):
    """Follows one writer. Called on the service's loop, and must be quick."""

    def attach(self, wake: Callable[[], None]) -> None:
        """Before anything is written. `wake` is to be called, from any thread, once `is_done` is true."""

    def look(self, data: bytes | bytearray) -> None:
        """Whole lines that the OS just took. After a disturbance some may come again."""

    @property
    def is_done(self) -> bool:
        """Whether nothing is under way that would still be recorded."""


class NoFollower:
    """Nobody follows."""

    is_done = True

    def attach(self, wake: Callable[[], None]) -> None:
        return

    def look(self, data: bytes | bytearray) -> None:
        return
