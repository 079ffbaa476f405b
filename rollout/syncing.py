"""The syncs of one writer: when the next one starts, and what the end of one means. No waiting.

Invariant: one sync at a time; those who ask meanwhile share the next one. A sync that failed
makes the sink write again what it covered before another one can count. One that was overtaken
(the place changed under it, or the lock was lost) proves nothing and breaks nothing: the next
check of the writer meets the reason.

A sync starts, once something was written that none covered, when somebody waits for it (a barrier,
a record of durability `sync`, a caller without room, the close), when `sync_bytes` gathered, or when
the time is over that the writer lets pass in between (`time_is_over`).
"""

from __future__ import annotations

from collections.abc import Callable

from protocol.errors import RolloutError, WriterFenced
from rollout.backlog import Backlog
from rollout.barrier import BarrierQueue, Goal
from rollout.config import RecorderConfig
from rollout.progress import Progress
from rollout.sink import Sink, SinkDisturbed
from rollout.sync_run import SyncRun
from rollout.trouble import Trouble

__all__ = ["Syncing"]


class Syncing:
    """Owned by the writer, who asks it each round. No locks: only `SyncRun` meets another thread."""

    def __init__(
        self,
        *,
        sink: Sink,
        backlog: Backlog,
        progress: Progress,
        barriers: BarrierQueue,
        trouble: Trouble,
        config: RecorderConfig,
        wake: Callable[[], None],
    ) -> None:
        """
        Args:
            wake: wakes the writer; called in the sync's thread.
        """
        self._sink = sink
        self._backlog = backlog
        self._progress = progress
        self._barriers = barriers
        self._trouble = trouble
        self._sync_bytes = config.sync_bytes
        self._wake = wake
        self._run: SyncRun | None = None
        self._time_is_over = False

    @property
    def under_way(self) -> bool:
        """Whether a sync was started whose end was not taken in yet."""
        return self._run is not None

    def time_is_over(self) -> None:
        """What was written waited long enough: the next sync is due."""
        self._time_is_over = True

    def is_due(self, *, closing: bool) -> bool:
        """Whether a sync should start now, given that one would change anything."""
        return self._run is None and (
            self._time_is_over
            or closing
            or self._barriers.wants(Goal.SYNC, Goal.ROOM)
            or self._progress.is_sync_wanted
            or self._progress.unsynced_bytes >= self._sync_bytes
        )

    def start(self) -> Callable[[], None]:
        """Make a sync ready: it covers what was written so far, and runs when the result is called, once,
        in any thread. Raises as `Sink.sync_job`."""
        self._time_is_over = False
        covered = self._progress.covered()
        self._run = SyncRun(
            self._sink.sync_job(self._backlog),
            covered=covered,
            riders=self._barriers.select(Goal.SYNC, target_max=covered.stream),
            note=self._progress.publish,
            wake=self._wake,
        )
        return self._run.run

    def finish(self) -> bool:
        """Take in the end of the sync under way. Returns whether there was one, and it succeeded.

        Raises:
            OSError, RolloutError: it failed; what it covered is not durable.
        """
        run = self._run
        if run is None or not run.is_over():
            return False
        self._run = None
        error = run.outcome()
        if error is None:
            self._trouble.synced()
            self._progress.settle(run.covered)
            return True
        if isinstance(error, SinkDisturbed | WriterFenced):
            return False
        if isinstance(error, OSError | RolloutError):
            self._sink.sync_failed()
            self._trouble.sync_failed(error)
        raise error

    def watch(self, *, closing: bool) -> bool:
        """The writer goes to sleep. Returns whether the sync under way has ended, so that it must not; else
        its end wakes the writer if anything depends on it. Otherwise nobody needs to."""
        goes_on = closing or self._barriers or self._trouble or self._progress.is_sync_wanted
        return self._run is not None and bool(goes_on) and self._run.is_over(wake=True)
