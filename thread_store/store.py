"""What every store of threads can do, whatever it keeps them in.

Invariant: the stores differ in where the bytes are and in who can reach them, never in what a call
means; `thread_store.testing` holds each of them to it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal, Protocol, Self, Unpack

if TYPE_CHECKING:
    from types import TracebackType

    from protocol.meta import SessionMeta
    from rollout.config import RecorderConfig
    from thread_store.chain.fork_point import ForkPoint
    from thread_store.chain.history import ThreadHistory
    from thread_store.listing.thread_entry import ThreadPage
    from thread_store.listing.thread_query import ListOptions
    from thread_store.resume.call_decision import Outcome
    from thread_store.resume.resumable import Resumable
    from thread_store.resume.resume_state import ResumeState
    from thread_store.search.search_query import SearchOptions
    from thread_store.search.search_stream import SearchStream
    from thread_store.thread import Thread

__all__ = ["ForkMode", "ThreadStore"]

ForkMode = Literal["copy", "reference"]
"""`copy`: self-contained. `reference`: rests on the source's bytes, at any size at once."""


class ThreadStore(Protocol):
    """A store of threads, used as `async with`. Every coroutine may be awaited from any loop."""

    async def create_thread(
        self, meta: SessionMeta | None = None, *, config: RecorderConfig | None = None
    ) -> Thread:
        """Begin a thread. It is found by others from its first record on.

        Raises:
            RolloutExists: there is a thread of that id already.
            InvalidThreadId: `meta.id` is no UUID.
            ActiveWriter: somebody has begun it, and hasn't written yet.
        """

    async def open_thread(self, thread_id: str, *, config: RecorderConfig | None = None) -> Thread:
        """Go on with a thread; nobody else can until it is closed.

        Raises:
            InvalidThreadId, ThreadNotFound: there is no such thread.
            ActiveWriter: somebody writes it; the error names them.
        """

    async def resume_thread(
        self,
        thread_id: str,
        *,
        deep: bool = False,
        allow: Iterable[str] = (),
        config: RecorderConfig | None = None,
    ) -> tuple[Thread, ResumeState]:
        """Take a thread over from an agent that ended, and open it, with the state it goes on from.

        What was open is recorded as what it is (a call of unknown outcome, a question without an answer, a
        turn without an end), on stable storage on return; the state is that behind it. Where nothing was
        open nothing is recorded.

        Args:
            deep: look at everything, where no `x_memory` speaks for what is older.
            allow: reasons (`RefusalReason`) that don't count, each by its name.

        Raises:
            ResumeRefused: something stands against it; nothing was recorded, and nobody holds it.
            InvalidThreadId, ThreadNotFound, ActiveWriter: as `open_thread`.
            ValueError: `allow` names something that is no reason, or can't be waived.
        """

    async def load_resume_state(self, thread_id: str, *, deep: bool = False) -> ResumeState:
        """What a thread is at its end, and everything that stands against resuming it. Takes no lock and
        records nothing.

        Raises:
            InvalidThreadId, ThreadNotFound: there is no such thread.
        """

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
        """Record what was decided of an uncertain call, and return the state behind it. On stable storage on
        return; cancelled, it may be recorded or not. Works too while the thread is open in this process.

        Args:
            outcome: `happened`, `not_happened`, or `retry`: a further attempt with the same key may run.
            by: who decided.
            turn_id: where several uncertain calls have that id.

        Raises:
            CallNotResolvable: there is no such call, it isn't uncertain, or several are.
            InvalidThreadId, ThreadNotFound, ActiveWriter: as `open_thread`.
            ValueError: there is no such outcome.
        """

    async def find_resumable(self, *, cwd: str | os.PathLike[str] | None = None) -> Resumable:
        """The newest thread that nobody writes, of any folder or of `cwd`, and the newer ones that were
        passed over because somebody does. Sub-agents and archived threads are left out.

        Raises:
            ThreadNotFound: there is none.
        """

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
        """

    async def read_thread(self, thread_id: str) -> ThreadHistory:
        """Read the whole history of a thread, without a lock.

        Raises:
            InvalidThreadId, ThreadNotFound: there is no such thread.
        """

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

        The source's bytes stay as they are, and what either writes later the other doesn't see.

        Raises:
            InvalidThreadId, ThreadNotFound: there is no such thread.
            ForkPointInvalid: it has no such point, or the point lies between a call and its result.
        """

    async def revert_thread(
        self, thread_id: str, *, before_turn: int, config: RecorderConfig | None = None
    ) -> Thread:
        """Take a thread back to where it was before a turn (counted from 1), and open it. Nothing is erased.

        Raises:
            InvalidThreadId, ThreadNotFound, ActiveWriter: as `open_thread`.
            ForkPointInvalid: it has no such turn.
        """

    def search(self, text: str, **options: Unpack[SearchOptions]) -> SearchStream:
        """Search what was said and done, in any case by default: `async for hit in store.search("text")`.

        The hits come as they are found, the newest thread first, each fact once. What can't be read is told
        in the `report` of what is returned, and ends nothing. Found is what was flushed.

        Args:
            options: `regex`, `word`, `case_sensitive`, and filters: see `SearchOptions`.

        Raises:
            SearchInvalid: there is no such search.
        """

    async def list_threads(self, **options: Unpack[ListOptions]) -> ThreadPage:
        """One page of the threads: each once, in an order that stays while the pages are read. What is
        accepted and not yet written isn't in it.

        Args:
            options: the fields of a `ThreadQuery`: `limit=50`, `cursor` (of the page before), `sort`,
                `order`, and filters.

        Raises:
            InvalidCursor: the cursor is none of such a list.
            ValueError: an option has a value that it can't have.
        """

    async def rename_thread(self, thread_id: str, name: str) -> str:
        """Call a thread something; returns the name as it is kept. Works too while somebody writes it.

        Raises:
            InvalidThreadId, ThreadNotFound: there is no such thread.
            ValueError: the name is blank.
        """

    async def archive_thread(self, thread_id: str) -> None:
        """Set a thread aside: it is read as before, and can't be opened. Done twice it is done once.

        Cancelled, it may be archived or not.

        Raises:
            InvalidThreadId, ThreadNotFound: there is no such thread.
            ActiveWriter: somebody writes it; the error names them.
        """

    async def unarchive_thread(self, thread_id: str) -> None:
        """Take a thread back from where it was set aside. As `archive_thread`."""

    async def delete_thread(self, thread_id: str, *, cascade: bool = False) -> None:
        """Delete a thread for good. Cancelled, it may be deleted or not.

        Args:
            cascade: threads that rest on it get what they need of it first.

        Raises:
            InvalidThreadId, ThreadNotFound: there is no such thread.
            ActiveWriter: somebody writes it, or one that rests on it.
            ThreadReferenced: others rest on it, and `cascade` was not said.
        """

    async def list_ids(self) -> Sequence[str]:
        """The ids of all threads that have a record, newest first."""

    async def aclose(self) -> None:
        """Close all threads that are open, each within its `close_seconds`.

        Raises:
            ThreadsUnwritten: some could not write everything.
        """

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
