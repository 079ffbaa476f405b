"""Threads in memory, put into files for as long as somebody looks into them.

Invariant: what is found in files and how a fork is made is decided by the code that does it for homes; the
folder is gone when it is done.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path

from protocol.errors import ThreadNotFound
from protocol.ids import ThreadId
from protocol.session_memory import SessionMemory
from protocol.timestamps import parse_timestamp
from protocol.tool_safety import ToolSafety
from rollout.paths import ARCHIVED_FOLDER
from thread_store.chain.borders import resolve_border
from thread_store.chain.fork_point import ForkPoint
from thread_store.chain.history import read_records
from thread_store.chain.lineage import Lineage
from thread_store.folding.thread_folding import fold_lineage
from thread_store.forks.fork import make_fork
from thread_store.forks.fork_tree import fork_tree
from thread_store.home import Home
from thread_store.listing.thread_entry import ThreadPage
from thread_store.listing.thread_list import list_threads
from thread_store.listing.thread_query import ThreadQuery
from thread_store.locks import ThreadLocks
from thread_store.resume.resume_state import ResumeState, read_resume_state
from thread_store.resume.resume_surroundings import surrounding_refusals
from thread_store.search.search_hit import SearchReport
from thread_store.search.search_query import SearchQuery
from thread_store.search.thread_search import ThreadSearch
from thread_store.thread_reading import ReadContext, read_context
from thread_store.titles.session_index import SessionIndex

__all__ = ["MemoryReading", "find_border", "fork_in_files", "list_in_files", "read_state", "search_in_files"]


@contextmanager
def _files_of(
    threads: Mapping[ThreadId, bytes],
    created: Callable[[bytes], datetime | None] = lambda _: None,
    archived: Container[ThreadId] = (),
) -> Iterator[tuple[Home, dict[ThreadId, Path]]]:
    """A home with these threads, for as long as the block runs. `created`: the time for a file's name."""
    with tempfile.TemporaryDirectory(prefix="rollout-memory-") as folder:
        home, now = Home(folder), datetime.now()
        paths = {
            thread_id: home.new_rollout_path(thread_id, created=created(content) or now)
            for thread_id, content in threads.items()
        }
        for thread_id in filter(archived.__contains__, paths):
            paths[thread_id] = home.path / ARCHIVED_FOLDER / paths[thread_id].name
        for thread_id, path in paths.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(threads[thread_id])
        yield home, paths


class MemoryReading:
    """`ThreadReading` of a thread that is in no file."""

    def __init__(self, thread_id: ThreadId, content_of: Callable[[ThreadId], bytearray]) -> None:
        self._thread_id = thread_id
        self._content_of = content_of

    def context(self) -> ReadContext:
        """As `ThreadReading.context`."""
        try:
            with self._lineage() as lineage:
                return read_context(lineage)
        except ThreadNotFound:
            return ReadContext((), None)

    def memory(self) -> SessionMemory:
        """As `ThreadReading.memory`."""
        try:
            with self._lineage() as lineage:
                return fold_lineage(lineage).fold.memory
        except ThreadNotFound:
            return SessionMemory()

    @contextmanager
    def _lineage(self) -> Iterator[Lineage]:
        content = bytes(self._content_of(self._thread_id))
        with (
            _files_of({self._thread_id: content}) as (home, paths),
            Lineage.resolve(paths[self._thread_id], home) as lineage,
        ):
            yield lineage


def fork_in_files(
    threads: Mapping[ThreadId, bytes],
    source: ThreadId,
    child: ThreadId,
    at: ForkPoint | None,
    with_subagents: bool,
) -> dict[ThreadId, bytearray]:
    """The threads that a fork makes of these: the source, and its sub-agents if they go with it."""
    with _files_of(threads) as (home, paths):
        if with_subagents:
            made = fork_tree(source, home=home, thread_id=child, point=at)
        else:
            target = home.new_rollout_path(child)
            made = [make_fork(paths[source], target, thread_id=child, home=home, point=at)]
        return {ThreadId.parse(fork.thread_id): bytearray(Path(fork.path).read_bytes()) for fork in made}


def read_state(thread_id: ThreadId, content: bytes, *, deep: bool, safety: ToolSafety) -> ResumeState:
    """The resume state of a thread, its workspace looked at. Its path is none that stays.

    Raises:
        NotARollout: it isn't begun.
    """
    with _files_of({thread_id: content}) as (home, paths):
        state = read_resume_state(paths[thread_id], home, deep=deep, safety=safety)
    return state.with_refusals(surrounding_refusals(state))


def list_in_files(
    threads: Mapping[ThreadId, bytes],
    names: Mapping[ThreadId, str],
    open_ids: Iterable[ThreadId],
    archived: Container[ThreadId],
    query: ThreadQuery,
) -> ThreadPage:
    """A page of these threads; those in `open_ids` are being written, by this process."""
    with _files_of(threads, created=_begun, archived=archived) as (home, _):
        index = SessionIndex(home.path)
        for thread_id, name in names.items():
            index.append(thread_id, name)
        with ExitStack() as held:
            locks = ThreadLocks(home.path)
            for thread_id in open_ids:
                held.callback(locks.acquire(thread_id).release)
            return list_threads(home, query, use_index=False)


def _begun(content: bytes) -> datetime | None:
    """When a thread was begun, as its meta says."""
    meta = read_records(io.BytesIO(content), path="").meta
    return parse_timestamp(meta.timestamp)


def find_border(thread_id: ThreadId, content: bytes, point: ForkPoint) -> int:
    """How many bytes of a thread lie before a point."""
    with _files_of({thread_id: content}) as (home, paths):
        return resolve_border(point, Lineage.resolve(paths[thread_id], home)).offset


def search_in_files(
    threads: Mapping[ThreadId, bytes],
    archived: Container[ThreadId],
    query: SearchQuery,
    report: SearchReport,
) -> ThreadSearch:
    """A search of these threads; their files are gone when it is closed or over."""
    with ExitStack() as stack:
        home, _ = stack.enter_context(_files_of(threads, archived=archived))
        return ThreadSearch(home, query, report=report, on_close=stack.pop_all().close)
