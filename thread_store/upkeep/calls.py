"""The system calls of the upkeep, in one place, so that tests can make each of them fail or be the last.

Invariant: nothing in this package changes a file but through here. All raise OSError.
"""

from __future__ import annotations

import os

from thread_store.forks.fork_copy import ForkCalls

__all__ = ["UpkeepCalls"]


class UpkeepCalls(ForkCalls):
    """Those of a fork, and reading on."""

    def read(self, descriptor: int, size: int) -> bytes:
        """What comes next in the file; nothing at its end."""
        return os.read(descriptor, size)
