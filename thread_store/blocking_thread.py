"""An open thread for code without a loop: blocking waits instead of awaits.

Invariant: as `thread_store.thread.Thread` has it: the thread's lock is held until its rollout is closed,
and is free when `close()` returns.
"""

from __future__ import annotations

import concurrent.futures
import logging
import os

from protocol.meta import SessionMeta
from rollout.barrier import Receipt
from rollout.blocking import BlockingRecorder
from thread_store.thread import RELEASE_SECONDS_MAX, OpenThread

__all__ = ["BlockingThread"]

_log = logging.getLogger("thread_store")


class BlockingThread(BlockingRecorder):
    """What `LocalThreads` opens, as a handle: `with BlockingThread(threads.open(thread_id)) as thread`."""

    def __init__(self, opened: OpenThread) -> None:
        super().__init__(opened.core)
        self._meta = opened.meta
        self._released = opened.released
        self._pid = os.getpid()

    @property
    def meta(self) -> SessionMeta:
        """The thread's own meta line."""
        return self._meta

    def close(self) -> Receipt:
        """As `Thread.aclose`: drained, synced, and the lock given back."""
        try:
            return super().close()
        finally:
            self._wait_for_release()

    def _wait_for_release(self) -> None:
        if os.getpid() != self._pid:
            return  # the lock is the parent's
        done, _ = concurrent.futures.wait([self._released], timeout=RELEASE_SECONDS_MAX)
        if not done:
            _log.warning("%s: its lock is kept until the disk answers", self.path)
