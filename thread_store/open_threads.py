"""The threads that one process has open in a store, and those that it is about to open.

Invariant: once `close` has begun nothing is opened any more; whoever was about to is told, and lets go
of what it got. A thread stays in here until its writer has ended and its lock is free: one that lost its
lock is still to be closed. The service is stopped behind the last of them, never under one.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import wait
from contextlib import contextmanager

from protocol.errors import RecorderClosed, RolloutError, WriterFenced
from rollout.barrier import Barrier, Goal
from rollout.service import Service
from rollout.state import WriterState
from thread_store.errors import StoreClosed, ThreadsUnwritten
from thread_store.subagents import family_of
from thread_store.thread import RELEASE_SECONDS_MAX, OpenThread

__all__ = ["OpenThreads", "close_all", "discard", "hand_over", "wait_for"]


class OpenThreads:
    """Of one store, with the service that its writers live in. Safe from any thread."""

    def __init__(self, store_path: str | os.PathLike[str], service: Service) -> None:
        self._store_path = store_path
        self._service = service
        self._pid = os.getpid()
        self._open: dict[int, OpenThread] = {}
        """By their own identity: of one thread there may be two, where it was taken from a handle of ours."""
        self._opening = 0
        self._closed = self._drained = False
        self._changed = threading.Condition()

    def start(self) -> None:
        """Start the service."""
        atexit.register(self._wait_at_exit)  # runs behind the service's own, which drains
        self._service.start()

    @contextmanager
    def opening(self) -> Iterator[None]:
        """Surrounds everything that opens a thread, from before its lock is taken.

        Raises:
            StoreClosed: it is too late for that.
        """
        with self._changed:
            self._require_open()
            self._opening += 1
        try:
            yield
        finally:
            self._end_opening()

    def _end_opening(self) -> None:
        with self._changed:
            self._opening -= 1
            self._changed.notify_all()
            last = self._drained and not self._opening
        if last:
            self._service.stop()

    def _require_open(self) -> None:
        if self._closed:
            raise StoreClosed(self._store_path)

    def add(self, opened: OpenThread) -> None:
        """It is open now.

        Raises:
            StoreClosed: too late; what it has is let go of.
        """
        with self._changed:
            late = self._closed
            if not late:
                self._open[id(opened)] = opened
        if late:
            discard(opened)
            raise StoreClosed(self._store_path)
        opened.released.add_done_callback(lambda _: self._forget(opened))

    def _forget(self, opened: OpenThread) -> None:
        with self._changed:
            if _has_ended(opened):
                self._open.pop(id(opened), None)

    def find_writing(self, thread_id: str) -> OpenThread | None:
        """The thread of this id, if its writer still owns it."""
        over = (WriterState.CLOSED, WriterState.FENCED)
        with self._changed:
            mine = [each for each in self._open.values() if each.core.thread_id == thread_id]
        return next((each for each in mine if each.core.writer.state not in over), None)

    def find_family(self, thread_id: str) -> list[OpenThread]:
        """The same of the thread and of all its sub-agents."""
        with self._changed:
            members = family_of(thread_id, self._open)
        found = [self.find_writing(each) for each in members]
        return [each for each in found if each is not None]

    def close(self) -> None:
        """Close all that are open, at the same time, each within its `close_seconds`; stop the service.

        Raises:
            ThreadsUnwritten: some could not write everything.
        """
        atexit.unregister(self._wait_at_exit)
        with self._changed:
            self._closed = True
            # Those that were closed before were told then.
            opened = [each for each in self._open.values() if not _has_ended(each)]
        errors = close_all([each for each in opened if each.core.writer.state is not WriterState.CLOSED])
        wait([each.released for each in opened], timeout=RELEASE_SECONDS_MAX)
        with self._changed:
            idle = self._changed.wait_for(lambda: not self._opening, RELEASE_SECONDS_MAX)
            self._drained = True
        if idle:
            self._service.stop()
        if errors:
            raise ThreadsUnwritten(errors, threads=len(opened))

    def _wait_at_exit(self) -> None:
        """The interpreter exits, and the writers were drained: a lock may still be on its way back."""
        if os.getpid() == self._pid:
            wait([each.released for each in self._open.values()], timeout=RELEASE_SECONDS_MAX)


def _has_ended(opened: OpenThread) -> bool:
    return opened.released.done() and opened.core.writer.state is WriterState.CLOSED


def close_all(opened: Sequence[OpenThread]) -> dict[str, RolloutError]:
    """Close these at the same time, each within its `close_seconds`. Blocks. Returns the errors by thread."""
    barriers = [Barrier(Goal.CLOSE, loop=None) for _ in opened]
    for each, barrier in zip(opened, barriers, strict=True):
        each.core.writer.request(barrier)
    errors = {}
    for each, barrier in zip(opened, barriers, strict=True):
        try:
            barrier.wait_blocking(None)
        except RolloutError as error:
            errors[each.core.thread_id] = error
    return errors


def wait_for(opened: OpenThread, goal: Goal) -> None:
    """Leave a barrier with its writer, and wait until it is met."""
    barrier = Barrier(goal, loop=None)
    opened.core.writer.request(barrier)
    barrier.wait_blocking(None)


def hand_over(opened: OpenThread, goal: Goal) -> str | None:
    """Hand what it has accepted to the OS, or bring it to stable storage. Returns the file; None: its writer
    has ended, or doesn't own it any more.
    """
    try:
        wait_for(opened, goal)
    except (RecorderClosed, WriterFenced):
        return None
    return opened.core.path


def discard(opened: OpenThread) -> None:
    """Let go of it without writing what it has; its lock is free then."""
    opened.core.writer.discard()
    wait([opened.released], timeout=RELEASE_SECONDS_MAX)
