"""The writer: one task a rollout, the only one that touches its file.

Invariant: a chunk leaves the backlog only when a sync covered it. A barrier is answered only
after the checks passed behind everything it waits for. Nothing that goes wrong with the disk
ends the task: it keeps the items, backs off and heals; a bug ends it, and every later call
raises that bug.

Theory of operation. The task sleeps until its alarm rings. Callers leave items in `Pending` and
barriers in the queue, and wake it. Each round it heals if it must, hands everything over with
one write a chunk, starts a sync if one is due, and answers. A sync runs in a thread of its own,
so that a flush never waits for it.

Decided elsewhere: whether a barrier is met (`progress`), when a sync is due and what its end means
(`syncing`), who may touch the file while it is healed (`place`), when to try again (`trouble`), what
callers are told at the end (`ending`), what is set aside then (`salvage`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

import anyio
import anyio.abc

from protocol.errors import RolloutError, RolloutWriteError, WriterFenced
from protocol.items import RolloutItem
from rollout.alarm import Alarm
from rollout.backlog import Backlog
from rollout.barrier import Barrier, BarrierQueue, Goal
from rollout.config import RecorderConfig
from rollout.ending import Ending, fresh_copy
from rollout.follower import Follower
from rollout.health import WriterHealth
from rollout.pending import Pending
from rollout.place import Place
from rollout.progress import Progress
from rollout.salvage import KeepUnwritten, Salvage
from rollout.service import Service
from rollout.sink import Sink, SinkDisturbed
from rollout.state import WriterState, move
from rollout.syncing import Syncing
from rollout.timers import Timers
from rollout.trouble import Trouble

__all__ = ["Writer"]

_log = logging.getLogger("rollout.writer")

_HEAL_SECONDS = 1.0
"""How long the end of a healing is waited for when the time to close is over."""
_KEEP_SECONDS = 2.0
"""How long setting items aside may take when the time to close is over."""


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
        self._closing_note = closing_note
        self._barriers = BarrierQueue()
        self._backlog = backlog = Backlog(chunk_bytes=config.chunk_bytes)
        backlog.durable_offset = sink.end_bytes
        self._progress = Progress(pending=pending, backlog=backlog, sink=sink, config=config)
        self._trouble = Trouble(config)
        self._timers = Timers(service)
        self._alarm = Alarm(service, linger_seconds=config.linger_seconds)
        pending.wake = self._alarm.wake
        self._syncing = Syncing(
            sink=sink,
            backlog=backlog,
            progress=self._progress,
            barriers=self._barriers,
            trouble=self._trouble,
            config=config,
            wake=partial(service.call, self._alarm.ring),
        )
        self._launch: Callable[[], None] | None = None
        """The sync that this round has made ready."""
        self._place = Place(service=service, sink=sink, backlog=backlog, pending=pending)
        self._salvage = Salvage(
            service=service, backlog=backlog, place=self._place, progress=self._progress, keep=keep_unwritten
        )
        self._ending = Ending(sink.path)
        self._closing = False
        self._state = WriterState.OPEN if sink.created else WriterState.DEFERRED
        self._retries = 0
        self._tasks: anyio.abc.TaskGroup

    def follow(self, follower: Follower) -> None:
        """Tell it what is written. Before the first record."""
        self._place.follower = follower
        follower.attach(lambda: self._service.call(self._alarm.ring))

    # Called from any thread

    def request(self, barrier: Barrier) -> None:
        """Leave a barrier; it is answered on its caller's loop."""
        self._progress.aim(barrier)
        if not self._barriers.leave(barrier):
            self._ending.answer(barrier, self._progress.receipt)
        elif barrier.goal is Goal.CLOSE:
            self._service.call(self._begin_close)  # its deadline runs, even if the task is held up
        else:
            self._alarm.wake(True)

    def close_soon(self, done: Callable[[], None] | None = None) -> None:
        """Drain and close without anybody waiting (a dropped handle); safe in a finalizer."""
        if done is not None:
            self._ending.call_at_end(done)
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
        return self._progress.health(
            self._state,
            last_error=self._ending.bug or self._trouble.last_error,
            retries=self._retries,
            reopens=self._place.healings,
        )

    # The task

    async def run(self) -> None:
        try:
            async with anyio.create_task_group() as self._tasks:
                while self._state is not WriterState.CLOSED:
                    await self._alarm.sleep()
                    if not self._place.abandoned:
                        await self._round()
                self._tasks.cancel_scope.cancel()
        except BaseException as error:
            self._die(error)
            if not isinstance(error, Exception):
                raise
        finally:
            self._timers.stop_all()
            self._ending.call_back()

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
                if self._place.abandoned:
                    return
                await self._take_failure(error)
            self._answer()
        else:
            self._barriers.fail_all(partial(fresh_copy, self._ending.fenced))
        self._finish_closing()
        if self._syncing.watch(closing=self._closing):
            self._alarm.ring()
        if self._state is not WriterState.CLOSED and not self._pending.rest():
            self._alarm.ring()
        if self._launch is not None:
            # Last, so that its thread need not wait for the rest of the round.
            launch, self._launch = self._launch, None
            self._service.post_blocking(launch)

    def _receive(self) -> None:
        # A barrier that comes while all is well survives the first failure: it is retried at once.
        closers = self._barriers.receive(chances=1 if self._trouble else 2)
        if closers:
            self._ending.await_end(closers)
            self._begin_close()

    async def _work(self) -> None:
        trouble = self._trouble
        may_retry = not trouble or "retry" not in self._timers or self._somebody_waits()
        if trouble.blocked and not may_retry:
            return
        if trouble and may_retry:
            self._retries += 1
            self._timers.stop("retry")
            await self._place.heal()
        await self._place.hand_over()
        trouble.handed_over()
        self._note_recovery()  # before a sync, whose callers may look at the health
        if may_retry or not trouble.sync_broken:
            self._start_sync()

    def _somebody_waits(self) -> bool:
        """A barrier retries at once; without one the back-off decides."""
        return self._barriers.wants(Goal.FLUSH, Goal.SYNC)

    # Syncing

    def _start_sync(self) -> None:
        if not self._progress.needs_sync:
            return
        if self._syncing.is_due(closing=self._closing):
            self._timers.stop("sync")
            self._launch = self._syncing.start()
        else:
            self._timers.start("sync", self._config.sync_seconds, self._sync_time_over)

    def _sync_time_over(self) -> None:
        self._syncing.time_is_over()
        self._alarm.ring()

    def _finish_sync(self) -> None:
        """Take in the outcome of the sync under way, if it ended."""
        try:
            succeeded = self._syncing.finish()
        except (OSError, RolloutError) as error:
            self._answer()  # flushes still hold
            self._fail(error)
        else:
            if succeeded:
                self._note_recovery()

    # Answering

    def _answer(self) -> None:
        """Answer the barriers that are met, if the file still is as we left it."""
        met = self._barriers.met(self._progress.is_met)
        if met and not self._trouble.blocked and self._is_undisturbed():
            self._barriers.answer(met, self._sink.end_bytes)

    def _is_undisturbed(self) -> bool:
        """The checks before an answer. If they fail, the next round heals or gives up."""
        try:
            self._sink.verify()
        except (SinkDisturbed, WriterFenced) as disturbance:
            _log.info("%s: %s", self._sink.path, disturbance)
            self._alarm.ring()
            return False
        except OSError as error:
            self._trouble.write_failed(error)
            self._fail(error)
            return False
        return True

    # Failing

    async def _take_failure(self, error: OSError | RolloutError) -> None:
        if isinstance(error, WriterFenced):
            await self._be_fenced(error)
        else:
            self._trouble.write_failed(error)
            self._fail(error)

    def _fail(self, error: OSError | RolloutError) -> None:
        """Keep everything, tell the barriers that had their second chance, and try again later."""
        self._move(WriterState.RECOVERING, error)
        self._pending.last_error = error
        self._barriers.lose_chance(partial(self._progress.failure, error))
        if self._somebody_waits():
            self._alarm.ring()
        else:
            delay = self._trouble.next_delay(closing=self._closing)
            self._timers.start("retry", delay, self._alarm.ring)

    def _note_recovery(self) -> None:
        if not self._trouble and self._sink.created:
            self._move(WriterState.OPEN)
            self._pending.last_error = None

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
            if self._pending.opened and self._ending.drains:
                self._pending.append_note(self._closing_note())
            self._pending.refuse(self._ending.why)
            if not self._ending.discarding:
                self._timers.start("deadline", self._config.close_seconds, self._deadline_passed)
            self._timers.stop("retry")
        self._alarm.ring()
        if self._ending.discarding and self._place.is_healing:
            self._place.abandoned = True  # it may hang: nobody waits for it
            self._end(None)
        if self._state is WriterState.CLOSED:
            self._ending.call_back()

    def _finish_closing(self) -> None:
        if not self._closing or self._state is WriterState.CLOSED:
            return
        if self._ending.fenced is not None:
            self._end(self._ending.fenced)
        elif (
            not (self._trouble or self._barriers)
            and self._place.follower.is_done
            and self._progress.is_drained
            and self._is_undisturbed()
        ):
            self._end(None)

    def _deadline_passed(self) -> None:
        if self._state is not WriterState.CLOSED and not self._ending.discarding:
            self._place.abandoned = True
            self._tasks.start_soon(self._give_up)

    async def _give_up(self) -> None:
        """The time to close is over: what isn't durable is set aside, and everybody is told where."""
        await self._place.wait_until_healed(_HEAL_SECONDS)
        if not self._place.is_healing:
            self._finish_sync()
        cause = self._trouble.last_error or self._last_look()
        if self._progress.is_drained:
            self._end(None if cause is None else self._progress.failure(cause))
        else:
            salvaged = await self._salvage.run(seconds_max=_KEEP_SECONDS)
            if salvaged.lines:
                self._end(salvaged.error(self._sink.path, cause))
            else:  # all was written, but no sync says so
                self._end(self._progress.failure(cause or TimeoutError("the last sync did not end in time")))

    def _last_look(self) -> BaseException | None:
        """Why nobody can vouch for the place; None if it is as we left it."""
        message = "it was still being healed when the time to close was over"
        if not self._place.is_healing:
            try:
                self._sink.verify()
            except SinkDisturbed as disturbance:
                message = str(disturbance)
            except (OSError, WriterFenced) as error:
                return error
            else:
                return None
        hint = "What is durable stood there when it was last looked at"
        return RolloutWriteError(path=self._sink.path, operation="check", message=message, hint=hint)

    async def _be_fenced(self, error: WriterFenced) -> None:
        """Another writer owns the thread: never touch the file again, set aside what it lacks, say so."""
        self._ending.fenced = error
        self._move(WriterState.FENCED)
        self._pending.refuse(partial(fresh_copy, error))
        if self._pending.accepted_bytes > self._backlog.durable:
            salvaged = await self._salvage.run(seconds_max=_KEEP_SECONDS)
            error.note_kept(salvaged.kept_path, salvaged.unkept)
        self._place.close()
        self._barriers.fail_all(partial(fresh_copy, error))

    def _end(self, error: RolloutError | None) -> None:
        """Closed: nobody is left waiting."""
        if self._state is WriterState.CLOSED:
            return
        self._state = move(self._state, WriterState.CLOSED)
        self._ending.error = error
        self._pending.refuse(self._ending.why)
        try:
            self._place.close()
        finally:
            self._ending.answer_all(self._barriers.close(), self._progress.receipt)
            self._alarm.ring()

    def _die(self, bug: BaseException) -> None:
        """A bug, or the end of the service: keep the error, set the items aside, let nobody hang."""
        self._ending.bug = bug
        self._pending.refuse(self._ending.why)
        _log.error("%s: the writer failed; this is a bug", self._sink.path, exc_info=bug)
        try:
            if not self._ending.discarding:
                self._ending.bug_kept = self._salvage.run_now()
        except Exception as error:  # noqa: BLE001  # nobody may hang, whatever else goes wrong
            _log.error("%s: its items could not be set aside", self._sink.path, exc_info=error)
        finally:
            self._end(None)
