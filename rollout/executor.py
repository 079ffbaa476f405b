"""A few daemon threads for the calls that may block: syncs and healing.

Invariant: no thread of it ever makes the interpreter wait at exit. A disk that hangs keeps
its thread; the process may end all the same (the pool of `concurrent.futures` would be joined).
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, ParamSpec, TypeVar

__all__ = ["DaemonExecutor"]

_P = ParamSpec("_P")
_T = TypeVar("_T")


class DaemonExecutor(Executor):
    """At most `threads_max` daemon threads, started when all others are busy. A job runs in the
    calling thread when not even one thread can be started."""

    def __init__(self, threads_max: int, name: str) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        """None ends a thread."""
        self._closed = False
        self._lock = threading.Lock()
        self._threads = 0
        self._idle = 0
        self._threads_max = threads_max
        self._name = name

    def post(self, job: Callable[[], None]) -> None:
        """Run a job that never raises, without a future: half the cost of `submit`."""
        if not self._hand_on(job):
            job()

    def _hand_on(self, job: Callable[[], None]) -> bool:
        with self._lock:
            if self._closed:
                return False
            if self._idle:
                self._idle -= 1
            elif self._threads < self._threads_max:
                self._threads += self._start_thread()
            if self._threads:
                self._jobs.put(job)
            return self._threads > 0

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        future: Future[_T] = Future()
        self.post(lambda: _run(future, lambda: fn(*args, **kwargs)))
        return future

    def close(self) -> None:
        """Let the threads end when they have done what was posted; what comes later runs in its caller."""
        with self._lock:
            self._closed = True
            for _ in range(self._threads):
                self._jobs.put(None)

    def _start_thread(self) -> int:
        try:
            threading.Thread(target=self._work, name=f"{self._name}-{self._threads}", daemon=True).start()
        except RuntimeError:
            return 0  # the interpreter exits, or the system has no thread left: those that run go on
        return 1

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            with self._lock:
                self._idle += 1


def _run(future: Future[Any], job: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = job()
    except BaseException as error:  # noqa: BLE001  # the future carries it to whoever awaits it
        future.set_exception(error)
    else:
        future.set_result(result)
