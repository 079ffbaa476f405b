"""Who writes which thread, as a list needs it: looked at when it is first asked for, once.

Invariant: who isn't known to be dead counts as writing. Where locks can't be looked at, nobody is known to
write, and that is noted.
"""

from __future__ import annotations

import os

from protocol.errors import RolloutError, WriterHolder
from thread_store.home import Home

__all__ = ["WritersSeen"]


class WritersSeen:
    """The writers of one home."""

    def __init__(self, home: Home) -> None:
        self._home = os.fspath(home.path)
        self._writers: dict[str, WriterHolder] | None = None
        self.notes: list[str] = []

    def of(self, thread_id: str) -> WriterHolder | None:
        """Who writes a thread; None if nobody does."""
        if self._writers is None:
            self._writers = self._look()
        return self._writers.get(thread_id)

    def _look(self) -> dict[str, WriterHolder]:
        if not self._has_locks():
            return {}
        from thread_store.locks import LockState, ThreadLocks

        try:
            seen = ThreadLocks(self._home).holders()
        except RolloutError as error:
            self.notes.append(f"who is writing can't be seen: {error.message}")
            return {}
        return {each.thread_id: each.writer for each in seen if each.state is not LockState.STALE}

    def _has_locks(self) -> bool:
        """Most of the time nobody writes: then the locks' own code isn't needed."""
        try:
            names = os.listdir(os.path.join(self._home, "thread-writer-locks"))
        except OSError:
            return False  # there is no such folder
        return any(name.endswith(".lock") and not name.startswith(".") for name in names)
