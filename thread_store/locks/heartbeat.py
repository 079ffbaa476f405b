"""The heartbeat of leases: one thread sets the time of all that are held to now.

Invariant: the thread exists only while something is held. It never touches a file that isn't its
holder's any more, and no error ends it. In a forked child nothing beats: the leases are the parent's.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from typing import Protocol

from thread_store.locks.lease_file import BEAT_SECONDS

__all__ = ["Beating", "Heartbeat"]

_log = logging.getLogger("rollout.locks")


class Beating(Protocol):
    """Something that has to say now and then that it is alive."""

    path: str

    def beat(self) -> None:
        """Say so."""


class Heartbeat:
    """The beating ones of one store."""

    def __init__(self, seconds: float = BEAT_SECONDS) -> None:
        self._seconds = seconds
        self.reset_after_fork()
        _heartbeats.add(self)

    def reset_after_fork(self) -> None:
        """In a forked child: begin anew, with no thread."""
        self._changed = threading.Condition()
        self._beating: set[Beating] = set()
        self._failing: set[Beating] = set()
        self._thread: threading.Thread | None = None

    def add(self, one: Beating) -> None:
        """Let it beat from now on."""
        with self._changed:
            self._beating.add(one)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="rollout-leases", daemon=True)
                self._thread.start()

    def discard(self, one: Beating) -> None:
        """Let it beat no more. The thread ends with the last one."""
        with self._changed:
            self._beating.discard(one)
            self._failing.discard(one)
            if not self._beating:
                self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._beating:
                    self._changed.wait(self._seconds)
                if not self._beating:
                    self._thread = None
                    return
                now = list(self._beating)
            for each in now:
                self._beat(each)

    def _beat(self, one: Beating) -> None:
        try:
            one.beat()
        except OSError as error:
            if one not in self._failing:
                _log.warning("%s: the lease can't be renewed: %s", one.path, error)
            self._failing.add(one)
        else:
            self._failing.discard(one)


_heartbeats: weakref.WeakSet[Heartbeat] = weakref.WeakSet()


def _reset_in_child() -> None:
    for each in list(_heartbeats):
        each.reset_after_fork()


# Not there on Windows, where no process forks.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_in_child)
