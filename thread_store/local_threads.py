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

from msgspec import structs

from protocol.errors import (
    ForkPointInvalid,
    NotARollout,
    RolloutError,
    RolloutExists,
    ThreadNotFound,
    WriterHolder,
)
from protocol.events import EventMsg
from protocol.ids import ThreadId
from protocol.meta import SessionMeta, decode_meta
from rollout.barrier import Barrier, Goal
from rollout.config import RecorderConfig
from rollout.core import Core, create_core, open_core
from rollout.head import require_rollout
from rollout.paths import ARCHIVED_FOLDER
from rollout.service import Service
from thread_store.errors import ThreadsUnwritten
from thread_store.fork import ForkMode, make_fork
from thread_store.fork_copy import Progress
from thread_store.fork_point import ForkPoint
from thread_store.fork_tree import fork_tree
from thread_store.git_info import find_git_info
from thread_store.history import ThreadHistory, read_history
from thread_store.home import Home
from thread_store.lineage import Lineage
from thread_store.locks import ThreadLocks, WriterLock
from thread_store.revert import make_revert, turns_to_drop
from thread_store.take_over import move_on
from thread_store.thread import RELEASE_SECONDS_MAX, OpenThread

__all__ = ["LocalThreads", "read_meta"]


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
            opened = [each for each in self._open.values() if not each.released.done()]
        barriers = [Barrier(Goal.CLOSE, loop=None) for _ in opened]
        for each, barrier in zip(opened, barriers, strict=True):
            each.core.writer.request(barrier)
        # Those that were closed before were told then.
        errors = {}
        for each, barrier in zip(opened, barriers, strict=True):
            try:
                barrier.wait_blocking(None)
            except RolloutError as error:
                errors[each.core.thread_id] = error
        wait([each.released for each in opened], timeout=RELEASE_SECONDS_MAX)
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
            return self._open_core(self.find_appendable(wanted), lock, on_close, config)

        return self._hold(wanted, make)

    def _open_core(
        self,
        path: str | os.PathLike[str],
        lock: WriterLock,
        on_close: Callable[[], None],
        config: RecorderConfig | None,
    ) -> tuple[Core, SessionMeta]:
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

    def fork(
        self,
        thread_id: str,
        *,
        at: ForkPoint | None = None,
        mode: ForkMode = "copy",
        with_subagents: bool = False,
        config: RecorderConfig | None = None,
        progress: Progress | None = None,
    ) -> OpenThread:
        """Begin a thread with the history of another one up to `at` (by default its end), and open it.

        What a recorder of this process has accepted for the source is handed to the OS first.

        Raises:
            InvalidThreadId, ThreadNotFound: there is no such thread.
            ForkPointInvalid: it has no such point.
            ForkRefused, NotARollout, RolloutUnreadable, RolloutWriteError: as `make_fork`.
        """
        source, child = ThreadId.parse(thread_id), ThreadId.new()
        writing = self._flush(source)
        try:
            path = self.home.find_thread(source)
        except ThreadNotFound:
            if writing is None:
                raise
            return self._fork_unwritten(writing, at, config)

        def make(lock: WriterLock, on_close: Callable[[], None]) -> tuple[Core, SessionMeta]:
            if with_subagents:
                coordination = self.locks.coordinated()
                made = fork_tree(
                    source, home=self.home, thread_id=child, point=at, mode=mode, coordination=coordination
                )[0]
            else:
                made = make_fork(
                    path,
                    self.home.new_rollout_path(child),
                    thread_id=child,
                    home=self.home,
                    point=at,
                    mode=mode,
                    coordination=self.locks.coordinated(),
                    progress=progress,
                )
            return self._open_core(made.path, lock, on_close, config)

        return self._hold(child, make)

    def _flush(self, thread_id: ThreadId) -> OpenThread | None:
        """The thread, if it is open here; what it has accepted is with the OS then."""
        with self._registry:
            writing = self._open.get(thread_id)
        if writing is not None:
            barrier = Barrier(Goal.FLUSH, loop=None)
            writing.core.writer.request(barrier)
            barrier.wait_blocking(None)
        return writing

    def _fork_unwritten(
        self, source: OpenThread, at: ForkPoint | None, config: RecorderConfig | None
    ) -> OpenThread:
        """Of a thread that has no record yet there is its meta to take over."""
        if at not in (None, ForkPoint.end(), ForkPoint.turn(0)):
            raise ForkPointInvalid(str(at), "the thread has no record yet", path=source.core.path)
        meta = structs.replace(source.meta, id=None, timestamp=None, forked_from_id=source.core.thread_id)
        return self.create(meta, config=config, collect_git=False)

    def revert(self, thread_id: str, *, point: ForkPoint, config: RecorderConfig | None = None) -> OpenThread:
        """Take a thread back to a point of its history, and open it. Nothing is erased.

        A paginated one goes on in a new rollout; in a legacy one it is recorded how many turns don't count
        any more.

        Raises:
            InvalidThreadId, ThreadNotFound, ActiveWriter: as `open`.
            ForkPointInvalid: it has no such point.
            ForkRefused, NotARollout, RolloutUnreadable, RolloutWriteError: as `make_revert`.
        """
        wanted = ThreadId.parse(thread_id)
        self.home.find_thread(wanted)

        def make(lock: WriterLock, on_close: Callable[[], None]) -> tuple[Core, SessionMeta]:
            path = self.find_appendable(wanted)
            if read_meta(path).history_mode == "paginated":
                coordination = self.locks.coordinated()
                made = make_revert(path, home=self.home, point=point, coordination=coordination)
                return self._open_core(made.path, lock, on_close, config)
            turns = turns_to_drop(Lineage.resolve(path, self.home), point)
            core, meta = self._open_core(path, lock, on_close, config)
            core.pending.append(EventMsg.thread_rolled_back(turns))
            return core, meta

        return self._hold(wanted, make)

    def take_over(
        self, thread_id: str, *, config: RecorderConfig | None = None
    ) -> tuple[OpenThread, WriterHolder | None]:
        """Take a thread from a writer that hangs, and open it. Returns also who that was, if anybody.

        The thread goes on in a new rollout (a legacy one in a copy at the old one's place): whatever the old
        writer still does lands where it changes nothing.

        Raises:
            InvalidThreadId, ThreadNotFound: there is no such thread.
            ForkRefused, NotARollout, RolloutUnreadable, RolloutWriteError: as `make_revert`; nobody holds
                the thread then.
        """
        wanted = ThreadId.parse(thread_id)
        self.home.find_thread(wanted)
        lock, holder = self.locks.take_over(wanted)

        def make(lock: WriterLock, on_close: Callable[[], None]) -> tuple[Core, SessionMeta]:
            path = self.find_appendable(wanted)
            if holder is not None:
                path = Path(move_on(path, self.home, holder, coordination=self.locks.coordinated()))
            return self._open_core(path, lock, on_close, config)

        return self._use(lock, make), holder

    def read(self, thread_id: str) -> ThreadHistory:
        """Read the whole history of a thread, without a lock.

        Raises:
            InvalidThreadId, ThreadNotFound: there is no such thread.
            NotARollout, RolloutUnreadable: its rollout can't be read.
        """
        return read_history(self.home.find_thread(ThreadId.parse(thread_id)), self.home)

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
        return self._use(self.locks.acquire(thread_id), make)

    def _use(
        self,
        lock: WriterLock,
        make: Callable[[WriterLock, Callable[[], None]], tuple[Core, SessionMeta]],
    ) -> OpenThread:
        """Open with a lock that is held already; it is released if that fails."""
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
