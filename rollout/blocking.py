"""The same recorder for code without a loop: blocking waits instead of awaits.

Invariant: it never blocks a running event loop; called inside one it raises at once and says
what to use instead (there a blocked wait could never be answered by tasks of that loop).
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from protocol.errors import PendingQueueFull
from rollout.barrier import Barrier, Goal, Receipt
from rollout.config import RecorderConfig
from rollout.core import create_core, open_core
from rollout.pending import Records
from rollout.recorder import RecorderHandle
from rollout.service import shared_service

if TYPE_CHECKING:
    from protocol.meta import SessionMeta

__all__ = ["BlockingRecorder", "create", "open"]


def create(
    path: str | os.PathLike[str], meta: SessionMeta | None = None, *, config: RecorderConfig | None = None
) -> BlockingRecorder:
    """Begin a rollout. See `RolloutRecorder.create`; use as `with rollout.blocking.create(…) as recorder`."""
    _refuse_inside_loop()
    return BlockingRecorder(
        create_core(path, meta, config=config or RecorderConfig(), service=shared_service())
    )


def open(path: str | os.PathLike[str], *, config: RecorderConfig | None = None) -> BlockingRecorder:
    """Append to an existing rollout. See `RolloutRecorder.open`."""
    _refuse_inside_loop()
    return BlockingRecorder(open_core(path, config=config or RecorderConfig(), service=shared_service()))


def _refuse_inside_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(
        "rollout.blocking was called inside a running event loop; use RolloutRecorder and await it"
    )


class BlockingRecorder(RecorderHandle):
    """`RolloutRecorder` with blocking waits. Safe to share between threads.

    `timeout` (seconds) bounds only the waiting; it raises TimeoutError and cancels nothing.
    """

    def record(self, *items: Records, timeout: float | None = None) -> None:
        """As `RolloutRecorder.record`."""
        _refuse_inside_loop()
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            try:
                self.record_nowait(*items)
                return
            except PendingQueueFull:
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise
                try:
                    self._wait(Goal.ROOM, left)
                except concurrent.futures.TimeoutError:
                    continue  # one more try, which then raises PendingQueueFull with its figures

    def flush(self, timeout: float | None = None) -> Receipt:
        """As `RolloutRecorder.flush`."""
        return self._wait(Goal.FLUSH, timeout)

    def sync(self, timeout: float | None = None) -> Receipt:
        """As `RolloutRecorder.sync`."""
        return self._wait(Goal.SYNC, timeout)

    def persist(self, timeout: float | None = None) -> Receipt:
        """As `RolloutRecorder.persist`."""
        _refuse_inside_loop()
        self._core.pending.append_header()
        return self._wait(Goal.SYNC, timeout)

    def close(self) -> Receipt:
        """As `RolloutRecorder.aclose`."""
        _refuse_inside_loop()
        self._finalizer.detach()
        return self._wait(Goal.CLOSE, None)

    def _wait(self, goal: Goal, timeout: float | None) -> Receipt:
        _refuse_inside_loop()
        barrier = Barrier(goal, loop=None)
        self._core.writer.request(barrier)
        return barrier.wait_blocking(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
