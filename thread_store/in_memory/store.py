"""MemoryThreadStore: threads that leave nothing on disk, for tests and for agents without a past.

Invariant: it keeps the very bytes that files would hold, written by the same queue and writer; they live
as long as the store object, and one process has them to itself. Every thread holds its whole
history: a fork is a copy in either mode, a revert keeps the beginning.

Where a fork or a revert ends is found by the code that finds it in files, in a folder of temporary files
that is gone when it is done.
"""

from __future__ import annotations

import asyncio
import io
import os
from collections.abc import Iterable
from concurrent.futures import Future
from types import TracebackType
from typing import Self, Unpack

from msgspec import structs

from protocol.errors import (
    ActiveWriter,
    ForkPointInvalid,
    NotARollout,
    RecorderClosed,
    RolloutError,
    RolloutExists,
    ThreadNotFound,
    WriterHolder,
)
from protocol.ids import ThreadId
from protocol.meta import SessionMeta
from protocol.timestamps import format_timestamp, now_ms
from protocol.tool_safety import DEFAULT_TOOL_SAFETY, ToolSafety
from rollout.append_state import scan_for_append
from rollout.barrier import Barrier, Goal
from rollout.config import RecorderConfig
from rollout.core import Core, begin_core, continue_core
from rollout.service import Service
from thread_store.chain.fork_point import ForkPoint
from thread_store.chain.history import ThreadHistory, read_records
from thread_store.errors import StoreClosed, ThreadsUnwritten
from thread_store.forks.fork import ForkMode
from thread_store.in_memory.files import (
    MemoryReading,
    find_border,
    fork_in_files,
    list_in_files,
    read_state,
    search_in_files,
)
from thread_store.in_memory.sink import MemorySink
from thread_store.listing.thread_entry import ThreadPage
from thread_store.listing.thread_query import ListOptions, ThreadQuery
from thread_store.open_threads import close_all
from thread_store.resume.call_decision import Outcome, decision_item, find_uncertain
from thread_store.resume.recovery import recovery_items
from thread_store.resume.resumable import Resumable, folder_filter, is_candidate, nothing_resumable
from thread_store.resume.resume_refusals import split_allowed
from thread_store.resume.resume_state import ResumeState
from thread_store.resume.resume_surroundings import archived_refusal, writer_refusal
from thread_store.search.search_hit import SearchReport
from thread_store.search.search_query import SearchOptions, make_query
from thread_store.search.search_stream import SearchStream
from thread_store.subagents import activity, family_of, subagent_meta
from thread_store.thread import OpenThread, Thread
from thread_store.titles.session_index import checked_name

__all__ = ["MemoryThreadStore"]


class MemoryThreadStore:
    """As `ThreadStore` has it. Used as `async with MemoryThreadStore() as store`.

    Closed and entered again, it has its threads still.
    """

    def __init__(
        self, *, config: RecorderConfig | None = None, tool_safety: ToolSafety = DEFAULT_TOOL_SAFETY
    ) -> None:
        self._config = config or RecorderConfig()
        self._tool_safety = tool_safety
        self._contents: dict[ThreadId, bytearray] = {}
        """Of the threads that were begun, oldest first; empty where nothing was recorded yet."""
        self._archived: set[ThreadId] = set()
        self._open: dict[ThreadId, OpenThread] = {}
        self._names: dict[ThreadId, str] = {}
        self._service: Service | None = None

    async def __aenter__(self) -> Self:
        self._service = await asyncio.to_thread(Service("rollout-memory").start)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close all threads that are open; it goes on if its caller is cancelled. A second call does nothing.

        Raises:
            ThreadsUnwritten: a bug kept some from writing everything.
        """
        service, self._service = self._service, None
        if service is None:
            return
        await asyncio.shield(asyncio.to_thread(self._close, service))

    def _close(self, service: Service) -> None:
        opened = list(self._open.values())
        errors = close_all(opened)
        service.stop()
        if errors:
            raise ThreadsUnwritten(errors, threads=len(opened))

    async def create_thread(
        self, meta: SessionMeta | None = None, *, config: RecorderConfig | None = None
    ) -> Thread:
        """As `ThreadStore.create_thread`."""
        service = self._require_open()
        meta = meta or SessionMeta(cwd=os.getcwd())
        thread_id = ThreadId.new() if meta.id is None else ThreadId.parse(meta.id)
        self._require_free(thread_id)
        if self._contents.get(thread_id):
            raise RolloutExists(path=_name(thread_id), reason="the store has it already")
        content = self._contents[thread_id] = bytearray()
        released: Future[None] = Future()
        core = begin_core(
            _name(thread_id),
            structs.replace(meta, id=str(thread_id)),
            config=config or self._config,
            service=service,
            make_sink=lambda _: self._sink(thread_id, content, released),
            keep=_keep_nowhere,
        )
        return self._hold(thread_id, core, core.meta or meta, released)

    async def open_thread(self, thread_id: str, *, config: RecorderConfig | None = None) -> Thread:
        """As `ThreadStore.open_thread`."""
        self._require_open()
        wanted = ThreadId.parse(thread_id)
        self._require_free(wanted)
        return self._continue(wanted, self._content_of(wanted), config)

    def _continue(self, thread_id: ThreadId, content: bytearray, config: RecorderConfig | None) -> Thread:
        if thread_id in self._archived:
            raise NotARollout(
                path=_name(thread_id),
                reason="its thread is archived",
                hint="Take it out of the archive first",
            )
        released: Future[None] = Future()
        found = scan_for_append(io.BytesIO(content), _name(thread_id))
        core = continue_core(
            _name(thread_id),
            found,
            self._sink(thread_id, content, released),
            config=config or self._config,
            service=self._require_open(),
            keep=_keep_nowhere,
        )
        return self._hold(thread_id, core, self._read(thread_id).meta, released)

    def _sink(self, thread_id: ThreadId, content: bytearray, released: Future[None]) -> MemorySink:
        def on_close() -> None:
            if not released.done():
                self._open.pop(thread_id, None)
                if not content:
                    self._contents.pop(thread_id, None)
                released.set_result(None)

        return MemorySink(_name(thread_id), content, on_close=on_close)

    def _hold(self, thread_id: ThreadId, core: Core, meta: SessionMeta, released: Future[None]) -> Thread:
        reading = MemoryReading(thread_id, self._content_of)
        opened = self._open[thread_id] = OpenThread(core, meta, released, reading, self._tool_safety)
        return Thread(opened)

    async def resume_thread(
        self,
        thread_id: str,
        *,
        deep: bool = False,
        allow: Iterable[str] = (),
        config: RecorderConfig | None = None,
    ) -> tuple[Thread, ResumeState]:
        """As `ThreadStore.resume_thread`."""
        self._require_open()
        names, wanted = tuple(allow), ThreadId.parse(thread_id)
        split_allowed((), names)
        state = (await self._judge(wanted, deep=deep)).allowing(names)
        thread = self._continue(wanted, self._contents[wanted], config)
        items = recovery_items(state, epoch=self._open[wanted].core.epoch)
        if not items:
            return thread, state
        try:
            thread.record_nowait(items)
            await thread.sync()
            behind = await self._look(wanted, deep=deep)
            allowed = {each.reason for each in state.waived}
            return thread, structs.replace(behind.allowing(allowed), waived=state.waived)
        except BaseException:
            thread.discard()
            raise

    async def _judge(self, thread_id: ThreadId, *, deep: bool = False) -> ResumeState:
        """Of a thread that nobody writes; on return nobody did meanwhile."""
        while True:
            self._require_free(thread_id)
            size = len(self._content_of(thread_id))
            state = await self._look(thread_id, deep=deep)
            self._require_free(thread_id)
            if len(self._content_of(thread_id)) == size:
                return state

    async def _look(self, thread_id: ThreadId, *, deep: bool = False) -> ResumeState:
        content, safety = bytes(self._content_of(thread_id)), self._tool_safety
        state = await asyncio.to_thread(lambda: read_state(thread_id, content, deep=deep, safety=safety))
        state = structs.replace(state, path=_name(thread_id))
        return state.with_refusals([archived_refusal(thread_id)] if thread_id in self._archived else [])

    async def load_resume_state(self, thread_id: str, *, deep: bool = False) -> ResumeState:
        """As `ThreadStore.load_resume_state`."""
        self._require_open()
        wanted = ThreadId.parse(thread_id)
        await _flush(self._open.get(wanted))
        state = await self._look(wanted, deep=deep)
        return state.with_refusals([writer_refusal(state, _holder())] if wanted in self._open else [])

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
        """As `ThreadStore.resolve_call`."""
        self._require_open()
        wanted = ThreadId.parse(thread_id)
        writing = self._open.get(wanted)
        await _flush(writing)
        state = await (self._judge(wanted) if writing is None else self._look(wanted))
        call = find_uncertain(state, call_id, turn_id=turn_id)
        decision = decision_item(call, outcome, by=by, note=note)
        if writing is not None:
            writing.core.pending.append(decision)
            await _flush(writing)
        else:
            async with self._continue(wanted, self._contents[wanted], None) as thread:
                thread.record_nowait(decision)
        return await self.load_resume_state(wanted)

    async def find_resumable(self, *, cwd: str | os.PathLike[str] | None = None) -> Resumable:
        """As `ThreadStore.find_resumable`."""
        folder = await asyncio.to_thread(folder_filter, cwd)
        passed_over: list[tuple[str, WriterHolder]] = []
        for thread_id in map(ThreadId, await self.list_ids()):
            if thread_id in self._archived or not is_candidate(self._read(thread_id).meta, folder):
                continue
            if thread_id not in self._open:
                return Resumable(thread_id, _name(thread_id), tuple(passed_over))
            passed_over.append((thread_id, _holder()))
        raise nothing_resumable("memory", passed_over)

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
        """As `ThreadStore.create_subagent`."""
        own = subagent_meta(parent.meta, nickname=nickname, role=role, path=path, changes=meta)
        child = await self.create_thread(own, config=config)
        try:
            parent.record_nowait(activity(own, "started"))
        except RolloutError:
            child.discard()
            raise
        return child

    async def read_thread(self, thread_id: str) -> ThreadHistory:
        """As `ThreadStore.read_thread`."""
        self._require_open()
        return self._read(ThreadId.parse(thread_id))

    def _read(self, thread_id: ThreadId) -> ThreadHistory:
        return read_records(io.BytesIO(self._content_of(thread_id)), path=_name(thread_id))

    async def fork_thread(
        self,
        thread_id: str,
        *,
        at: ForkPoint | None = None,
        mode: ForkMode = "copy",
        with_subagents: bool = False,
        config: RecorderConfig | None = None,
    ) -> Thread:
        """As `ThreadStore.fork_thread`; `mode` makes no difference here."""
        self._require_open()
        source, child = ThreadId.parse(thread_id), ThreadId.new()
        writing = self._open.get(source)
        for each in family_of(source, self._open) if with_subagents else [source]:
            await _flush(self._open.get(ThreadId(each)))
        if writing is not None and not self._contents.get(source):
            return await self._fork_unwritten(writing, at, config)
        taken = self._contents if with_subagents else {source: self._content_of(source)}
        # Their writers go on meanwhile, and can't while somebody looks into their bytes.
        threads = {thread_id: bytes(content) for thread_id, content in taken.items()}
        made = await asyncio.to_thread(fork_in_files, threads, source, child, at, with_subagents)
        self._contents.update(made)
        return self._continue(child, self._contents[child], config)

    async def _fork_unwritten(
        self, source: OpenThread, at: ForkPoint | None, config: RecorderConfig | None
    ) -> Thread:
        if at not in (None, ForkPoint.end(), ForkPoint.turn(0)):
            raise ForkPointInvalid(str(at), "the thread has no record yet", path=source.core.path)
        meta = structs.replace(source.meta, id=None, timestamp=None, forked_from_id=source.core.thread_id)
        return await self.create_thread(meta, config=config)

    async def revert_thread(
        self, thread_id: str, *, before_turn: int, config: RecorderConfig | None = None
    ) -> Thread:
        """As `ThreadStore.revert_thread`."""
        self._require_open()
        wanted, point = ThreadId.parse(thread_id), ForkPoint.before_turn(before_turn)
        self._require_free(wanted)
        content = self._content_of(wanted)
        end = await asyncio.to_thread(find_border, wanted, bytes(content), point)
        self._require_free(wanted)
        self._contents[wanted] = bytearray(content[:end])
        return self._continue(wanted, self._contents[wanted], config)

    def search(self, text: str, **options: Unpack[SearchOptions]) -> SearchStream:
        """As `ThreadStore.search`; what is written from now on is not found."""
        self._require_open()
        query, report = make_query(text, **options), SearchReport(skipped=[])
        threads = {thread_id: bytes(content) for thread_id, content in self._contents.items() if content}
        archived = frozenset(self._archived)
        return SearchStream(
            lambda: search_in_files(threads, archived, query, report),
            report,
            shown=lambda hit: structs.replace(hit, path=_name(ThreadId(hit.thread_id))),
        )

    async def list_threads(self, **options: Unpack[ListOptions]) -> ThreadPage:
        """As `ThreadStore.list_threads`."""
        self._require_open()
        query = ThreadQuery(**options)
        contents = {thread_id: bytes(content) for thread_id, content in self._contents.items() if content}
        names, open_ids, archived = dict(self._names), set(self._open), frozenset(self._archived)
        page = await asyncio.to_thread(lambda: list_in_files(contents, names, open_ids, archived, query))
        threads = (structs.replace(each, path=_name(ThreadId(each.thread_id))) for each in page.threads)
        return page._replace(threads=tuple(threads))

    async def rename_thread(self, thread_id: str, name: str) -> str:
        """As `ThreadStore.rename_thread`."""
        self._require_open()
        wanted, kept = ThreadId.parse(thread_id), checked_name(name)
        if wanted not in self._open:
            self._content_of(wanted)
        self._names[wanted] = kept
        return kept

    async def archive_thread(self, thread_id: str) -> None:
        """As `ThreadStore.archive_thread`."""
        self._archived.add(self._closed(thread_id))

    async def unarchive_thread(self, thread_id: str) -> None:
        """As `ThreadStore.unarchive_thread`."""
        self._archived.discard(self._closed(thread_id))

    async def delete_thread(self, thread_id: str, *, cascade: bool = False) -> None:
        """As `ThreadStore.delete_thread`; nothing rests on another thread here."""
        wanted = self._closed(thread_id)
        self._archived.discard(wanted)
        self._names.pop(wanted, None)
        del self._contents[wanted]

    def _closed(self, thread_id: str) -> ThreadId:
        """A thread that is there, and that nobody writes."""
        self._require_open()
        wanted = ThreadId.parse(thread_id)
        self._content_of(wanted)
        self._require_free(wanted)
        return wanted

    async def list_ids(self) -> list[str]:
        """As `ThreadStore.list_ids`."""
        self._require_open()
        return [thread_id for thread_id, content in reversed(self._contents.items()) if content]

    def _content_of(self, thread_id: ThreadId) -> bytearray:
        content = self._contents.get(thread_id)
        if not content:
            raise ThreadNotFound(thread_id)
        return content

    def _require_open(self) -> Service:
        if self._service is None:
            raise StoreClosed("memory")
        return self._service

    def _require_free(self, thread_id: ThreadId) -> None:
        if thread_id in self._open:
            raise ActiveWriter(path=_name(thread_id), holder=_holder(), thread_id=thread_id)


async def _flush(opened: OpenThread | None) -> None:
    """Nothing to do where it isn't open."""
    if opened is None:
        return
    barrier = Barrier(Goal.FLUSH, loop=asyncio.get_running_loop())
    opened.core.writer.request(barrier)
    try:
        await barrier.wait()
    except RecorderClosed:
        return  # it ended meanwhile, and has what it accepted


def _holder() -> WriterHolder:
    return WriterHolder(os.getpid(), os.uname().nodename, since=format_timestamp(now_ms()))


def _name(thread_id: ThreadId) -> str:
    return f"memory:{thread_id}"


def _keep_nowhere(path: str, thread_id: str, lines: list[bytes], offset_bytes: int, items: int) -> str | None:
    """The error carries the lines."""
    return None
