"""Syncing: when a sync is due, what it covers, and what its end means."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from protocol.errors import RolloutMoved, RolloutWriteError, WriterFenced
from rollout.barrier import Goal
from rollout.config import Durability
from rollout.sink import SinkDisturbed
from tests.rollout.faulty import EIO, errors
from tests.rollout.writer_parts import PATH, Parts

SYNCED = {"response_item": Durability.SYNC}
FENCED = WriterFenced(path=PATH, reason="taken over")


def written(**config: object) -> Parts:
    """One item was handed over, nothing was synced."""
    parts = Parts(**config)
    parts.put("a")
    parts.write()
    return parts


# When


def test_sync_is_not_due_while_nobody_waits_for_it() -> None:
    """Neither a flush nor a few bytes make one."""
    parts = written()
    parts.ask(Goal.FLUSH)
    assert not parts.syncing.is_due(closing=False)


DUE: dict[str, Callable[[Parts], object]] = {
    "a barrier": lambda parts: parts.ask(Goal.SYNC),
    "a caller without room": lambda parts: parts.ask(Goal.ROOM),
    "time": lambda parts: parts.syncing.time_is_over(),
}


@pytest.mark.parametrize("reason", DUE)
def test_sync_is_due_when_somebody_waits_or_the_time_is_over(reason: str) -> None:
    """Each reason alone is enough."""
    parts = written()
    DUE[reason](parts)
    assert parts.syncing.is_due(closing=False)


def test_sync_is_due_when_closing() -> None:
    """The end makes everything durable."""
    assert written().syncing.is_due(closing=True)


def test_sync_is_due_for_a_record_that_is_always_synced() -> None:
    """Its durability asks for it, nobody else does."""
    assert written(durability=SYNCED).syncing.is_due(closing=False)


@pytest.mark.parametrize(("missing", "due"), [(1, False), (0, True), (-1, True)])
def test_sync_is_due_when_enough_gathered(missing: int, due: bool) -> None:
    """At `sync_bytes`, not one byte before."""
    size = len(written().sink.data)
    assert written(sync_bytes=size + missing).syncing.is_due(closing=False) is due


def test_sync_is_not_due_while_one_runs() -> None:
    """Those who ask meanwhile share the next one."""
    parts = written()
    parts.ask(Goal.SYNC)
    job = parts.syncing.start()
    assert parts.syncing.under_way
    parts.put("b")
    parts.write()
    parts.ask(Goal.SYNC)
    assert not parts.syncing.is_due(closing=True)
    job()
    assert not parts.syncing.is_due(closing=True), "its end was not taken in yet"
    parts.syncing.finish()
    assert parts.syncing.is_due(closing=False)


def test_time_that_is_over_counts_for_one_sync() -> None:
    """It begins anew with each one."""
    parts = written()
    parts.syncing.time_is_over()
    parts.sync()
    parts.put("b")
    parts.write()
    assert not parts.syncing.is_due(closing=False)


# What


@pytest.mark.guarantee("G3")
def test_sync_answers_only_barriers_whose_items_were_written_before_it() -> None:
    """Later ones wait for the next."""
    parts = written()
    early = parts.ask(Goal.SYNC)
    parts.put("b")
    late = parts.ask(Goal.SYNC)
    parts.syncing.start()()
    assert early.receipt is not None
    assert late.receipt is None


def test_sync_that_cannot_begin_leaves_none_under_way() -> None:
    """No descriptor is left, say: the next try is a new one."""
    parts = written()
    parts.sink.faults["sync_job"] = [errors(EIO)]
    with pytest.raises(OSError, match="error"):
        parts.syncing.start()
    assert not parts.syncing.under_way
    parts.sync()
    assert parts.progress.is_drained


# Its end


def test_sync_that_runs_has_no_end_yet() -> None:
    """Nothing to take in, before it ran or without one."""
    parts = written()
    assert not parts.syncing.finish()
    parts.syncing.start()
    assert not parts.syncing.finish()
    assert parts.syncing.under_way


def test_success_mends_the_trouble_with_syncs() -> None:
    """What failed before is forgotten, and what it covered."""
    parts = written()
    parts.trouble.sync_failed(errors(EIO))
    parts.sync()
    assert not parts.trouble
    assert parts.progress.is_drained


@pytest.mark.guarantee("G3")
@pytest.mark.parametrize("error", [errors(EIO), RolloutMoved(path=PATH, moved_to=None)])
def test_failure_is_raised_and_makes_the_sink_write_again(error: OSError | RolloutWriteError) -> None:
    """Nothing of it is durable, and syncing counts as broken until the next success."""
    parts = written()
    sync = parts.ask(Goal.SYNC)
    parts.sink.faults["sync"] = [error]
    parts.syncing.start()()
    with pytest.raises(type(error)) as caught:
        parts.syncing.finish()
    assert caught.value is error
    assert parts.sink.told_of_failed_sync == 1
    assert parts.trouble.sync_broken
    assert not parts.trouble.blocked
    assert not parts.syncing.under_way
    assert not parts.progress.is_met(sync)


@pytest.mark.guarantee("G3")
@pytest.mark.parametrize("error", [SinkDisturbed("it was replaced"), FENCED])
def test_overtaken_sync_proves_nothing_and_breaks_nothing(error: Exception) -> None:
    """The next check of the writer meets the reason."""
    parts = written()
    sync = parts.ask(Goal.SYNC)
    parts.sink.faults["sync"] = [error]
    parts.syncing.start()()
    assert not parts.syncing.finish()
    assert not parts.syncing.under_way
    assert not parts.trouble
    assert parts.sink.told_of_failed_sync == 0
    assert not parts.progress.is_met(sync)


@pytest.mark.case("B22")
def test_bug_in_a_sync_is_raised_as_it_is() -> None:
    """It is no trouble with the disk, and the writer ends of it."""
    parts = written()
    parts.sink.faults["sync"] = [RuntimeError("planted")]
    parts.syncing.start()()
    with pytest.raises(RuntimeError, match="planted"):
        parts.syncing.finish()
    assert not parts.trouble


# Who is woken


def test_end_of_a_sync_wakes_nobody_whom_it_does_not_concern() -> None:
    """It answers its barriers itself: an idle writer sleeps on."""
    parts = written()
    job = parts.syncing.start()
    assert not parts.syncing.watch(closing=False)
    job()
    assert parts.woken == 0
    assert not parts.syncing.watch(closing=False)


@pytest.mark.parametrize("waiting", ["barrier", "trouble", "record", "close"])
def test_end_of_a_sync_wakes_the_writer_if_anything_depends_on_it(waiting: str) -> None:
    """Watched before the end, it is woken by that; after the end, it must not sleep at all."""
    for ended_before in (False, True):
        parts = written(durability=SYNCED if waiting == "record" else {})
        if waiting == "barrier":
            parts.ask(Goal.SYNC)
        if waiting == "trouble":
            parts.trouble.write_failed(errors(EIO))
        job = parts.syncing.start()
        if ended_before:
            job()
        assert parts.syncing.watch(closing=waiting == "close") is ended_before
        if not ended_before:
            job()
        assert parts.woken == (not ended_before)


def test_failed_sync_always_wakes_the_writer() -> None:
    """Whether it watched or not."""
    parts = written()
    parts.sink.faults["sync"] = [errors(EIO)]
    parts.syncing.start()()
    assert parts.woken == 1
