"""RolloutRecorder: the handle that users hold on one rollout.

Invariant: a handle only leaves items and barriers with the core and waits; it does no I/O on
the caller's loop, and whatever happens to it (cancelled, dropped, used from another loop or
thread) the core goes on. Dropping it without `aclose()` drains all the same, with a warning.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import time
import warnings
import weakref
from collections.abc import Callable, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Self

from protocol.errors import PendingQueueFull
from rollout.barrier import Barrier, Goal, Receipt
from rollout.config import RecorderConfig

if TYPE_CHECKING:
    from protocol.meta import SessionMeta
    from rollout.core import Core
    from rollout.health import WriterHealth
    from rollout.pending import Records
    from rollout.redaction import Redaction
    from rollout.service import Service

_BREATH_BYTES = 256 << 10
"""A loop of `await record()` gives way to other tasks this often, though the queue has room."""

__all__ = ["RecorderHandle", "RecorderOpening", "RolloutRecorder"]


class RecorderHandle:
    """What the asyncio handle and the blocking one have in common."""

    def __init__(self, core: Core) -> None:
        self._core = core
        # One call less on the way of every item.
        self.record_nowait = core.pending.append  # type: ignore[method-assign]
        self._finalizer = weakref.finalize(self, _drop, core, os.getpid())
        self._finalizer.atexit = False  # the service drains at exit

    @property
    def path(self) -> str:
        """The rollout's absolute path."""
        return self._core.path

    @property
    def thread_id(self) -> str:
        """The thread's id; text that may be no UUID where an old file has such an id."""
        return self._core.thread_id

    @property
    def health(self) -> WriterHealth:
        """A snapshot: state, pending and durable items, last error."""
        return self._core.writer.health

    @property
    def redaction(self) -> Redaction | None:
        """The redactor's hooks that every item goes through; None if there are none."""
        return self._core.pending.redaction

    def record_nowait(self, *items: Records) -> None:
        """Accept items, or lists of items, all of one call together or none. Never waits, does no I/O.

        May be called from any thread, loop or signal handler. Once it returned, the items are kept
        in order until they are durable, whatever happens to the disk; they survive the process only
        after `flush()`, and a power cut after `sync()`.

        Raises:
            PendingQueueFull: `pending_bytes_max` wait already; nothing was accepted.
            RecordTooLarge, ItemNotEncodable: one of the items is unfit; nothing was accepted.
            RecorderClosed, WriterFenced: the recorder takes no more.
        """
        self._core.pending.append(*items)

    def discard(self) -> None:
        """Stop without draining: what is not yet handed over is dropped. The file stays as it is."""
        self._finalizer.detach()
        self._core.writer.discard()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.thread_id} {self._core.writer.state} {self.path!r}>"


def _drop(core: Core, pid: int) -> None:
    """A handle was dropped while open. A finalizer may run anywhere: it only posts a request."""
    from rollout.state import WriterState

    if os.getpid() != pid or core.writer.state is WriterState.CLOSED:  # its store closed it
        return
    core.writer.close_soon()
    warnings.warn(
        f"recorder of {core.path} was dropped without aclose(); it is drained", ResourceWarning, stacklevel=2
    )


class RolloutRecorder(RecorderHandle):
    """Records items into one rollout file. Made by `create` or `open`, used as `async with`.

    Every coroutine may be awaited from any loop or task. Cancelling one cancels only the waiting:
    what was accepted stays accepted, a sync under way goes on.
    """

    _breathe_at = _BREATH_BYTES

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        meta: SessionMeta | None = None,
        *,
        config: RecorderConfig | None = None,
    ) -> RecorderOpening:
        """Begin a rollout at `path`; folders are made as needed. The file appears with the first item.

        Use as `async with RolloutRecorder.create(…) as recorder`, or await it and call `aclose()`.

        Raises:
            RolloutExists: a file that is not empty stands there.
        """
        from rollout.core import create_core  # what a recorder is made of is loaded with the first one

        return RecorderOpening(
            cls, lambda service: create_core(path, meta, config=config or RecorderConfig(), service=service)
        )

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, config: RecorderConfig | None = None) -> RecorderOpening:
        """Append to an existing rollout. Until the first item its bytes and its mtime stay as they are.

        Raises:
            ThreadNotFound, NotARollout, RolloutUnreadable: it can't be opened as a rollout.
            ActiveWriter: another recorder writes it; the error names it.
        """
        from rollout.core import open_core

        return RecorderOpening(
            cls, lambda service: open_core(path, config=config or RecorderConfig(), service=service)
        )

    async def record(self, *items: Records, timeout: float | None = None) -> None:
        """Like `record_nowait`, but waits while the pending queue is full, at most `timeout` seconds.

        A task that does nothing else lets the other tasks of its loop run every 256 KiB.

        Cancelled while waiting, nothing was accepted; once it returned, the items are kept.

        Raises:
            PendingQueueFull: still full after `timeout` seconds; `last_error` says why.
            RecordTooLarge, ItemNotEncodable, RecorderClosed, WriterFenced: as `record_nowait`.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        accepted = self._core.pending.accepted_bytes
        if accepted >= self._breathe_at:
            self._breathe_at = accepted + _BREATH_BYTES
            await asyncio.sleep(0)
        while True:
            try:
                self.record_nowait(*items)
                return
            except PendingQueueFull:
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise
                await self._wait_for_room(left)

    async def _wait_for_room(self, seconds: float | None) -> None:
        barrier = self._request(Goal.ROOM)
        try:
            async with asyncio.timeout(seconds):
                await barrier.wait()
        except TimeoutError:
            return  # one more try, which then raises PendingQueueFull with its figures

    async def flush(self) -> Receipt:
        """Wait until every item accepted before this call was handed to the OS.

        Readers see them then, and the death of the process can't take them. It never waits for a
        sync. Cancelling it cancels the waiting only.

        Raises:
            RolloutWriteError: it can't be had now, after one retry; the items stay pending, a later
                barrier can still succeed.
            RecorderClosed, WriterFenced: the recorder ended before.
        """
        return await self._request(Goal.FLUSH).wait()

    async def sync(self) -> Receipt:
        """Wait until every item accepted before this call is on stable storage (fdatasync(2)), and the
        directory entry of a new file too. Calls that come while a sync runs share the next one.

        Raises: as `flush`.
        """
        return await self._request(Goal.SYNC).wait()

    async def persist(self) -> Receipt:
        """Make the file now, with its meta line, even without items, and sync it with its folders.

        Raises: as `flush`.
        """
        self._core.pending.append_header()
        return await self._request(Goal.SYNC).wait()

    async def aclose(self) -> Receipt:
        """Take no more items, write and sync what is pending, let go of the file and its lock.

        Takes `close_seconds` at most and goes on even if its caller is cancelled. A second call
        waits for the same end.

        Raises:
            UnwrittenItems: not everything could be made durable; it says where the rest was kept.
        """
        self._finalizer.detach()
        return await self._request(Goal.CLOSE).wait()

    def _request(self, goal: Goal) -> Barrier:
        barrier = Barrier(goal, loop=asyncio.get_running_loop())
        self._core.writer.request(barrier)
        return barrier

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def _close_unwanted(opening: concurrent.futures.Future[Core]) -> None:
    """The caller was cancelled while the file was opened, and its loop may be over: nobody will hold it."""
    if not opening.cancelled() and opening.exception() is None:
        opening.result().writer.close_soon()


class RecorderOpening:
    """What `create` and `open` return: await it for the recorder, or enter it to have it closed too."""

    def __init__(self, cls: type[RolloutRecorder], make_core: Callable[[Service], Core]) -> None:
        self._cls = cls
        self._make_core = make_core
        self._recorder: RolloutRecorder | None = None

    async def _open(self) -> RolloutRecorder:
        from rollout.service import shared_service

        service = await asyncio.to_thread(shared_service)
        opening = service.submit_blocking(lambda: self._make_core(service))
        try:
            core = await asyncio.wrap_future(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(_close_unwanted)
            raise
        return self._cls(core)

    def __await__(self) -> Generator[object, None, RolloutRecorder]:
        return self._open().__await__()

    async def __aenter__(self) -> RolloutRecorder:
        self._recorder = await self._open()
        return self._recorder

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._recorder is not None
        await self._recorder.aclose()
