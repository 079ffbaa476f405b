"""LocalThreadStore: the threads of one home, in files alone. No database is needed for the truth.

Invariant: a caller's loop does no I/O: what blocks runs in a few threads of the store's own, and a
cancelled caller only stops waiting for it. Whatever is still open when the store closes is drained, all
threads at once.
"""

from __future__ import annotations

import asyncio
import os
import time
import weakref
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar, Unpack

from protocol.errors import RolloutError
from protocol.meta import SessionMeta
from protocol.tool_safety import DEFAULT_TOOL_SAFETY, ToolSafety
from rollout.config import RecorderConfig
from rollout.executor import DaemonExecutor
from thread_store.chain.fork_point import ForkPoint
from thread_store.chain.history import ThreadHistory
from thread_store.errors import StoreClosed
from thread_store.forks.fork import ForkMode
from thread_store.git_info import SECONDS_MAX as GIT_SECONDS_MAX
from thread_store.home import Home
from thread_store.listing.thread_entry import ThreadPage
from thread_store.listing.thread_list import list_threads
from thread_store.listing.thread_query import ListOptions, ThreadQuery
from thread_store.local_threads import LocalThreads
from thread_store.resume import local_resume
from thread_store.resume.call_decision import Outcome
from thread_store.resume.resumable import Resumable
from thread_store.resume.resume_state import ResumeState
from thread_store.search.search_hit import SearchReport
from thread_store.search.search_query import SearchOptions, make_query
from thread_store.search.search_stream import SearchStream
from thread_store.search.thread_search import ThreadSearch
from thread_store.subagents import activity, subagent_meta
from thread_store.thread import OpenThread, Thread
from thread_store.upkeep.compression import COLD_SECONDS

if TYPE_CHECKING:
    from thread_store.erasing.erase import ErasureReport
    from thread_store.erasing.erase_address import NamedRecord
    from thread_store.erasing.needle import Needle

__all__ = ["LocalThreadStore"]

_T = TypeVar("_T")

_THREADS_MAX = 4
"""For opening, reading and forking; syncs have threads of their own."""


class LocalThreadStore:
    """A home of threads. Used as `async with LocalThreadStore(home) as store`.

    Every coroutine may be awaited from any loop or task, and several `asyncio.run` may use one store.
    """

    def __init__(
        self,
        home: str | os.PathLike[str] | None = None,
        *,
        config: RecorderConfig | None = None,
        collect_git: bool = True,
        tool_safety: ToolSafety = DEFAULT_TOOL_SAFETY,
    ) -> None:
        """
        Args:
            home: the folder, a home of Codex too; by default `ROLLOUT_HOME`, else
                `$XDG_STATE_HOME/rollout`. It is made with the first thread.
            config: for all threads that are given none.
            collect_git: ask git about the folder of each new thread; the thread begins within a second all
                the same, without that information if need be.
            tool_safety: what tools do, for calls that don't say; a tool that nobody knows is unsafe.
        """
        self.home = Home.resolve() if home is None else Home(home)
        self._config = config or RecorderConfig()
        self._collect_git = collect_git
        self._tool_safety = tool_safety
        self._entered = False
        self._threads: LocalThreads | None = None
        self._executor = DaemonExecutor(_THREADS_MAX, "rollout-store-files")
        self._searches: weakref.WeakSet[SearchStream] = weakref.WeakSet()
        self._closing: Future[None] | None = None
        self._pid = os.getpid()

    async def __aenter__(self) -> Self:
        if self._entered:
            raise StoreClosed(self.home.path, "was entered before")
        self._entered = True
        starting = self._executor.submit(self._start)
        try:
            self._threads = await asyncio.wrap_future(starting)
        except BaseException:
            self._executor.close()
            starting.add_done_callback(_close_started)
            raise
        return self

    def _start(self) -> LocalThreads:
        return LocalThreads(self.home, safety=self._tool_safety, config=self._config).start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close all threads that are open, at the same time, each within its `close_seconds`; then let go of
        the home. It goes on if its caller is cancelled; a second call waits for the same end.

        Raises:
            ThreadsUnwritten: some could not write everything; it tells of each, and where the rest is kept.
        """
        self._require_own_process()
        for search in list(self._searches):
            search.close()
        if self._closing is None:
            # In a thread of its own: all others may hang in a disk.
            closer = DaemonExecutor(1, "rollout-store-close")
            self._closing = closer.submit(self._require_open().close)
            closer.close()
            self._executor.close()
        await asyncio.shield(asyncio.wrap_future(self._closing))

    def _require_own_process(self) -> None:
        if os.getpid() != self._pid:
            raise StoreClosed(self.home.path, "belongs to the parent of this process")

    def _require_open(self) -> LocalThreads:
        self._require_own_process()
        if self._threads is None or self._closing is not None:
            raise StoreClosed(self.home.path)
        return self._threads

    async def _run(self, job: Callable[[], _T]) -> _T:
        """Run a blocking call in a thread of the store; cancelled, its outcome is dropped."""
        return await asyncio.wrap_future(self._executor.submit(job))

    async def create_thread(
        self, meta: SessionMeta | None = None, *, config: RecorderConfig | None = None
    ) -> Thread:
        """Begin a thread; `SessionMeta(cwd=…)` is enough. Its file appears with the first record.

        Cancelled, there is no thread.

        Raises:
            RolloutExists: there is a thread of that id already.
            InvalidThreadId: `meta.id` is no UUID.
            ActiveWriter: somebody holds the lock of that id.
        """
        threads = self._require_open()
        # From now on, and not from when it is its turn: many may begin at once.
        git_until = time.monotonic() + GIT_SECONDS_MAX if self._collect_git else 0.0
        return await self._hold(
            lambda: threads.create(meta, config=config, git_seconds=git_until - time.monotonic())
        )

    async def open_thread(self, thread_id: str, *, config: RecorderConfig | None = None) -> Thread:
        """Append to a thread. Its lock is held until the thread is closed.

        Raises:
            InvalidThreadId, ThreadNotFound: there is no such thread.
            ActiveWriter: somebody writes it, in this process too; the error names them.
            NotARollout, RolloutUnreadable: its rollout can't be appended to.
        """
        threads = self._require_open()
        return await self._hold(lambda: threads.open(thread_id, config=config))

    async def resume_thread(
        self,
        thread_id: str,
        *,
        deep: bool = False,
        allow: Iterable[str] = (),
        config: RecorderConfig | None = None,
    ) -> tuple[Thread, ResumeState]:
        """Take a thread over from an agent that ended, and open it, with the state it goes on from: as
        `ThreadStore.resume_thread`.

        Raises:
            ResumeRefused: something stands against it; nothing was written, and nobody holds it.
            InvalidThreadId, ThreadNotFound, ActiveWriter, NotARollout, RolloutUnreadable: as `open_thread`.
            RolloutWriteError: the recovery can't be made durable; nobody holds it.
            ValueError: `allow` names something that is no reason, or can't be waived.
        """
        threads, states = self._require_open(), []

        def resume() -> OpenThread:
            opened, state = local_resume.resume_thread(
                threads, thread_id, deep=deep, allow=allow, config=config
            )
            states.append(state)
            return opened

        thread = await self._hold(resume)
        return thread, states[0]

    async def load_resume_state(self, thread_id: str, *, deep: bool = False) -> ResumeState:
        """What a thread is at its end, and everything that stands against resuming it. Takes no lock and
        writes nothing.

        Raises:
            InvalidThreadId, ThreadNotFound: there is no such thread.
            NotARollout, RolloutUnreadable, RolloutReplaced: its rollout can't be read.
        """
        threads = self._require_open()
        return await self._run(lambda: local_resume.load_resume_state(threads, thread_id, deep=deep))

    async def resolve_call(
        self,
        thread_id: str,
        call_id: str,
        outcome: Outcome,
        *,
        by: str,
        note: str | None = None,
        turn_id: str | None = None,
    ) -> ResumeState:
        """Record what was decided of an uncertain call, on stable storage: as `ThreadStore.resolve_call`.

        Raises:
            CallNotResolvable: there is no such call, it isn't uncertain, or several are.
            InvalidThreadId, ThreadNotFound, ActiveWriter, NotARollout, RolloutUnreadable: as `open_thread`.
            RolloutWriteError: it can't be made durable.
            ValueError: there is no such outcome.
        """
        threads = self._require_open()
        return await self._run(
            lambda: local_resume.resolve_call(
                threads, thread_id, call_id, outcome=outcome, by=by, note=note, turn_id=turn_id
            )
        )

    async def find_resumable(self, *, cwd: str | os.PathLike[str] | None = None) -> Resumable:
        """The newest thread that nobody writes, and the newer ones that were passed over: as
        `ThreadStore.find_resumable`. Raises `ThreadNotFound` if there is none.
        """
        threads = self._require_open()
        return await self._run(lambda: local_resume.find_resumable(threads, cwd=cwd))

    async def create_subagent(
        self,
        parent: Thread,
        *,
        nickname: str | None = None,
        role: str | None = None,
        path: str | None = None,
        meta: SessionMeta | None = None,
        config: RecorderConfig | None = None,
    ) -> Thread:
        """Begin a thread for a sub-agent of `parent`, linked both ways: its meta names the parent, and the
        parent records that it was started.

        Args:
            path: its place among the agents; by default below the parent's.
            meta: what differs from the parent's: folder, model, instructions.

        Raises:
            As `create_thread`; and as `record_nowait` of the parent, in which case there is no sub-agent.
        """
        own = subagent_meta(parent.meta, nickname=nickname, role=role, path=path, changes=meta)
        child = await self.create_thread(own, config=config)
        try:
            parent.record_nowait(activity(own, "started"))
        except RolloutError:
            child.discard()
            raise
        return child

    async def read_thread(self, thread_id: str) -> ThreadHistory:
        """Read the whole history of a thread, without a lock: its own records and those it rests on.

        Raises:
            InvalidThreadId, ThreadNotFound: there is no such thread.
            NotARollout, RolloutUnreadable: its rollout can't be read.
        """
        threads = self._require_open()
        return await self._run(lambda: threads.read(thread_id))

    async def fork_thread(
        self,
        thread_id: str,
        *,
        at: ForkPoint | None = None,
        mode: ForkMode = "copy",
        with_subagents: bool = False,
        config: RecorderConfig | None = None,
    ) -> Thread:
        """Begin a new thread with the history of another one up to `at`, by default its end.

        `copy` is self-contained; `reference` rests on the source's bytes and takes the same time at any
        size. Needs no lock of the source, whose bytes stay as they are. `with_subagents`: its sub-agents are
        forked too. On return the fork is on stable storage.

        Raises:
            InvalidThreadId, ThreadNotFound: there is no such thread.
            ForkPointInvalid: it has no such point, or the point lies between a call and its result.
            ForkRefused: it can't be forked in this mode.
            NotARollout, RolloutUnreadable, RolloutWriteError: the system refuses; nothing was made.
        """
        threads = self._require_open()
        return await self._hold(
            lambda: threads.fork(
                thread_id,
                at=at,
                mode=mode,
                with_subagents=with_subagents,
                config=config,
            )
        )

    async def revert_thread(
        self, thread_id: str, *, before_turn: int, config: RecorderConfig | None = None
    ) -> Thread:
        """Take a thread back to where it was before a turn (counted from 1), and open it. Nothing is erased:
        it goes on in a new rollout, and a legacy one records how many turns don't count any more.

        Raises:
            InvalidThreadId, ThreadNotFound, ActiveWriter: as `open_thread`.
            ForkPointInvalid: it has no such turn.
            ForkRefused, RolloutWriteError: the system refuses; nothing was changed.
        """
        threads = self._require_open()
        point = ForkPoint.before_turn(before_turn)
        return await self._hold(lambda: threads.revert(thread_id, point=point, config=config))

    async def take_over_thread(self, thread_id: str, *, config: RecorderConfig | None = None) -> Thread:
        """Take a thread from a writer that hangs, by force, and open it.

        The old writer is not stopped. It finds out at its next check (`WriterFenced`), and sets aside what it
        had not written; what it writes until then is no part of the thread (`ThreadHistory.late`).

        Raises:
            InvalidThreadId, ThreadNotFound: there is no such thread.
            ForkRefused, NotARollout, RolloutUnreadable, RolloutWriteError: it can't go on elsewhere.
        """
        threads = self._require_open()
        return await self._hold(lambda: threads.take_over(thread_id, config=config)[0])

    async def erase(
        self,
        threads: Iterable[str] | None = None,
        *,
        needle: Needle | None = None,
        record: NamedRecord | None = None,
        reason: str | None = None,
        dry_run: bool = False,
    ) -> ErasureReport:
        """Overwrite what should not have been recorded, and all that was made of it: as
        `LocalThreads.erase`, whose errors it raises. Cancelled, it goes on all the same.
        """
        own = self._require_open()
        return await self._run(
            lambda: own.erase(threads, needle=needle, record=record, reason=reason, dry_run=dry_run)
        )

    def search(self, text: str, **options: Unpack[SearchOptions]) -> SearchStream:
        """Search what was said and done: as `ThreadStore.search`. No folder that a thread states is touched.

        Raises:
            SearchInvalid: there is no such search.
            RolloutUnreadable: the home can't be listed; at the first step.
        """
        home, query, report = self._require_open().home, make_query(text, **options), SearchReport(skipped=[])
        stream = SearchStream(lambda: ThreadSearch(home, query, report=report), report)
        self._searches.add(stream)
        return stream

    async def list_threads(self, **options: Unpack[ListOptions]) -> ThreadPage:
        """One page of the threads of the home: as `ThreadStore.list_threads`. No folder that a thread
        states is looked at, and no lock is taken away from anybody.

        Raises:
            InvalidCursor: the cursor is none of such a list.
            RolloutUnreadable: the home can't be listed.
            ValueError: an option has a value that it can't have.
        """
        threads, query = self._require_open(), ThreadQuery(**options)
        return await self._run(lambda: list_threads(threads.home, query))

    async def rename_thread(self, thread_id: str, name: str) -> str:
        """Call a thread something, on stable storage on return: as `ThreadStore.rename_thread`. Cancelled, it
        may have that name or not.

        Raises:
            InvalidThreadId, ThreadNotFound: there is no such thread.
            ValueError: the name is blank.
            RolloutWriteError: it can't be written; the name is what it was.
        """
        threads = self._require_open()
        return await self._run(lambda: threads.rename(thread_id, name))

    async def archive_thread(self, thread_id: str) -> None:
        """Set a thread aside, on stable storage: as `ThreadStore.archive_thread`.

        Raises:
            InvalidThreadId, ThreadNotFound, ActiveWriter: as `open_thread`.
            RolloutExists, RolloutWriteError, RolloutUnreadable: the system refuses; the thread is whole.
        """
        threads = self._require_open()
        await self._run(lambda: threads.archive(thread_id))

    async def unarchive_thread(self, thread_id: str) -> None:
        """Take a thread out of the archive. Raises as `archive_thread`."""
        threads = self._require_open()
        await self._run(lambda: threads.unarchive(thread_id))

    async def compress_thread(self, thread_id: str, *, older_than_seconds: float = COLD_SECONDS) -> None:
        """Compress a thread that nothing was recorded in for so long; opening it expands it again.

        Raises:
            InvalidThreadId, ThreadNotFound, ActiveWriter: as `open_thread`.
            RolloutReplaced, RolloutWriteError, RolloutUnreadable: the system refuses; the thread is whole.
        """
        threads = self._require_open()
        await self._run(lambda: threads.compress(thread_id, older_than_seconds=older_than_seconds))

    async def delete_thread(self, thread_id: str, *, cascade: bool = False) -> None:
        """Delete a thread and what is its own, for good: as `ThreadStore.delete_thread`.

        Raises:
            InvalidThreadId, ThreadNotFound, ActiveWriter, ThreadReferenced: as `ThreadStore.delete_thread`.
            RolloutWriteError, RolloutUnreadable: the system refuses; it is whole, or counts as deleted.
        """
        threads = self._require_open()
        await self._run(lambda: threads.delete(thread_id, cascade=cascade))

    async def list_ids(self) -> list[str]:
        """The ids of all threads that have a record, newest first; archived ones too."""
        threads = self._require_open()
        return await self._run(lambda: [*threads.home.current_rollouts()])

    async def _hold(self, make: Callable[[], OpenThread]) -> Thread:
        opening = self._executor.submit(make)
        try:
            opened = await asyncio.wrap_future(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(_close_unwanted)
            raise
        return Thread(opened)


def _close_started(starting: Future[LocalThreads]) -> None:
    """Nobody waits for the store any more."""
    if not starting.cancelled() and starting.exception() is None:
        starting.result().close()


def _close_unwanted(opening: Future[OpenThread]) -> None:
    """Nobody waits for the thread any more."""
    if not opening.cancelled() and opening.exception() is None:
        opening.result().core.writer.close_soon()
