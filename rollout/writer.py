"""The writer: one task a rollout, the only one that touches its file.

Invariant: a chunk leaves the backlog only when a sync covered it. A barrier is answered only
after the checks passed behind everything it waits for. Nothing that goes wrong with the disk
ends the task: it keeps the items, backs off and heals; a bug ends it, and every later call
raises that bug.

Theory of operation. The task sleeps on one event. Callers leave items in `Pending` and
barriers in the queue, and wake it. Each round it heals if it must, hands everything over with
one write a chunk, starts a sync if one is due, and answers. A sync runs in a thread of its
own, so that a flush never waits for it; syncs that are asked for meanwhile share the next one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

import anyio
import anyio.abc

from protocol.errors import RecorderClosed, RolloutError, RolloutWriteError, UnwrittenItems, WriterFenced
from protocol.items import RolloutItem
from rollout.backlog import Backlog, Chunk
from rollout.barrier import Barrier, BarrierQueue, Goal, Receipt
from rollout.config import RecorderConfig
from rollout.ending import Ending, fresh_copy
from rollout.health import WriterHealth
from rollout.pending import Pending
from rollout.service import Service
from rollout.sink import Sink, SinkDisturbed
from rollout.state import WriterState, move
from rollout.sync_run import Covered, SyncRun
from rollout.timers import Timers
from rollout.trouble import Trouble

__all__ = ["KeepUnwritten", "Writer"]

_log = logging.getLogger("rollout.writer")

_HEAL_SECONDS = 1.0
"""How long the end of a healing is waited for when the time to close is over."""
_KEEP_SECONDS = 2.0
"""How long setting items aside may take when the time to close is over."""
_HEALINGS_MAX = 3
"""How often one round heals a place that keeps changing under it, before it counts as a failure."""

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
        self._barriers = BarrierQueue()
        self._backlog = Backlog(chunk_bytes=config.chunk_bytes)
        self._backlog.durable_offset = sink.end_bytes
        self._trouble = Trouble(config)
        self._state = WriterState.OPEN if sink.created else WriterState.DEFERRED
        pending.wake = self.wake

        self._event = anyio.Event()
        self._signalled = False
        self._posted = self._hurry = False
        self._tasks: anyio.abc.TaskGroup
        self._timers = Timers(service)
        self._sync_timed_out = False
        self._sync: SyncRun | None = None
        self._launch: Callable[[], None] | None = None
        """The sync that this round has made ready."""
        self._synced_epoch = sink.epoch
        self._synced_items = 0
        self._healing: anyio.Event | None = None
        """A healing is under way in its thread; set when that ends."""
        self._at_stake: list[Chunk] = []
        """The backlog as that healing found it."""
        self._gave_up = False
        """The time to close is over: from here on the file is left alone."""
        self._retries = 0
        self._reopens = 0

        self._closing = False
        self._closers: list[Barrier] = []
        self._close_callbacks: list[Callable[[], None]] = []
        self._ending = Ending(sink.path)

    # Called from any thread

    def wake(self, now: bool) -> None:
        """Something is pending: come at once, or within `linger_seconds`."""
        if now:
            self._hurry = True
        self._post()

    def request(self, barrier: Barrier) -> None:
        """Leave a barrier; it is answered on its caller's loop."""
        barrier.target, barrier.items = self._pending.position()
        if barrier.goal is Goal.ROOM:
            # What is free now was not enough: wait until there is more, and don't ask again before.
            barrier.target = self._pending.durable_bytes + 1
        if not self._barriers.leave(barrier):
            self._answer_closed(barrier)
        elif barrier.goal is Goal.CLOSE:
            self._service.call(self._begin_close)  # its deadline runs, even if the task is held up
        else:
            self.wake(now=True)

    def _post(self) -> None:
        """One call into the service loop under way is enough: what it will find was left before."""
        if not self._posted:
            self._posted = True
            try:
                self._service.call(self._called)
            except BaseException:  # Ctrl-C: the next one must not rely on this call
                self._posted = False
                raise

    def close_soon(self, done: Callable[[], None] | None = None) -> None:
        """Drain and close without anybody waiting (a dropped handle); safe in a finalizer."""
        if done is not None:
            self._close_callbacks.append(done)
        self._service.call(self._begin_close)

    def close_at_exit(self, done: Callable[[], None]) -> float:
        self.close_soon(done)
        return self._config.close_seconds + _HEAL_SECONDS + _KEEP_SECONDS

    def discard(self) -> None:
        """Stop without draining: what is pending is dropped."""
        self._ending.discarding = True
        self._pending.refuse(self._ending.why)
        self._service.call(self._begin_close)

    def reset_after_fork(self) -> None:
        """In a forked child: the parent goes on writing; here is nobody who could."""
        self._ending.forked = True
        self._state = WriterState.CLOSED
        self._barriers.reset_after_fork()
        self._pending.reset_after_fork(self._ending.why)
        self._sink.close_in_child()

    @property
    def state(self) -> WriterState:
        return self._state

    @property
    def health(self) -> WriterHealth:
        pending, synced = self._pending, self._synced_items
        return WriterHealth(
            state=self._state,
            pending_items=max(0, pending.accepted_items - synced),
            pending_bytes=max(0, pending.accepted_bytes - pending.durable_bytes),
            flushed_items=max(self._backlog.flushed_items, synced),
            synced_items=synced,
            last_error=self._ending.bug or self._trouble.last_error,
            retries=self._retries,
            reopens=self._reopens,
        )

    # On the service loop: waking

    def _called(self) -> None:
        self._posted = False
        if self._hurry:
            self._hurry = False
            self._signal()
        else:
            self._start_lingering()

    def _signal(self) -> None:
        self._signalled = True
        self._event.set()

    def _start_lingering(self) -> None:
        self._timers.start("linger", self._config.linger_seconds, self._signal)

    def _sync_second_passed(self) -> None:
        self._sync_timed_out = True
        self._signal()

    async def _sleep(self) -> None:
        if not self._signalled:
            await self._event.wait()
        self._signalled = False
        self._event = anyio.Event()
        self._timers.stop("linger")

    # The task

    async def run(self) -> None:
        try:
            async with anyio.create_task_group() as self._tasks:
                while self._state is not WriterState.CLOSED:
                    await self._sleep()
                    if not self._gave_up:
                        await self._round()
                self._tasks.cancel_scope.cancel()
        except BaseException as error:
            self._die(error)
            if not isinstance(error, Exception):
                raise
        finally:
            self._timers.stop_all()
            self._call_back()

    def _call_back(self) -> None:
        while self._close_callbacks:
            self._close_callbacks.pop()()

    async def _round(self) -> None:
        self._receive()
        self._backlog.add(self._pending.take())
        if self._ending.discarding:
            self._end(None)
            return
        if self._ending.fenced is None:
            self._finish_sync()
            try:
                await self._work()
            except (OSError, RolloutError) as error:
                if self._gave_up:
                    return
                await self._take_failure(error)
            self._answer()
        else:
            self._barriers.fail_all(partial(fresh_copy, self._ending.fenced))
        self._finish_closing()
        self._watch_sync()
        if self._state is not WriterState.CLOSED and not self._pending.rest():
            self._signal()
        if self._launch is not None:
            # Last, so that its thread need not wait for the rest of the round.
            launch, self._launch = self._launch, None
            self._service.post_blocking(launch)

    async def _take_failure(self, error: OSError | RolloutError) -> None:
        if isinstance(error, WriterFenced):
            await self._be_fenced(error)
        else:
            self._trouble.write_failed(error)
            self._fail(error)

    def _receive(self) -> None:
        # A barrier that comes while all is well survives the first failure: it is retried at once.
        closers = self._barriers.receive(chances=1 if self._trouble else 2)
        if closers:
            self._closers += closers
            self._begin_close()

    async def _work(self) -> None:
        trouble = self._trouble
        may_retry = not trouble or "retry" not in self._timers or self._somebody_waits()
        if trouble.blocked and not may_retry:
            return
        if trouble and may_retry:
            await self._recover()
        await self._hand_over()
        trouble.handed_over()
        self._note_recovery()  # before a sync, whose callers may look at the health
        if may_retry or not trouble.sync_broken:
            self._start_sync()

    def _somebody_waits(self) -> bool:
        """A barrier retries at once; without one the back-off decides."""
        return self._barriers.wants(Goal.FLUSH, Goal.SYNC)

    # Handing over

    async def _hand_over(self) -> None:
        """Write everything that waits. A place that isn't as we left it is healed at once."""
        healings = 0
        while True:
            try:
                self._append_all()
            except SinkDisturbed as disturbance:
                _log.info("%s: %s", self._sink.path, disturbance)
                healings += 1
                if healings == _HEALINGS_MAX:
                    raise OSError(str(disturbance)) from disturbance
                await self._heal()
            else:
                return

    def _append_all(self) -> None:
        backlog, sink = self._backlog, self._sink
        if backlog.waiting and not sink.created:
            sink.create(backlog)
        if sink.created:
            sink.verify()
        while backlog.waiting:
            sink.append(backlog.waiting[0])
            backlog.pass_written()

    async def _recover(self) -> None:
        self._retries += 1
        self._timers.stop("retry")
        if self._backlog.waiting or self._sink.created:
            await self._heal()

    async def _heal(self) -> None:
        """In a thread of its own: rebuilding a file or searching it may take long."""
        self._reopens += 1
        self._healing, self._at_stake = anyio.Event(), [*self._backlog]
        self._backlog.note_ms = self._pending.note_ms()
        try:
            await self._service.run_blocking(partial(self._sink.heal, self._backlog))
        finally:
            self._healing.set()
            self._healing, self._at_stake = None, []
            if self._state is WriterState.CLOSED:
                self._sink.close()  # `_end` must not, while its descriptors were in use
        if self._gave_up:
            raise RecorderClosed(path=self._sink.path)

    def _note_recovery(self) -> None:
        if not self._trouble and self._sink.created:
            self._move(WriterState.OPEN)
            self._pending.last_error = None

    # Syncing

    def _start_sync(self) -> None:
        backlog, sink = self._backlog, self._sink
        unsynced = backlog.written - backlog.durable
        if not sink.created or not (unsynced or self._synced_epoch != sink.epoch):
            return
        if self._sync is not None or not self._is_sync_due(unsynced):
            self._timers.start("sync", self._config.sync_seconds, self._sync_second_passed)
            return
        self._timers.stop("sync")
        self._sync_timed_out = False
        covered = Covered(backlog.written, backlog.flushed_items, sink.end_bytes, sink.epoch)
        self._sync = SyncRun(
            sink.sync_job(backlog),
            covered=covered,
            riders=self._barriers.select(Goal.SYNC, target_max=covered.stream),
            note=self._note_durable,
            wake=partial(self._service.call, self._signal),
        )
        self._launch = self._sync.run

    def _is_sync_due(self, unsynced_bytes: int) -> bool:
        return (
            self._sync_timed_out
            or self._closing
            or unsynced_bytes >= self._config.sync_bytes
            or self._pending.sync_wanted > self._backlog.durable
            or self._barriers.wants(Goal.SYNC, Goal.ROOM)
        )

    def _note_durable(self, covered: Covered) -> None:
        """In the sync's thread, before it answers: what callers can see must not lag behind."""
        self._pending.note_durable(covered.stream)
        self._synced_items = max(self._synced_items, covered.items)

    def _finish_sync(self) -> None:
        """Take in the outcome of the sync under way, if it ended."""
        run = self._sync
        if run is None or not run.is_over():
            return
        self._sync = None
        error = run.outcome()
        if error is None:
            self._trouble.synced()
            if run.covered.epoch == self._sink.epoch:
                self._synced_epoch = run.covered.epoch
                self._backlog.note_durable(run.covered.stream, offset=run.covered.offset_bytes)
            self._note_recovery()
        elif isinstance(error, OSError | RolloutError) and not isinstance(error, WriterFenced):
            self._sink.sync_failed()
            self._trouble.sync_failed(error)
            self._answer()
            self._fail(error)
        elif not isinstance(error, SinkDisturbed | WriterFenced):
            raise error  # a bug; the two others are met again, and dealt with, by the next check

    def _watch_sync(self) -> None:
        """Have the end of the sync under way wake us, if anything goes on then. Otherwise nobody needs to."""
        goes_on = (
            self._closing
            or self._barriers
            or self._trouble
            or self._pending.sync_wanted > self._backlog.durable
        )
        if self._sync is not None and goes_on and self._sync.is_over(wake=True):
            self._signal()

    # Answering

    def _is_met(self, goal: Goal, target: int) -> bool:
        backlog = self._backlog
        if goal is Goal.FLUSH:
            return backlog.written >= target
        if goal is Goal.ROOM:
            waiting = self._pending.accepted_bytes - backlog.durable
            return not waiting or (
                backlog.durable >= target and waiting <= self._config.pending_bytes_max // 2
            )
        return backlog.durable >= target and self._synced_epoch == self._sink.epoch

    def _answer(self) -> None:
        """Answer the barriers that are met, if the file still is as we left it."""
        met = self._barriers.met(lambda barrier: self._is_met(barrier.goal, barrier.target))
        if met and not self._trouble.blocked and self._is_undisturbed():
            self._barriers.answer(met, self._sink.end_bytes)

    def _is_undisturbed(self) -> bool:
        """The checks before an answer. If they fail, the next round heals or gives up."""
        try:
            self._sink.verify()
        except (SinkDisturbed, WriterFenced) as disturbance:
            _log.info("%s: %s", self._sink.path, disturbance)
            self._signal()
            return False
        except OSError as error:
            self._trouble.write_failed(error)
            self._fail(error)
            return False
        return True

    def _fail(self, error: OSError | RolloutError) -> None:
        """Keep everything, tell the barriers that had their second chance, and try again later."""
        self._move(WriterState.RECOVERING, error)
        self._pending.last_error = error
        self._barriers.lose_chance(lambda: self._as_rollout_error(error))
        if self._somebody_waits():
            self._signal()
        else:
            delay = self._trouble.next_delay(closing=self._closing)
            self._timers.start("retry", delay, self._signal)

    def _as_rollout_error(self, error: BaseException) -> RolloutError:
        """A fresh error for one caller, with the cause chained."""
        if isinstance(error, RolloutError):
            return fresh_copy(error)
        fresh = RolloutWriteError(
            path=self._sink.path,
            operation="write" if self._backlog.waiting else "sync",
            cause=error,
            pending_items=self._pending.accepted_items - self._synced_items,
            offset_bytes=self._sink.end_bytes,
        )
        fresh.__cause__ = error
        return fresh

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
        if not self._closing and self._state is not WriterState.CLOSED:
            self._closing = True
            if self._pending.opened and not self._ending.discarding and self._ending.fenced is None:
                self._pending.append_note(self._closing_note())
            self._pending.refuse(self._ending.why)
            if not self._ending.discarding:
                self._timers.start("deadline", self._config.close_seconds, self._deadline_passed)
            self._timers.stop("retry")
        self._signal()
        if self._ending.discarding and self._healing is not None:
            self._gave_up = True  # it may hang: nobody waits for it
            self._end(None)
        if self._state is WriterState.CLOSED:
            self._call_back()

    def _finish_closing(self) -> None:
        if not self._closing or self._state is WriterState.CLOSED:
            return
        if self._ending.fenced is not None:
            self._end(self._ending.fenced)
        elif not self._trouble and not self._barriers and self._is_drained() and self._is_undisturbed():
            self._end(None)

    def _is_drained(self) -> bool:
        if not self._sink.created:
            return self._pending.accepted_bytes == 0
        return self._is_met(Goal.CLOSE, self._pending.accepted_bytes)

    def _deadline_passed(self) -> None:
        if self._state is not WriterState.CLOSED and not self._ending.discarding:
            self._gave_up = True
            self._tasks.start_soon(self._give_up)

    async def _give_up(self) -> None:
        """The time to close is over: what isn't durable is set aside, and everybody is told where."""
        if self._healing is not None:
            with anyio.move_on_after(_HEAL_SECONDS):
                await self._healing.wait()
        if self._healing is None:
            self._finish_sync()
            self._backlog.add(self._pending.take())
        cause = self._trouble.last_error
        if self._is_drained():
            self._end(None if cause is None else self._as_rollout_error(cause))
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
        """Set aside the lines that aren't durable. None if no place took them; they are returned too."""
        if self._healing is None:
            lines = self._backlog.undurable_lines()
        else:  # it hangs, with the backlog in its hands
            lines = [bytes(chunk.data) for chunk in (*self._at_stake, *self._pending.take())]
        items = self._pending.accepted_items - self._synced_items
        kept = None
        with anyio.move_on_after(_KEEP_SECONDS):
            kept = await self._service.run_blocking(
                partial(self._keep_unwritten, lines, self._backlog.durable_offset, items)
            )
        return kept, b"".join(lines)

    async def _be_fenced(self, error: WriterFenced) -> None:
        """Another writer owns the thread: never touch the file again, set aside what it lacks, say so."""
        self._ending.fenced = error
        self._move(WriterState.FENCED)
        self._pending.refuse(partial(fresh_copy, error))
        self._backlog.add(self._pending.take())
        if self._pending.accepted_bytes > self._backlog.durable:
            await self._keep_rest()
        self._sink.close()
        self._barriers.fail_all(partial(fresh_copy, error))

    def _end(self, error: RolloutError | None) -> None:
        """Closed: nobody is left waiting."""
        if self._state is WriterState.CLOSED:
            return
        self._state = move(self._state, WriterState.CLOSED)
        self._ending.error = error
        self._pending.refuse(self._ending.why)
        try:
            if self._healing is None:
                self._sink.close()
        finally:
            for barrier in self._barriers.close() + self._closers:
                self._answer_closed(barrier)
            self._signal()

    def _answer_closed(self, barrier: Barrier) -> None:
        self._ending.answer(barrier, Receipt(self._synced_items, self._sink.end_bytes))

    def _die(self, bug: BaseException) -> None:
        """A bug, or the end of the service: keep the error, set the items aside, let nobody hang."""
        self._ending.bug = bug
        self._pending.refuse(self._ending.why)
        _log.error("%s: the writer failed; this is a bug", self._sink.path, exc_info=bug)
        try:
            self._ending.bug_kept = self._keep_after_bug()
        except Exception as error:  # noqa: BLE001  # nobody may hang, whatever else goes wrong
            _log.error("%s: its items could not be set aside", self._sink.path, exc_info=error)
        finally:
            self._end(None)

    def _keep_after_bug(self) -> str | None:
        self._backlog.add(self._pending.take())
        lines = self._backlog.undurable_lines()
        if not lines or self._ending.discarding:
            return None
        items = self._pending.accepted_items - self._synced_items
        return self._keep_unwritten(lines, self._backlog.durable_offset, items)
