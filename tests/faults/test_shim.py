"""The shim itself: what it logs is what happened, and what it is told to do happens."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Iterator

import pytest

from tests.faults.contract import check_run
from tests.faults.runner import Runner
from tests.faults.shim import FOREVER, Action, Fault, decode_plan, encode_plan
from tests.faults.sweep import count_calls, faults_for


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    with Runner() as made:
        yield made


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as made:
        yield made


def test_plan_reads_back_as_it_was_written() -> None:
    """What a failure prints repeats exactly that run."""
    plan = (Fault("write", 2, Action.SHORT, -1, FOREVER), Fault("fdatasync", 1, Action.ERRNO, errno.EIO, 3))
    assert decode_plan(encode_plan(plan)) == plan


def test_log_of_a_run_holds_what_the_recorder_did(runner: Runner) -> None:
    """Every call that a rollout cannot do without is seen: none goes past the shim."""
    outcome = runner.run("five")
    happened = {call.name for call in outcome.calls if call.happened}
    assert {"mkdir", "open", "write", "fdatasync", "fsync", "pwrite", "lstat", "fstat", "flock"} <= happened
    written = b"".join(
        call.data for call in outcome.calls if call.name == "write" and call.path == str(outcome.rollout)
    )
    assert written == outcome.rollout.read_bytes()


def test_log_of_a_store_holds_what_forks_locks_and_upkeep_do(runner: Runner) -> None:
    """Copies inside the kernel with their bytes, locks, renames from one folder into another."""
    forked, kept = runner.run("store_forked"), runner.run("store_kept")
    happened = {call.name for outcome in (forked, kept) for call in outcome.calls if call.happened}
    assert {"copy_file_range", "flock", "rename", "link", "unlink", "mkdir", "close", "read"} <= happened
    copies = [call for call in forked.calls if call.name == "copy_file_range"]
    assert all(len(call.data) == call.result for call in copies)
    folders = [
        (os.path.dirname(call.path), os.path.dirname(call.second_path))
        for call in kept.calls
        if call.name == "rename"
    ]
    assert any(old != new for old, new in folders)


def test_close_that_fails_is_done_all_the_same(runner: Runner) -> None:
    """As on Linux: the descriptor is gone, whatever was reported."""
    outcome = runner.run("one", [Fault("close", 1, Action.ERRNO, errno.EIO, FOREVER)])
    closed = [call for call in outcome.calls if call.name == "close"]
    assert closed
    assert all((call.result, call.errno) == (0, errno.EIO) for call in closed)


@pytest.mark.parametrize("count", [1, 3, FOREVER])
def test_fault_strikes_as_often_as_it_was_told(runner: Runner, count: int) -> None:
    """Once, a few times, or for ever from the n-th call on."""
    outcome = runner.run("three", [Fault("write", 2, Action.ERRNO, errno.ENOSPC, count)])
    calls = [call for call in outcome.calls if call.name == "write" and call.nth]
    struck = [call.nth for call in calls if call.injected]
    last = 1 + count if count != FOREVER else calls[-1].nth
    assert struck == list(range(2, last + 1))
    assert all(call.result == -1 and call.errno == errno.ENOSPC for call in calls if call.injected)


def test_short_write_really_writes_less(runner: Runner) -> None:
    """A short count is no lie: the rest is not in the file until it is written again."""
    outcome = runner.run("one", [Fault("write", 1, Action.SHORT, 7)])
    first, second, *_ = [call for call in outcome.calls if call.name == "write"]
    assert (first.result, len(first.data), second.offset) == (7, 7, 7)


@pytest.mark.parametrize(("action", "writes"), [(Action.KILL_BEFORE, 0), (Action.KILL_AFTER, 1)])
def test_killed_run_ends_at_its_call(runner: Runner, action: Action, writes: int) -> None:
    """SIGKILL strikes right before or right after the call, and the log is whole up to there."""
    outcome = runner.run("one", [Fault("write", 1, action)])
    assert outcome.killed
    assert len([call for call in outcome.calls if call.name == "write" and call.happened]) == writes
    assert outcome.rollout.exists()
    assert bool(outcome.rollout.read_bytes()) == bool(writes)


def test_faults_of_a_workload_cover_every_call(runner: Runner) -> None:
    """The sweep is exhaustive: for each call that changes something, each index is struck."""
    counts = count_calls(runner.run("three"))
    jobs = faults_for("three", counts, runner)
    struck = {(fault.call, fault.nth) for job in jobs for fault in job.plan[:1]}
    for call, count in counts.items():
        assert {(call, nth) for nth in range(1, count + 1)} <= struck
    assert len(jobs) > 250


def test_harmless_run_keeps_the_contract(runner: Runner, loop: asyncio.Runner) -> None:
    """Without any fault nothing is found wrong."""
    outcome = runner.run("overlapping")
    check_run(outcome, loop)
    assert not outcome.reached
