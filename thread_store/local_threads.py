"""The threads of one home, for code that may block: made, opened, and let go of again.

Invariant: a recorder of a thread exists only while its lock is held; the lock is released after the
rollout was let go of, whoever closes it: a caller, a dropped handle, the end of the store, a bug.

It owns one service thread, in which all its writers live, and the locks of this process. The store
calls it in threads of its own; the command line calls it as it is.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Unpack

from msgspec import structs

from protocol.errors import (
    ForkPointInvalid,
    NotARollout,
    RolloutError,
    RolloutExists,
    RolloutUnreadable,
    ThreadNotFound,
    WriterHolder,
)
from protocol.events import EventMsg
from protocol.ids import ThreadId
from protocol.meta import SessionMeta, meta_of
from protocol.tool_safety import DEFAULT_TOOL_SAFETY, ToolSafety
from rollout.barrier import Goal
from rollout.config import RecorderConfig
from rollout.core import Core, create_core, open_core
from rollout.erase_journal import finish_begun
from rollout.head import require_rollout
from rollout.paths import ARCHIVED_FOLDER, SESSIONS_FOLDER
from rollout.redaction import Redaction
from rollout.service import Service
from rollout.staged_file import remove_file
from rollout.syscalls import FileCalls
from thread_store.chain.fork_point import ForkPoint
from thread_store.chain.history import ThreadHistory, read_history
from thread_store.chain.lineage import Lineage
from thread_store.folding.derived_snapshot import DerivedSnapshots
from thread_store.folding.memory_keeper import MemoryKeeper
from thread_store.forks.fork import ForkMode, make_fork
from thread_store.forks.fork_copy import Progress
from thread_store.forks.fork_tree import fork_tree
from thread_store.forks.revert import make_revert, turns_to_drop
from thread_store.forks.take_over import move_on
from thread_store.git_info import SECONDS_MAX as GIT_SECONDS_MAX
from thread_store.git_info import find_git_info
from thread_store.home import Home
from thread_store.locks import ThreadLocks, WriterLock
from thread_store.locks.holder import redact_own_command
from thread_store.open_threads import OpenThreads, hand_over, wait_for
from thread_store.search.search_query import SearchOptions, make_query
from thread_store.search.thread_search import ThreadSearch
from thread_store.thread import RELEASE_SECONDS_MAX, OpenThread
from thread_store.thread_reading import LocalReading
from thread_store.titles.session_index import SessionIndex
from thread_store.upkeep.archive import Moved, archive_thread, unarchive_thread
from thread_store.upkeep.compression import COLD_SECONDS, Compressed, compress_thread, expand_rollout
from thread_store.upkeep.deletion import Deleted, delete_threads
from thread_store.upkeep.threads import Place

if TYPE_CHECKING:
    from thread_store.erasing.erase import ErasureReport
    from thread_store.erasing.erase_address import NamedRecord
    from thread_store.erasing.needle import Needle

__all__ = ["LocalThreads", "read_meta"]


class LocalThreads:
    """Opens the threads of `home`. Used as `with LocalThreads(home) as threads`; any thread may call it."""

    def __init__(
        self,
        home: Home,
        *,
        safety: ToolSafety = DEFAULT_TOOL_SAFETY,
        config: RecorderConfig | None = None,
    ) -> None:
        """
        Args:
            config: for all threads that are given none.
        """
        self.home = home
        self._default_config = config or RecorderConfig()
        self.safety = safety
        self.locks = ThreadLocks(home.path)
        self.derived = DerivedSnapshots(home)
        self._service = Service("rollout-store")
        self._threads = OpenThreads(home.path, self._service)

    def start(self) -> LocalThreads:
        """Remove the lock files that dead writers have left, and start the service."""
        self.locks.sweep()
        self._threads.start()
        return self

    def close(self) -> None:
        """Close all threads that are open, at the same time, each within its `close_seconds`.

        Raises:
            ThreadsUnwritten: some could not write everything; it tells of each, and where the rest is kept.
        """
        self._threads.close()

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
        git_seconds: float = GIT_SECONDS_MAX,
    ) -> OpenThread:
        """Begin a thread. Its file appears with the first record, or by `persist`.

        `git_seconds`: how long to ask git about `meta.cwd`, if `meta.git` is unset; 0 asks nothing.

        Raises:
            RolloutExists: there is a thread of that id already.
            InvalidThreadId: `meta.id` is no UUID.
            ActiveWriter: somebody holds the lock of that id.
        """
        config = self._config_of(config)
        meta = meta or SessionMeta(cwd=os.getcwd())
        thread_id = ThreadId.new() if meta.id is None else ThreadId.parse(meta.id)
        known = meta.id is not None
        meta = structs.replace(meta, id=str(thread_id), cwd=os.path.abspath(meta.cwd))
        if meta.git is None and git_seconds > 0:
            meta = structs.replace(meta, git=find_git_info(meta.cwd, seconds_max=git_seconds))
        created = datetime.now()

        def make(lock: WriterLock, on_close: _Release) -> _Made:
            begun = self._find_begun(thread_id) if known else None
            core = create_core(
                begun or self.home.new_rollout_path(thread_id, created=created),
                meta,
                config=config,
                service=self._service,
                fence=lock.verify,
                on_close=on_close,
            )
            return _Made(core, core.meta or meta, self._keep_memory(core, on_close))

        return self._hold(lambda: self.locks.acquire(thread_id), make)

    def _find_begun(self, thread_id: ThreadId) -> Path | None:
        """The empty file of a writer that died as soon as it had made it, if there is one."""
        try:
            path = self.home.find_thread(thread_id)
        except ThreadNotFound:
            return None
        if path.stat().st_size:
            raise RolloutExists(path=path, reason=f"thread {thread_id} has a rollout")
        return path

    def open(
        self,
        thread_id: str,
        *,
        config: RecorderConfig | None = None,
        judge: Callable[[Path], None] | None = None,
    ) -> OpenThread:
        """Go on with a thread, in its current rollout.

        One that is compressed is expanded first. `judge` is shown that rollout under the lock, before
        anything is changed: what it raises ends it.

        Raises:
            InvalidThreadId, ThreadNotFound: there is no such thread.
            ActiveWriter: somebody writes it; the error names them.
            NotARollout, RolloutUnreadable: its rollout can't be appended to.
        """
        config = self._config_of(config)
        wanted = ThreadId.parse(thread_id)
        self.home.find_thread(wanted)  # a thread that there isn't gets no lock

        def make(lock: WriterLock, on_close: _Release) -> _Made:
            path = self.find_appendable(wanted)
            if judge is not None:
                judge(path)
            return self._open_core(path, lock, on_close, config)

        return self._hold(lambda: self.locks.acquire(wanted), make)

    def find_writing(self, thread_id: str) -> OpenThread | None:
        """The thread of this id, if it is open here and its writer still owns it."""
        return self._threads.find_writing(thread_id)

    def _open_made(
        self, paths: Sequence[str], lock: WriterLock, on_close: _Release, config: RecorderConfig
    ) -> _Made:
        """Open the first of the rollouts that were just made. Where that fails none of them stays."""
        try:
            return self._open_core(paths[0], lock, on_close, config)
        except BaseException:
            for path in reversed(paths):
                remove_file(path, FileCalls())
            raise

    def _open_core(
        self,
        path: str | os.PathLike[str],
        lock: WriterLock,
        on_close: _Release,
        config: RecorderConfig,
    ) -> _Made:
        meta = read_meta(path)
        path = expand_rollout(path, fence=lock.verify)
        core = open_core(
            path,
            config=config,
            service=self._service,
            fence=lock.verify,
            on_close=on_close,
        )
        try:
            lock.raise_fence(core.epoch)
            return _Made(core, meta, self._keep_memory(core, on_close))
        except BaseException as error:
            core.writer.discard()
            wait([on_close.done], timeout=RELEASE_SECONDS_MAX)
            if isinstance(error, OSError) and not isinstance(error, RolloutError):
                raise RolloutUnreadable(path=lock.path, cause=error, operation="lock") from error
            raise

    def _keep_memory(self, core: Core, release: _Release) -> MemoryKeeper:
        keeper = MemoryKeeper(
            core.path,
            self.home,
            pending=core.pending,
            service=self._service,
            safety=self.safety,
            derived=self.derived,
        )
        core.writer.follow(keeper)
        release.before = keeper.keep_last
        return keeper

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

        What recorders of this process have accepted for the source (and its sub-agents, if they are forked
        too) is handed to the OS first; brought to stable storage, if the fork will rest on it.

        Raises:
            InvalidThreadId, ThreadNotFound: there is no such thread.
            ForkPointInvalid: it has no such point.
            ForkRefused, NotARollout, RolloutUnreadable, RolloutWriteError: as `make_fork`.
        """
        config = self._config_of(config)
        source, child = ThreadId.parse(thread_id), ThreadId.new()
        writing = self._threads.find_writing(source)
        family = self._threads.find_family(source) if with_subagents else filter(None, [writing])
        synced = _hand_over_all(family, durably=mode == "reference")
        try:
            path = self.home.find_thread(source)
        except ThreadNotFound:
            if writing is None:
                raise
            return self._fork_unwritten(writing, at, config)

        def make(lock: WriterLock, on_close: _Release) -> _Made:
            if with_subagents:
                coordination = self.locks.coordinated()
                made = fork_tree(
                    source,
                    home=self.home,
                    thread_id=child,
                    point=at,
                    mode=mode,
                    coordination=coordination,
                    synced=synced,
                )
            else:
                forked = make_fork(
                    path,
                    self.home.new_rollout_path(child),
                    thread_id=child,
                    home=self.home,
                    point=at,
                    mode=mode,
                    coordination=self.locks.coordinated(),
                    synced=synced,
                    progress=progress,
                )
                made = [forked]
            return self._open_made([each.path for each in made], lock, on_close, config)

        return self._hold(lambda: self.locks.acquire(child), make)

    def _fork_unwritten(self, source: OpenThread, at: ForkPoint | None, config: RecorderConfig) -> OpenThread:
        """Of a thread that has no record yet there is its meta to take over."""
        if at not in (None, ForkPoint.end(), ForkPoint.turn(0)):
            raise ForkPointInvalid(str(at), "the thread has no record yet", path=source.core.path)
        meta = structs.replace(source.meta, id=None, timestamp=None, forked_from_id=source.core.thread_id)
        return self.create(meta, config=config, git_seconds=0)

    def revert(self, thread_id: str, *, point: ForkPoint, config: RecorderConfig | None = None) -> OpenThread:
        """Take a thread back to a point of its history, and open it. Nothing is erased.

        A paginated one goes on in a new rollout; in a legacy one it is recorded how many turns don't count
        any more. On return that is on stable storage.

        Raises:
            InvalidThreadId, ThreadNotFound, ActiveWriter: as `open`.
            ForkPointInvalid: it has no such point.
            ForkRefused, NotARollout, RolloutUnreadable, RolloutWriteError: as `make_revert`.
        """
        config = self._config_of(config)
        wanted = ThreadId.parse(thread_id)
        self.home.find_thread(wanted)

        def make(lock: WriterLock, on_close: _Release) -> _Made:
            path = self.find_appendable(wanted)
            if read_meta(path).history_mode == "paginated":
                coordination = self.locks.coordinated()
                reverted = make_revert(path, home=self.home, point=point, coordination=coordination)
                return self._open_made([reverted.path], lock, on_close, config)
            turns = turns_to_drop(Lineage.resolve(path, self.home), point)
            made = self._open_core(path, lock, on_close, config)
            made.core.pending.append(EventMsg.thread_rolled_back(turns))
            return made

        opened = self._hold(lambda: self.locks.acquire(wanted), make)
        try:
            wait_for(opened, Goal.SYNC)
        except RolloutError:
            opened.core.writer.discard()
            raise
        return opened

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
        config = self._config_of(config)
        wanted = ThreadId.parse(thread_id)
        self.home.find_thread(wanted)
        holder: WriterHolder | None = None

        def take() -> WriterLock:
            nonlocal holder
            lock, holder = self.locks.take_over(wanted)
            return lock

        def make(lock: WriterLock, on_close: _Release) -> _Made:
            path = expand_rollout(self.find_appendable(wanted), fence=lock.verify)
            if holder is not None:
                path = Path(move_on(path, self.home, holder, coordination=self.locks.coordinated()))
            return self._open_core(path, lock, on_close, config)

        return self._hold(take, make), holder

    def erase(
        self,
        threads: Iterable[str] | None = None,
        *,
        needle: Needle | None = None,
        record: NamedRecord | None = None,
        reason: str | None = None,
        dry_run: bool = False,
    ) -> ErasureReport:
        """Overwrite what should not have been recorded, and all that was made of it (FORMAT.md, Erasing).

        `needle`: a text or pattern, in these threads or (None) in all of the home; or one `record` of one
        thread. No byte moves. `dry_run` only plans. On return it is on stable storage; cut short, the next
        opening of a thread of the home goes on with it.

        Raises:
            InvalidThreadId, ThreadNotFound: there is no such thread, or no such record.
            ActiveWriter: somebody writes one of the threads, perhaps this process: close it first.
            EraseRefused: it can't be erased so. Nothing was changed, as with the ones before.
            RolloutWriteError: the system refuses; what is left is written down.
        """
        from thread_store.erasing.erase import Erasure, ErasureReport  # few programs need it
        from thread_store.erasing.errors import EraseRefused

        ids = None if threads is None else [ThreadId.parse(each) for each in threads]
        paths = [self.home.find_thread(each) for each in ids or ()]
        if record is not None and len(paths) != 1:
            raise EraseRefused("a record is in one thread", hint="Name that thread, and no other")
        path = None if record is None else paths[0]
        erasure = Erasure(
            self.home, threads=ids, path=path, needle=needle, record=record, reason=reason, locks=self.locks
        )
        if dry_run:
            return ErasureReport(plan=erasure.plan(), done=False, left=[])
        return erasure.carry_out()

    def read(self, thread_id: str) -> ThreadHistory:
        """Read the whole history of a thread, without a lock.

        Raises:
            InvalidThreadId, ThreadNotFound: there is no such thread.
            NotARollout, RolloutUnreadable: its rollout can't be read.
        """
        return read_history(self.home.find_thread(ThreadId.parse(thread_id)), self.home)

    def _config_of(self, config: RecorderConfig | None) -> RecorderConfig:
        """What holds for a thread. Called before its lock is taken, whose file tells of this process."""
        config = config or self._default_config
        redaction = Redaction.of(config.redact, config.redact_items)
        if redaction is not None:
            redact_own_command(redaction.text)
        return config

    def search(self, text: str, **options: Unpack[SearchOptions]) -> ThreadSearch:
        """Search what was said and done: an iterator of hits, as they are found, and a report. Takes no lock;
        found is what was handed to the OS.

        Raises:
            SearchInvalid: there is no such search.
            RolloutUnreadable: the home can't be listed; at the first step.
        """
        return ThreadSearch(self.home, make_query(text, **options))

    def rename(self, thread_id: str, name: str) -> str:
        """Call a thread something; returns the name as it is kept. On return it is on stable storage.

        Raises:
            InvalidThreadId, ThreadNotFound: there is no such thread.
            ValueError: the name is blank.
            RolloutWriteError: it can't be written.
        """
        wanted = ThreadId.parse(thread_id)
        writing = self._threads.find_writing(wanted)
        if writing is None:  # else it has perhaps no record yet
            self.home.find_thread(wanted)
        default = Redaction.of(self._default_config.redact, self._default_config.redact_items)
        redaction = default if writing is None else writing.core.pending.redaction
        return SessionIndex(self.home.path).append(
            wanted, name if redaction is None else redaction.text(name)
        )

    def archive(self, thread_id: str) -> Moved:
        """Put a thread into the archive. Raises as `archive_thread`."""
        return archive_thread(self._place(), thread_id)

    def unarchive(self, thread_id: str) -> Moved:
        """Take a thread out of the archive. Raises as `unarchive_thread`."""
        return unarchive_thread(self._place(), thread_id)

    def compress(self, thread_id: str, *, older_than_seconds: float = COLD_SECONDS) -> Compressed:
        """Compress a thread. Raises as `compress_thread`."""
        return compress_thread(self._place(), thread_id, older_than_seconds=older_than_seconds)

    def delete(self, thread_id: str, *, cascade: bool = False) -> Deleted:
        """Delete a thread. Raises as `delete_threads`."""
        return delete_threads(self._place(), [ThreadId.parse(thread_id)], cascade=cascade)

    def _place(self) -> Place:
        return Place.of(self.home, self.locks)

    def find_appendable(self, thread_id: ThreadId) -> Path:
        """The rollout that the thread goes on in. Ask under its lock: a revert moves it.

        Raises:
            ThreadNotFound: there is none.
            NotARollout: it is archived.
        """
        path = self.home.find_thread(thread_id)
        if path.parent.name == ARCHIVED_FOLDER:
            raise NotARollout(
                path=path,
                reason="its thread is archived",
                hint=f"Take it out of the archive first: rollout unarchive {thread_id}",
            )
        return path

    def _hold(
        self,
        take_lock: Callable[[], WriterLock],
        make: Callable[[WriterLock, _Release], _Made],
    ) -> OpenThread:
        """Open with a lock, which is released if that fails."""
        with self._threads.opening():
            finish_begun(self.home.path / SESSIONS_FOLDER / "any")  # before anything is copied, too
            lock = take_lock()
            release = _Release(lock, self._service)
            try:
                made = make(lock, release)
            except BaseException:
                lock.release()
                raise
            reading = LocalReading(made.core.path, self.home, made.keeper)
            opened = OpenThread(made.core, made.meta, release.done, reading, self.safety)
            self._threads.add(opened)
            return opened


class _Made(NamedTuple):
    """What stands behind a thread that is opened."""

    core: Core
    meta: SessionMeta
    keeper: MemoryKeeper


class _Release:
    """Releases a lock once, in a thread of the service: that may block. Called on the service's loop."""

    def __init__(self, lock: WriterLock, service: Service) -> None:
        self.done: Future[None] = Future()
        self.before: Callable[[], None] = lambda: None
        """What is still to be done under the lock. It never raises."""
        self._lock = lock
        self._service = service
        self._begun = False

    def __call__(self) -> None:
        if not self._begun:
            self._begun = True
            self._service.post_blocking(self._release)

    def _release(self) -> None:
        try:
            self.before()
            self._lock.release()
        finally:
            self.done.set_result(None)


def _hand_over_all(family: Iterable[OpenThread], *, durably: bool) -> list[str]:
    """Hand what they have accepted to the OS. Returns the files that are on stable storage by that."""
    goal = Goal.SYNC if durably else Goal.FLUSH
    handed = [hand_over(each, goal) for each in family]
    return [each for each in handed if each is not None] if durably else []


def read_meta(path: str | os.PathLike[str]) -> SessionMeta:
    """The thread's own meta line; one without anything known where the rollout has lost it.

    Raises:
        ThreadNotFound, NotARollout, RolloutUnreadable: there is no rollout that could be read.
    """
    head = require_rollout(path)
    if head.meta is None or head.meta.line is None:
        return SessionMeta(id=head.thread_id, cwd="")
    return meta_of(head.meta.line)
