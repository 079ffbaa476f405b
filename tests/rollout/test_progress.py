"""Progress: what counts as written, as durable and as room, and what is told of it."""

from __future__ import annotations

import pytest

from protocol.errors import RolloutMoved, RolloutWriteError
from rollout.barrier import Goal, Receipt
from rollout.config import Durability
from rollout.state import WriterState
from tests.rollout.faulty import ENOSPC, errors
from tests.rollout.writer_parts import PATH, Parts, barrier

SYNCED = {"response_item": Durability.SYNC}


def test_barrier_waits_for_what_was_accepted_before_it() -> None:
    """Its target is the end of the stream at its call; what comes later doesn't move it."""
    parts = Parts()
    parts.put("a", "b")
    flush = parts.ask(Goal.FLUSH)
    parts.put("c")
    assert (flush.items, flush.target < parts.pending.accepted_bytes) == (2, True)


def test_flush_is_met_by_writing_alone() -> None:
    """The OS has it: that is all a flush says."""
    parts = Parts()
    parts.put("a")
    flush, sync = parts.ask(Goal.FLUSH), parts.ask(Goal.SYNC)
    assert not parts.progress.is_met(flush)
    parts.write()
    assert parts.progress.is_met(flush)
    assert not parts.progress.is_met(sync)
    parts.sync()
    assert parts.progress.is_met(sync)


@pytest.mark.guarantee("G3")
def test_sync_is_not_met_by_one_that_a_healing_overtook() -> None:
    """It says nothing about what stands now, and another one is needed."""
    parts = Parts()
    parts.put("a")
    sync = parts.ask(Goal.SYNC)
    parts.write()
    job = parts.syncing.start()
    parts.heal()
    job()
    assert parts.syncing.finish()
    assert not parts.progress.is_met(sync)
    assert parts.progress.needs_sync
    assert parts.backlog.undurable_lines()
    parts.sync()
    assert parts.progress.is_met(sync)


@pytest.mark.guarantee("G3")
def test_healing_makes_a_sync_necessary_even_with_nothing_new() -> None:
    """The place was touched: what was durable before is durable again only after a sync."""
    parts = Parts()
    parts.put("a")
    parts.write()
    parts.sync()
    assert not parts.progress.needs_sync
    assert parts.progress.is_drained
    parts.heal()
    assert parts.progress.needs_sync
    assert not parts.progress.is_drained


def test_room_is_met_when_half_of_the_queue_is_free_and_more_than_before() -> None:
    """Neither for what was free at the call already, nor while more than half of it waits."""
    parts = Parts(pending_bytes_max=2000)
    parts.put("x" * 1000)
    room = parts.ask(Goal.ROOM)
    assert room.target == parts.pending.durable_bytes + 1
    parts.write()
    assert not parts.progress.is_met(room)
    job = parts.syncing.start()
    parts.put("y" * 10)
    parts.write()
    job()
    parts.syncing.finish()
    assert parts.progress.is_met(room)
    assert not parts.progress.is_met(parts.ask(Goal.ROOM))


def test_room_is_met_when_nothing_waits() -> None:
    """A fact larger than half of the queue must not wait for ever."""
    parts = Parts(pending_bytes_max=1000)
    parts.put("x" * 700)
    parts.write()
    parts.sync()
    assert parts.progress.is_met(parts.ask(Goal.ROOM))


def test_recorder_without_an_item_is_drained_before_there_is_a_file() -> None:
    """Nothing was accepted, so nothing must be made durable; one item changes that."""
    parts = Parts()
    assert parts.progress.is_drained
    assert not parts.progress.needs_sync
    parts.put("a")
    assert not parts.progress.is_drained


def test_record_of_durability_sync_is_wanted_until_it_is_durable() -> None:
    """It waits for a sync that nobody asked for."""
    parts = Parts(durability=SYNCED)
    assert not parts.progress.is_sync_wanted
    parts.put("a")
    assert parts.progress.is_sync_wanted
    parts.write()
    parts.sync()
    assert not parts.progress.is_sync_wanted


def test_figures_move_before_the_writer_takes_the_sync_in() -> None:
    """Whoever is answered by the sync's thread finds them moved; the backlog forgets later."""
    parts = Parts()
    parts.put("a", "b")
    parts.write()
    parts.syncing.start()()
    health = parts.progress.health(WriterState.OPEN, last_error=None, retries=0, reopens=0)
    assert (health.pending_items, health.pending_bytes, health.synced_items) == (0, 0, 2)
    assert parts.progress.receipt == Receipt(2, len(parts.sink.data))
    assert parts.backlog.undurable_lines()
    parts.syncing.finish()
    assert not parts.backlog.undurable_lines()


def test_failure_tells_what_waits_and_where() -> None:
    """Path, offset, number of items, the cause: writing while something waits, else syncing."""
    parts, cause = Parts(), errors(ENOSPC)
    parts.put("a")
    parts.write()
    parts.sync()
    end = len(parts.sink.data)
    parts.put("b", "c")
    parts.backlog.add(parts.pending.take())
    error = parts.progress.failure(cause)
    assert isinstance(error, RolloutWriteError)
    assert (error.path, error.offset_bytes, error.pending_items) == (PATH, end, 2)
    assert (error.operation, error.__cause__) == ("write", cause)
    parts.write()
    assert parts.progress.failure(cause).operation == "sync"


def test_failure_is_an_error_of_its_own_for_each_caller() -> None:
    """One of ours is copied with its cause: a traceback belongs to one raise."""
    parts = Parts()
    moved = RolloutMoved(path=PATH, moved_to="/b.jsonl")
    moved.__cause__ = ValueError("why")
    copies = [parts.progress.failure(moved) for _ in range(2)]
    assert all(type(copy) is RolloutMoved and copy.__cause__ is moved.__cause__ for copy in copies)
    assert len({id(moved), *map(id, copies)}) == 3


def test_barrier_for_the_end_is_met_as_a_sync_is() -> None:
    """Closing needs what a sync needs."""
    parts = Parts()
    parts.put("a")
    close = barrier(Goal.CLOSE)
    parts.progress.aim(close)
    parts.write()
    assert not parts.progress.is_met(close)
    parts.sync()
    assert parts.progress.is_met(close)
