"""Progress: how far the items of one recorder have come, from accepted to durable. No I/O.

Invariant: nothing counts as durable but what a sync covered that began after the last healing:
one that a healing overtook says nothing about what stands now. What callers can see (figures of
health, room in the queue) is never ahead of the disk and never behind an answer.

Three positions in the stream of accepted bytes: accepted (`Pending`), written and durable
(`Backlog`). Items are counted beside them.
"""

from __future__ import annotations

from msgspec import Struct

from protocol.errors import RolloutError, RolloutWriteError
from rollout.backlog import Backlog
from rollout.barrier import Barrier, Goal, Receipt
from rollout.config import RecorderConfig
from rollout.ending import fresh_copy
from rollout.health import WriterHealth
from rollout.pending import Pending
from rollout.sink import Sink
from rollout.state import WriterState

__all__ = ["Covered", "Progress"]


class Covered(Struct, frozen=True):
    """What was written at one moment: a sync that starts then covers no more than that."""

    stream: int
    items: int
    offset_bytes: int
    epoch: int


class Progress:
    """Read by the writer, and where it says so from any thread; moved by syncs."""

    def __init__(self, *, pending: Pending, backlog: Backlog, sink: Sink, config: RecorderConfig) -> None:
        self._pending = pending
        self._backlog = backlog
        self._sink = sink
        self._room_bytes = config.pending_bytes_max // 2
        """Who waits for room goes on when no more than this is not yet durable."""
        self._synced_epoch = sink.epoch
        self._synced_items = 0

    # What a barrier waits for

    def aim(self, barrier: Barrier) -> None:
        """Set what a barrier waits for, as things stand at its call; from any thread."""
        barrier.target, barrier.items = self._pending.position()
        if barrier.goal is Goal.ROOM:
            # What is free now was not enough: wait until there is more, and don't ask again before.
            barrier.target = self._pending.durable_bytes + 1

    def is_met(self, barrier: Barrier) -> bool:
        """Whether a barrier may be answered, if the place still is as it was left."""
        if barrier.goal is Goal.FLUSH:
            return self._backlog.written >= barrier.target
        if barrier.goal is Goal.ROOM:
            return self._has_room(barrier.target)
        return self._is_durable(barrier.target)

    def _has_room(self, durable_min: int) -> bool:
        durable = self._backlog.durable
        waiting = self._pending.accepted_bytes - durable
        return not waiting or (durable >= durable_min and waiting <= self._room_bytes)

    def _is_durable(self, position: int) -> bool:
        return self._backlog.durable >= position and self._synced_epoch == self._sink.epoch

    @property
    def is_drained(self) -> bool:
        """Everything that was accepted is durable."""
        if not self._sink.created:
            return self._pending.accepted_bytes == 0
        return self._is_durable(self._pending.accepted_bytes)

    # What a sync moves

    @property
    def unsynced_bytes(self) -> int:
        """How much was written that no sync covered."""
        return self._backlog.written - self._backlog.durable

    @property
    def needs_sync(self) -> bool:
        """Whether a sync would change anything."""
        return self._sink.created and (
            self._backlog.written > self._backlog.durable or self._synced_epoch != self._sink.epoch
        )

    @property
    def is_sync_wanted(self) -> bool:
        """Whether a record waits for a sync, by its durability."""
        return self._pending.sync_wanted > self._backlog.durable

    def covered(self) -> Covered:
        """What a sync that starts now covers."""
        sink, backlog = self._sink, self._backlog
        return Covered(backlog.written, backlog.flushed_items, sink.end_bytes, sink.epoch)

    def publish(self, covered: Covered) -> None:
        """In the sync's thread, before it answers: what callers can see must not lag behind."""
        self._pending.note_durable(covered.stream)
        self._synced_items = max(self._synced_items, covered.items)

    def settle(self, covered: Covered) -> None:
        """The writer takes it in: the backlog forgets what is durable."""
        if covered.epoch == self._sink.epoch:
            self._synced_epoch = covered.epoch
            self._backlog.note_durable(covered.stream, offset=covered.offset_bytes)

    # Figures

    @property
    def pending_items(self) -> int:
        """Accepted, not yet durable."""
        return self._pending.accepted_items - self._synced_items

    @property
    def receipt(self) -> Receipt:
        """What holds for who waited for the end."""
        return Receipt(self._synced_items, self._sink.end_bytes)

    def failure(self, cause: BaseException) -> RolloutError:
        """What one caller is told of a failure: an error of its own, with the cause chained."""
        if isinstance(cause, RolloutError):
            return fresh_copy(cause)
        error = RolloutWriteError(
            path=self._sink.path,
            operation="write" if self._backlog.waiting else "sync",
            cause=cause,
            pending_items=self.pending_items,
            offset_bytes=self._sink.end_bytes,
        )
        error.__cause__ = cause
        return error

    def health(
        self, state: WriterState, *, last_error: BaseException | None, retries: int, reopens: int
    ) -> WriterHealth:
        """A snapshot; from any thread."""
        pending, synced = self._pending, self._synced_items
        return WriterHealth(
            state=state,
            pending_items=max(0, pending.accepted_items - synced),
            pending_bytes=max(0, pending.accepted_bytes - pending.durable_bytes) + pending.blob_bytes,
            flushed_items=max(self._backlog.flushed_items, synced),
            synced_items=synced,
            last_error=last_error,
            retries=retries,
            reopens=reopens,
            redactions=pending.redactions,
        )
