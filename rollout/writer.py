"""The writer: one task a rollout, the only one that touches its file.

Invariant: a chunk leaves the backlog only when a sync covered it. A barrier is answered only
after the checks passed behind everything it waits for. Nothing that goes wrong with the disk
ends the task: it keeps the items, backs off and heals; a bug ends it, and every later call
raises that bug.

Theory of operation. The task sleeps on one event. Callers leave items in `Pending` and
barriers in `_arrivals`, and wake it. Each round it heals if it must, hands everything over
with one write a chunk, starts a sync if one is due, and answers. A sync runs in another
thread, so that a flush never waits for it; syncs that arrive meanwhile share the next one.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import random
from collections.abc import Callable

import anyio
import anyio.abc

from protocol.errors import RecorderClosed, RolloutError, RolloutWriteError, UnwrittenItems, WriterFenced
from protocol.items import RolloutItem
from rollout.backlog import Backlog
from rollout.barrier import Barrier, BarrierQueue, Goal, Receipt, answer_all
from rollout.config import RecorderConfig
from rollout.health import WriterHealth
from rollout.pending import Pending
from rollout.service import Service
from rollout.sink import Sink, SinkDisturbed
from rollout.state import WriterState, move

__all__ = ["Writer"]

_log = logging.getLogger("rollout.writer")

_KEEP_SECONDS = 2.0
"""How long setting items aside may take when the time to close is over."""
_RETRY_SECONDS_CLOSING = 0.5

KeepUnwritten = Callable[[list[bytes], int, int], str | None]
"""Takes lines, the offset where they belong and the number of items; returns where they were kept."""


class Writer:
    """Drains `pending` into `sink`, from the service loop."""

    def __init__(
        self,
        *,
        service: Service,
        pending: Pending,
        sink: Sink,
        config: RecorderConfig,
        keep_unwritten: KeepUnwritten,
        closing_note: Callable[[], RolloutItem],
    ) -> None:
        self._service = service
        self._pending = pending
        self._sink = sink
        self._config = config
        self._keep_unwritten = keep_unwritten
        self._closing_note = closing_note
        self._backlog = Backlog(chunk_bytes=config.chunk_bytes)
        self._backlog.durable_offset = sink.end_bytes
        pending.wake = self.wake
        self._state = WriterState.OPEN if sink.created else WriterState.DEFERRED

        self._barriers = BarrierQueue()

        self._event = anyio.Event()
        self._signalled = False
        self._tasks: anyio.abc.TaskGroup
        self._linger: asyncio.TimerHandle | None = None
        self._sync_timer: asyncio.TimerHandle | None = None
        self._sync_due = False
        self._syncing = False
        self._blocked = False
        """The last try to hand over failed: heal before the next."""
        self._sync_broken = False
        """The last sync failed. Flushes still hold."""
        self._retry_timer: asyncio.TimerHandle | None = None
        self._retry_seconds = config.retry_seconds_min

        self._synced_epoch = sink.epoch
        self._synced_items = 0
        self._healing = False

        self._closing = False
        self._closers: list[Barrier] = []
        self._close_callbacks: list[Callable[[], None]] = []
        self._discarding = False
        self._forked = False
        self._fenced: WriterFenced | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._end_error: RolloutError | None = None
        self._bug: BaseException | None = None
        self._last_error: BaseException | None = None
        self._retries = 0
        self._reopens = 0

    # Called from any thread

    def wake(self, now: bool) -> None:
        """Something is pending: come at once, or within `linger_seconds`."""
        self._service.call(self._signal if now else self._start_lingering)

    def request(self, barrier: Barrier) -> None:
        """Leave a barrier; it is answered on its caller's loop."""
        barrier.target, barrier.items = self._pending.position()
        wake = self._barriers.leave(barrier)
        if wake is None:
            self._answer_closed(barrier)
        elif wake:
            self._service.call(self._signal)

    def close_soon(self, done: Callable[[], None] | None = None) -> None:
        """Drain and close without anybody waiting (a dropped handle); safe in a finalizer."""
        if done is not None:
            self._close_callbacks.append(done)
        self._service.call(self._begin_close)

    def close_at_exit(self, done: Callable[[], None]) -> float:
        self.close_soon(done)
        return self._config.close_seconds + _KEEP_SECONDS

    def discard(self) -> None:
        """Stop without draining: what is pending is dropped."""
        self._discarding = True
        self._service.call(self._begin_close)

    def reset_after_fork(self) -> None:
        """In a forked child: the parent goes on writing; here is nobody who could."""
        self._forked = True
        self._state = WriterState.CLOSED
        self._barriers.reset_after_fork()
        self._pending.reset_after_fork(self._why_closed)
        self._sink.close()

    @property
    def health(self) -> WriterHealth:
        pending, backlog = self._pending, self._backlog
        synced = self._synced_items
        return WriterHealth(
            state=self._state,
            pending_items=pending.accepted_items - synced,
            pending_bytes=pending.accepted_bytes - pending.durable_bytes,
            flushed_items=max(backlog.flushed_items, synced),
            synced_items=synced,
            last_error=self._bug or self._last_error,
            retries=self._retries,
            reopens=self._reopens,
        )

    @property
    def state(self) -> WriterState:
        return self._state

    @property
    def bug(self) -> BaseException | None:
        return self._bug

    # On the service loop: waking

    def _signal(self) -> None:
        self._signalled = True
        self._event.set()

    def _start_lingering(self) -> None:
        if self._linger is None:
            self._linger = self._service.loop.call_later(self._config.linger_seconds, self._signal)

    def _sync_timer_fired(self) -> None:
        self._sync_timer, self._sync_due = None, True
        self._signal()

    def _retry_timer_fired(self) -> None:
        self._retry_timer = None
        self._signal()

    async def _sleep(self) -> None:
        if not self._signalled:
            await self._event.wait()
        self._signalled = False
        self._event = anyio.Event()
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None

    # The task

    async def run(self) -> None:
        try:
            async with anyio.create_task_group() as self._tasks:
                while self._state is not WriterState.CLOSED:
                    await self._sleep()
                    await self._round()
                self._tasks.cancel_scope.cancel()  # a sync that hangs is left to its thread
        except BaseException as error:
            self._die(error)
            if not isinstance(error, Exception):
                raise
        finally:
            self._cancel_timers()
            for callback in self._close_callbacks:
                callback()

    async def _round(self) -> None:
        self._receive()
        self._backlog.add(self._pending.take())
        if self._discarding:
            self._end(RecorderClosed(path=self._sink.path, reason="discarded"))
            return
        if self._fenced is None:
            try:
                await self._work()
            except WriterFenced as error:
                await self._be_fenced(error)
            except (OSError, RolloutError) as error:
                self._answer()
                self._blocked = True
                self._fail(error)
            self._answer()
        self._finish_closing()
        if self._state is not WriterState.CLOSED and not self._pending.rest():
            self._signal()

    async def _work(self) -> None:
        retry = self._may_retry()
        if self._blocked and not retry:
            return
        if retry and (self._blocked or self._sync_broken):
            await self._recover()
        await self._hand_over()
        self._blocked = False
        if retry or not self._sync_broken:
            self._start_sync()
        if not self._sync_broken:
            self._recovered()

    def _receive(self) -> None:
        # A barrier that comes while all is well survives the first failure: it is retried at once.
        closers = self._barriers.receive(chances=1 if self._state is WriterState.RECOVERING else 2)
        if closers:
            self._closers += closers
            self._begin_close()

    def _may_retry(self) -> bool:
        """A barrier retries at once; otherwise the back-off decides."""
        return self._retry_timer is None or self._somebody_waits()

    def _somebody_waits(self) -> bool:
        return self._barriers.wants(Goal.FLUSH, Goal.SYNC)

    # Handing over

    async def _hand_over(self) -> None:
        """Write everything that waits. Verified before, healed at once if the file is not as we left it."""
        backlog, sink = self._backlog, self._sink
        for attempt in range(3):
            try:
                if backlog.waiting and not sink.created:
                    sink.create(backlog)
                    backlog.pass_written()
                if sink.created:
                    sink.verify()
                while backlog.waiting:
                    sink.append(backlog.waiting[0])
                    backlog.pass_written()
            except SinkDisturbed as disturbance:
                _log.info("%s: %s", sink.path, disturbance)
                if attempt == 2:
                    raise OSError(str(disturbance)) from disturbance
                await self._reconcile()
                continue
            return

    async def _reconcile(self) -> None:
        """Heal in a thread of its own: rebuilding a file or searching it may take long."""
        self._reopens += 1
        self._healing = True
        try:
            await self._service.run_blocking(lambda: self._sink.heal(self._backlog))
        finally:
            self._healing = False

    async def _recover(self) -> None:
        self._retries += 1
        self._cancel_retry()
        if self._backlog.waiting or self._sink.created:
            await self._reconcile()

    def _recovered(self) -> None:
        if self._sink.created:
            self._move(WriterState.OPEN)
        if self._state is not WriterState.RECOVERING:
            self._last_error = self._pending.last_error = None
            self._retry_seconds = self._config.retry_seconds_min

    def _cancel_retry(self) -> None:
        if self._retry_timer is not None:
            self._retry_timer.cancel()
            self._retry_timer = None

    # Syncing

    def _start_sync(self) -> None:
        backlog, sink = self._backlog, self._sink
        if self._syncing or not sink.created:
            return
        unsynced = backlog.written - backlog.durable
        if not unsynced and self._synced_epoch == sink.epoch:
            return
        if self._is_sync_due(unsynced):
            self._syncing, self._sync_due = True, False
            snapshot = (backlog.written, sink.end_bytes, sink.epoch)
            job = self._answering(sink.sync_job(backlog))
            self._tasks.start_soon(self._sync, job, *snapshot)
            if self._sync_timer is not None:
                self._sync_timer.cancel()
                self._sync_timer = None
        elif self._sync_timer is None:
            self._sync_timer = self._service.loop.call_later(
                self._config.sync_seconds, self._sync_timer_fired
            )

    def _is_sync_due(self, unsynced_bytes: int) -> bool:
        return (
            self._sync_due
            or self._closing
            or unsynced_bytes >= self._config.sync_bytes
            or self._pending.sync_wanted > self._backlog.durable
            or self._barriers.wants(Goal.SYNC, Goal.ROOM)
        )

    def _answering(self, job: Callable[[], None]) -> Callable[[], None]:
        """The sync job that also answers whom it covers, from its own thread: one wake-up less for them."""
        covered, offset, items = self._backlog.written, self._sink.end_bytes, self._backlog.flushed_items
        riders = self._barriers.select(Goal.SYNC, target_max=covered)

        def sync_and_answer() -> None:
            job()
            self._pending.note_durable(covered)
            self._synced_items = max(self._synced_items, items)
            for barrier in riders:
                barrier.receipt = Receipt(barrier.items, offset)
            answer_all(riders)

        return sync_and_answer

    async def _sync(self, job: Callable[[], None], covered: int, offset: int, epoch: int) -> None:
        """`covered` and `offset`: stream position and file end when the job was made."""
        try:
            await self._service.run_blocking(job)
        except SinkDisturbed as disturbance:
            _log.info("%s: %s", self._sink.path, disturbance)
            self._syncing = False
            self._signal()  # the next round heals, and syncs again
            return
        except (OSError, RolloutError) as error:
            self._sink.sync_failed()
            self._syncing, self._sync_broken = False, True
            self._answer()
            self._fail(error)
            return
        self._syncing = False
        if epoch == self._sink.epoch and not self._healing:
            self._synced_epoch = epoch
            self._backlog.note_durable(covered, offset=offset)
            self._sync_broken = False
            if not self._blocked:
                self._recovered()
            self._answer()
        self._signal()

    # Answering

    def _is_met(self, barrier: Barrier) -> bool:
        backlog = self._backlog
        if barrier.goal is Goal.FLUSH:
            return backlog.written >= barrier.target
        if barrier.goal is Goal.ROOM:
            return self._pending.accepted_bytes - backlog.durable <= self._config.pending_bytes_max // 2
        return backlog.durable >= barrier.target and self._synced_epoch == self._sink.epoch

    def _answer(self) -> None:
        """Answer the barriers that are met, if the file still is as we left it."""
        if self._blocked or self._healing:
            return
        met = self._barriers.met(self._is_met)
        if not met:
            return
        try:
            self._sink.verify()
        except (SinkDisturbed, WriterFenced) as disturbance:
            _log.info("%s: %s", self._sink.path, disturbance)
            self._signal()  # the next round sees the same, heals or gives up, and answers
            return
        except OSError as error:
            self._blocked = True
            self._fail(error)
            return
        self._barriers.answer(met, self._sink.end_bytes)

    def _fail(self, error: OSError | RolloutError) -> None:
        """Keep everything, tell the barriers that had their second chance, and try again later."""
        self._last_error = self._pending.last_error = error
        if self._state is WriterState.CLOSED:
            return
        self._move(WriterState.RECOVERING, error)
        self._barriers.lose_chance(lambda: self._as_rollout_error(error))
        if self._somebody_waits():
            self._signal()
        else:
            self._schedule_retry()

    def _as_rollout_error(self, error: BaseException) -> RolloutError:
        """A fresh error for one caller, with the cause chained."""
        if isinstance(error, RolloutError):
            fresh = copy.copy(error)
        else:
            fresh = RolloutWriteError(
                path=self._sink.path,
                operation="write" if self._backlog.waiting else "sync",
                cause=error,
                pending_items=self._pending.accepted_items - self._synced_items,
                offset_bytes=self._sink.end_bytes,
            )
        fresh.__cause__ = error
        return fresh

    def _schedule_retry(self) -> None:
        if self._retry_timer is None:
            seconds = (
                min(self._retry_seconds, _RETRY_SECONDS_CLOSING) if self._closing else self._retry_seconds
            )
            delay = seconds * random.uniform(0.5, 1.0)
            self._retry_timer = self._service.loop.call_later(delay, self._retry_timer_fired)
            self._retry_seconds = min(self._retry_seconds * 2, self._config.retry_seconds_max)

    def _move(self, target: WriterState, error: BaseException | None = None) -> None:
        """One log line a change of state, not one a failure."""
        if target is self._state:
            return
        if target is WriterState.RECOVERING:
            _log.warning("%s: %s; items are kept and written later", self._sink.path, error)
        elif self._state is WriterState.RECOVERING and target is WriterState.OPEN:
            _log.warning("%s: writing again", self._sink.path)
        self._state = move(self._state, target)

    # Ending

    def _begin_close(self) -> None:
        if self._closing or self._state is WriterState.CLOSED:
            self._signal()
            return
        self._closing = True
        if self._pending.opened and not self._discarding and self._fenced is None:
            self._pending.append_note(self._closing_note())
        self._pending.refuse(self._why_closed)
        self._deadline = self._service.loop.call_later(
            0 if self._discarding else self._config.close_seconds, self._deadline_passed
        )
        self._cancel_retry()
        self._signal()

    def _finish_closing(self) -> None:
        if not self._closing or self._state is WriterState.CLOSED:
            return
        if self._fenced is not None:
            self._end(self._fenced)
        elif not self._blocked and not self._barriers and self._is_drained():
            try:
                self._sink.verify()
            except (SinkDisturbed, OSError, RolloutError) as disturbance:
                _log.info("%s: %s", self._sink.path, disturbance)
                self._signal()
                return
            self._end(None)

    def _is_drained(self) -> bool:
        if not self._sink.created:
            return self._backlog.end == self._pending.accepted_bytes == 0
        final = Barrier(Goal.CLOSE, loop=None)
        final.target = self._pending.accepted_bytes
        return self._is_met(final)

    def _deadline_passed(self) -> None:
        if self._state is not WriterState.CLOSED and not self._discarding:
            self._tasks.start_soon(self._give_up)

    async def _give_up(self) -> None:
        """The time to close is over: what isn't durable is set aside, and everybody is told where."""
        self._backlog.add(self._pending.take())
        cause = self._last_error
        if self._is_drained() and cause is not None:
            self._end(self._as_rollout_error(cause))
            return
        kept_path, unwritten = await self._keep_rest()
        error = UnwrittenItems(
            path=self._sink.path,
            cause=cause,
            kept_path=kept_path,
            unwritten=b"" if kept_path else unwritten,
            pending_items=self._pending.accepted_items - self._synced_items,
        )
        error.__cause__ = cause
        self._end(error)

    async def _keep_rest(self) -> tuple[str | None, bytes]:
        """Set aside the lines that aren't durable. None if no place took them; then they are returned."""
        lines = self._backlog.undurable_lines()
        kept = None
        with anyio.move_on_after(_KEEP_SECONDS):
            kept = await self._service.run_blocking(
                lambda: self._keep_unwritten(
                    lines,
                    self._backlog.durable_offset,
                    self._pending.accepted_items - self._synced_items,
                )
            )
        return kept, b"".join(lines)

    async def _be_fenced(self, error: WriterFenced) -> None:
        """Another writer owns the thread: never touch the file again, set aside what it lacks, and say so."""
        self._fenced = error
        self._move(WriterState.FENCED)
        self._pending.refuse(lambda: copy.copy(error))
        self._backlog.add(self._pending.take())
        if self._pending.accepted_bytes > self._backlog.durable:
            await self._keep_rest()
        self._sink.close()
        self._barriers.fail_all(lambda: copy.copy(error))

    def _end(self, error: RolloutError | None) -> None:
        """Closed: nobody is left waiting."""
        self._state = move(self._state, WriterState.CLOSED)
        self._end_error = None if self._discarding else error
        self._pending.refuse(self._why_closed)
        self._sink.close()
        for barrier in self._barriers.close() + self._closers:
            self._answer_closed(barrier)
        self._signal()

    def _answer_closed(self, barrier: Barrier) -> None:
        error = self._end_error or self._bug
        if barrier.goal is Goal.CLOSE and (error is None or self._forked):
            barrier.receipt = Receipt(self._synced_items, self._sink.end_bytes)
        elif error is not None:
            barrier.error = self._as_rollout_error(error)
        else:
            barrier.error = self._why_closed()
        answer_all([barrier])

    def _why_closed(self) -> RolloutError:
        if self._bug is not None:
            error: RolloutError = RolloutWriteError(
                path=self._sink.path,
                operation="write",
                message=f"the writer failed: {self._bug!r}",
                hint="This is a bug in rollout-recorder; please report it with its traceback",
            )
            error.__cause__ = self._bug
            return error
        reason = "closed: it belongs to the parent of this forked process" if self._forked else "closed"
        return RecorderClosed(path=self._sink.path, reason="discarded" if self._discarding else reason)

    def _die(self, bug: BaseException) -> None:
        """A bug, or the end of the service: keep the error, set the items aside, let nobody hang."""
        self._bug = bug
        _log.error("%s: the writer failed; this is a bug", self._sink.path, exc_info=bug)
        self._backlog.add(self._pending.take())
        lines = self._backlog.undurable_lines()
        if lines and not self._discarding:
            self._keep_unwritten(lines, self._backlog.durable_offset, self._pending.accepted_items)
        if self._state is not WriterState.CLOSED:
            self._end(None)

    def _cancel_timers(self) -> None:
        for timer in (self._linger, self._sync_timer, self._retry_timer, self._deadline):
            if timer is not None:
                timer.cancel()
