"""The service: one daemon thread with one event loop, in which all writer tasks live.

Invariant: user code never runs on this loop and its I/O never runs on a user's. A writer
that fails takes nobody with it: its task keeps the error, the task group never sees it.
"""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import logging
import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

import anyio
import anyio.abc
from aiofiles.os import wrap

from rollout.executor import DaemonExecutor
from rollout.lingering import Lingering

__all__ = ["Served", "Service", "shared_service"]

_log = logging.getLogger("rollout.writer")

_T = TypeVar("_T")

_SYNC_THREADS_MAX = 8


class Served(Protocol):
    """A writer, as the service knows it."""

    async def run(self) -> None:
        """Live until closed; never raises."""

    def close_at_exit(self, done: Callable[[], None]) -> float:
        """The interpreter exits: drain; call `done` at the end. Returns the seconds it may take."""


class Service:
    """The loop and the threads that the writers of one store (or all stand-alone recorders) share."""

    def __init__(self, name: str = "rollout-service") -> None:
        self._name = name
        self._pid = os.getpid()
        self._executor = DaemonExecutor(_SYNC_THREADS_MAX, f"{name}-sync")
        self._started = threading.Event()
        self._lingerings: dict[float, Lingering] = {}
        self._writers: set[Served] = set()
        self._exiting = False
        self._thread = threading.Thread(target=anyio.run, args=(self._serve,), name=name, daemon=True)
        self.loop: asyncio.AbstractEventLoop
        self._context: contextvars.Context
        self._tasks: anyio.abc.TaskGroup
        self._stop: anyio.Event

    def start(self) -> Service:
        self._thread.start()
        self._started.wait()
        atexit.register(self._drain_at_exit)
        return self

    async def _serve(self) -> None:
        async with anyio.create_task_group() as tasks:
            self.loop = asyncio.get_running_loop()
            # Callbacks run in this context, not in their callers': anyio (where sniffio is installed)
            # knows by it which loop it is on, and a caller's context variables are not kept alive.
            self._context = contextvars.copy_context()
            self._tasks = tasks
            self._stop = anyio.Event()
            self._started.set()
            await self._stop.wait()

    def stop(self) -> None:
        """Let the loop and its thread end; the writers must have been closed. From any thread."""
        atexit.unregister(self._drain_at_exit)
        self.call(self._stop.set)
        self._executor.close()

    def call(self, callback: Callable[..., object], *args: Any) -> None:
        """Run a callback on the service loop soon; from any thread, also from a finalizer."""
        try:
            self.loop.call_soon_threadsafe(callback, *args, context=self._context)
        except RuntimeError:
            if not self.loop.is_closed():
                raise
            # A sync that hung has come back, or a handle is dropped late: no writer is left to be told.

    def lingering(self, seconds: float) -> Lingering:
        """What wakes the writers of this linger time that nobody waits for."""
        return self._lingerings.setdefault(seconds, Lingering(self, seconds))

    def adopt(self, writer: Served) -> None:
        """Give a writer its task."""
        self._writers.add(writer)
        self.call(self._tasks.start_soon, self._run, writer)

    async def _run(self, writer: Served) -> None:
        try:
            await writer.run()
        except Exception as error:  # noqa: BLE001  # the others go on, whatever happened to this one
            _log.error("a writer ended without having kept its error", exc_info=error)
        finally:
            self._writers.discard(writer)

    def runs_here(self) -> bool:
        """Whether the calling thread is the service's own."""
        return threading.current_thread() is self._thread

    async def run_blocking(self, job: Callable[[], _T]) -> _T:
        """Run a blocking call in one of the few threads; awaited on the service loop.

        While the interpreter exits it runs right here: a new thread can't be had then.
        """
        if self._exiting:
            return job()
        call: Awaitable[_T] = wrap(job)(executor=self._executor)
        return await call

    def post_blocking(self, job: Callable[[], None]) -> None:
        """Run a blocking call that never raises in one of the few threads; nobody awaits it."""
        if self._exiting:
            job()
        else:
            self._executor.post(job)

    def submit_blocking(self, job: Callable[[], _T]) -> Future[_T]:
        """Run a blocking call in one of the few threads; the future belongs to no loop."""
        return self._executor.submit(job)

    def _drain_at_exit(self) -> None:
        """Recorders that nobody closed: write and sync what they hold, but never wait for a hung disk."""
        if os.getpid() != self._pid or not self._thread.is_alive():
            return
        self._exiting = True
        waits = []
        for writer in list(self._writers):
            done = threading.Event()
            waits.append((writer.close_at_exit(done.set), done))
        for seconds, done in waits:
            done.wait(seconds)


_shared: Service | None = None
_shared_lock = threading.Lock()


def shared_service() -> Service:
    """The service of all stand-alone recorders of this process; started on first use."""
    global _shared
    with _shared_lock:
        if _shared is None:
            _shared = Service().start()
        return _shared


def _forget_after_fork() -> None:
    # The thread of the parent's service doesn't exist in the child.
    global _shared, _shared_lock
    _shared, _shared_lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)
