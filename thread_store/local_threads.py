"""The threads of one home, for code that may block: made, opened, and let go of again.

Invariant: a recorder of a thread exists only while its lock is held; the lock is released after the
rollout was let go of, whoever closes it: a caller, a dropped handle, the end of the store, a bug.

It owns one service thread, in which all its writers live, and the locks of this process. The store
calls it in threads of its own; the command line calls it as it is.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from msgspec import structs

from protocol.errors import NotARollout, RolloutError, RolloutExists, ThreadNotFound
from protocol.ids import ThreadId
from protocol.meta import SessionMeta, decode_meta
from rollout.barrier import Barrier, Goal
from rollout.config import RecorderConfig
from rollout.core import Core, create_core, open_core
from rollout.head import require_rollout
from rollout.paths import ARCHIVED_FOLDER
from rollout.service import Service
from thread_store.errors import ThreadsUnwritten
from thread_store.git_info import find_git_info
from thread_store.home import Home
from thread_store.locks import ThreadLocks, WriterLock

__all__ = ["LocalThreads", "OpenThread", "read_meta"]


_RELEASE_SECONDS_MAX = 5.0
"""A lock is not waited for longer: while a disk hangs, its writer's lock stays, and so it should."""


class OpenThread(NamedTuple):
    """A thread that is open to write."""

    core: Core
    meta: SessionMeta
    released: Future[None]
    """Done when its lock is free."""


class LocalThreads:
    """Opens the threads of `home`. Used as `with LocalThreads(home) as threads`; any thread may call it."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.locks = ThreadLocks(home.path)
        self._service = Service("rollout-store")
        self._open: dict[str, OpenThread] = {}
        self._registry = threading.Lock()

    def start(self) -> LocalThreads:
        """Start the service, and remove the lock files that dead writers have left."""
        self._service.start()
        self.locks.sweep()
        return self

    def close(self) -> None:
        """Close all threads that are open, at the same time, each within its `close_seconds`.

        Raises:
            ThreadsUnwritten: some could not write everything; it tells of each, and where the rest is kept.
        """
        with self._registry:
            opened = list(self._open.values())
        barriers = [Barrier(Goal.CLOSE, loop=None) for _ in opened]
        for each, barrier in zip(opened, barriers, strict=True):
            each.core.writer.request(barrier)
        errors = {}
        for each, barrier in zip(opened, barriers, strict=True):
            try:
                barrier.wait_blocking(None)
            except RolloutError as error:
                errors[each.core.thread_id] = error
        wait([each.released for each in opened], timeout=_RELEASE_SECONDS_MAX)
        self._service.stop()
        if errors:
            raise ThreadsUnwritten(errors, threads=len(opened))

    def __enter__(self) -> LocalThreads:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def create(
        self,
        meta: SessionMeta | None = None,
        *,
        config: RecorderConfig | None = None,
        collect_git: bool = True,
    ) -> OpenThread:
        """Begin a thread. Its file appears with the first record, or by `persist`.

        `collect_git`: ask git about `meta.cwd`, if `meta.git` is unset, for less than a second.

        Raises:
            RolloutExists: there is a thread of that id already.
            InvalidThreadId: `meta.id` is no UUID.
            ActiveWriter: somebody holds the lock of that id.
        """
        meta = meta or SessionMeta(cwd=os.getcwd())
        thread_id = ThreadId.new() if meta.id is None else ThreadId.parse(meta.id)
        known = meta.id is not None
        meta = structs.replace(meta, id=str(thread_id), cwd=os.path.abspath(meta.cwd))
        if meta.git is None and collect_git:
            meta = structs.replace(meta, git=find_git_info(meta.cwd))
        created = datetime.now()

        def make(lock: WriterLock, on_close: Callable[[], None]) -> tuple[Core, SessionMeta]:
            if known:
                self._require_absent(thread_id)
            core = create_core(
                self.home.new_rollout_path(thread_id, created=created),
                meta,
                config=config or RecorderConfig(),
                service=self._service,
                fence=lock.verify,
                on_close=on_close,
            )
            return core, core.meta or meta

        return self._hold(thread_id, make)

    def _require_absent(self, thread_id: ThreadId) -> None:
        try:
            path = self.home.find_thread(thread_id)
        except ThreadNotFound:
            return
        raise RolloutExists(path=path, reason=f"thread {thread_id} has a rollout")

    def open(self, thread_id: str, *, config: RecorderConfig | None = None) -> OpenThread:
        """Go on with a thread, in its current rollout.

        Raises:
            InvalidThreadId, ThreadNotFound: there is no such thread.
            ActiveWriter: somebody writes it; the error names them.
            NotARollout, RolloutUnreadable: its rollout can't be appended to.
        """
        wanted = ThreadId.parse(thread_id)
        self.home.find_thread(wanted)  # a thread that there isn't gets no lock

        def make(lock: WriterLock, on_close: Callable[[], None]) -> tuple[Core, SessionMeta]:
            path = self.find_appendable(wanted)
            meta = read_meta(path)
            core = open_core(
                path,
                config=config or RecorderConfig(),
                service=self._service,
                fence=lock.verify,
                on_close=on_close,
            )
            lock.raise_fence(core.epoch)
            return core, meta

        return self._hold(wanted, make)

    def find_appendable(self, thread_id: ThreadId) -> Path:
        """The rollout that the thread goes on in. Ask under its lock: a revert moves it.

        Raises:
            ThreadNotFound: there is none.
            NotARollout: it is archived, or compressed.
        """
        path = self.home.find_thread(thread_id)
        if path.parent.name == ARCHIVED_FOLDER:
            raise NotARollout(
                path=path, reason="its thread is archived", hint="Take it out of the archive first"
            )
        return path

    def _hold(
        self,
        thread_id: ThreadId,
        make: Callable[[WriterLock, Callable[[], None]], tuple[Core, SessionMeta]],
    ) -> OpenThread:
        lock = self.locks.acquire(thread_id)
        release = _Release(lock, self._service)
        try:
            core, meta = make(lock, release)
        except BaseException:
            lock.release()
            raise
        opened = OpenThread(core, meta, release.done)
        with self._registry:
            self._open[core.thread_id] = opened
        release.done.add_done_callback(lambda _: self._forget(opened))
        return opened

    def _forget(self, opened: OpenThread) -> None:
        with self._registry:
            if self._open.get(opened.core.thread_id) is opened:
                del self._open[opened.core.thread_id]


class _Release:
    """Releases a lock once, in a thread of the service: that may block. Called on the service's loop."""

    def __init__(self, lock: WriterLock, service: Service) -> None:
        self.done: Future[None] = Future()
        self._lock = lock
        self._service = service
        self._begun = False

    def __call__(self) -> None:
        if not self._begun:
            self._begun = True
            self._service.post_blocking(self._release)

    def _release(self) -> None:
        try:
            self._lock.release()
        finally:
            self.done.set_result(None)


def read_meta(path: str | os.PathLike[str]) -> SessionMeta:
    """The thread's own meta line; one without anything known where the rollout has lost it.

    Raises:
        ThreadNotFound, NotARollout, RolloutUnreadable: there is no rollout that could be read.
    """
    head = require_rollout(path)
    if head.meta is None or head.meta.line is None:
        return SessionMeta(id=head.thread_id, cwd="")
    return decode_meta(head.meta.line.payload)
