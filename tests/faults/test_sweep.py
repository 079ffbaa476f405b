"""Single faults, short writes and kills at single calls: the contract of docs/faults.md holds in each run.

A seeded sample; all of them: `python -m tests.faults sweep`.
"""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Iterator

import pytest

from tests.faults.runner import Runner
from tests.faults.shim import FOREVER, Action, Fault, decode_plan
from tests.faults.store_workloads import STORE_WORKLOADS
from tests.faults.sweep import Job, judge, list_faults, sample_pairs

SAMPLE, STORE_SAMPLE = 30, 25
SEED = 20261129


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    with Runner() as made:
        yield made


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as made:
        yield made


def keep_contract(jobs: list[Job], runner: Runner, loop: asyncio.Runner) -> None:
    failures = []
    for job in jobs:
        _, failure = judge(job, runner, loop)
        if failure is not None:
            failures.append(f"{job.command}\n{failure}")
    assert not failures, "\n\n".join(failures[:5])


@pytest.mark.guarantee("G1")
@pytest.mark.guarantee("G2")
@pytest.mark.case("B17")
@pytest.mark.parametrize("workload", ["three", "torn", "unfinished", "unlinked", "shortened", "replayed"])
def test_single_faults_keep_the_contract(workload: str, runner: Runner, loop: asyncio.Runner) -> None:
    """Whatever one call does, nothing acknowledged is lost, doubled or merged; who hears nothing has all."""
    jobs = list_faults(workload, runner)
    keep_contract(random.Random(SEED).sample(jobs, SAMPLE), runner, loop)


@pytest.mark.guarantee("G1")
@pytest.mark.guarantee("G2")
@pytest.mark.parametrize("workload", STORE_WORKLOADS)
def test_single_faults_leave_every_thread_of_a_store_whole(
    workload: str, runner: Runner, loop: asyncio.Runner
) -> None:
    """Recording with turns and calls, forking, archiving, compressing, deleting, erasing: what was returned
    is done and on stable storage, what failed left each thread as it was."""
    jobs = list_faults(workload, runner)
    keep_contract(random.Random(SEED).sample(jobs, STORE_SAMPLE), runner, loop)


@pytest.mark.guarantee("G1")
def test_pairs_of_faults_keep_the_contract(runner: Runner, loop: asyncio.Runner) -> None:
    """Two faults in one run are no worse."""
    jobs = list_faults("five", runner)
    keep_contract(sample_pairs(jobs, SAMPLE, SEED), runner, loop)


@pytest.mark.guarantee("G3")
def test_failed_syncs_are_never_forgotten(runner: Runner, loop: asyncio.Runner) -> None:
    """However a sync fails, and though its recorder is given up after that: the next sync covers all."""
    keep_contract(list_faults("abandoned", runner)[:80], runner, loop)


@pytest.mark.guarantee("G2")
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_slow_sync_covers_only_what_came_before_it(nth: int, runner: Runner, loop: asyncio.Runner) -> None:
    """Items come while a sync is under way; it ends well or badly, or their own write does."""
    slow = Fault("fdatasync", nth, Action.DELAY, 25)
    others = (
        Fault("fdatasync", nth + 1, Action.ERRNO, errno.EIO, 2),
        Fault("write", nth + 2, Action.ERRNO, errno.ENOSPC, 3),
        Fault("write", nth + 2, Action.SHORT, -1, FOREVER),
        Fault("write", nth + 2, Action.KILL_AFTER),
    )
    keep_contract([Job("overlapping", (slow, other)) for other in others], runner, loop)


@pytest.mark.case("B14")
@pytest.mark.parametrize("call", ["write", "fdatasync", "open", "ftruncate"])
def test_no_space_three_times_then_space_loses_nothing(
    call: str, runner: Runner, loop: asyncio.Runner
) -> None:
    """Barriers raise meanwhile; afterwards everything is there once."""
    keep_contract(
        [Job("five", (Fault(call, nth, Action.ERRNO, errno.ENOSPC, 3),)) for nth in (1, 2, 3)], runner, loop
    )


@pytest.mark.case("B131")
@pytest.mark.parametrize("size", [1, -1, -2])
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_write_cut_short_by_a_full_disk_fuses_no_lines(
    nth: int, size: int, runner: Runner, loop: asyncio.Runner
) -> None:
    """Half a line, then no space for a while, for ever, or the end of the process: no line is glued to it."""
    short = Fault("write", nth, Action.SHORT, size)
    after = [Fault("write", nth + 1, Action.ERRNO, errno.ENOSPC, count) for count in (1, 3, FOREVER)]
    jobs = [Job("three", (short, each)) for each in (*after, Fault("write", nth + 1, Action.KILL_BEFORE))]
    keep_contract(jobs, runner, loop)


@pytest.mark.case("B18")
@pytest.mark.parametrize("action", [Action.KILL_BEFORE, Action.KILL_AFTER])
def test_kill_at_any_call_of_the_first_prompt_keeps_what_was_acknowledged(
    action: Action, runner: Runner, loop: asyncio.Runner
) -> None:
    """The process dies before or after each single call, from the first folder to the last sync."""
    plans = {job.plan for job in list_faults("one", runner) if job.plan and job.plan[0].action is action}
    keep_contract([Job("one", plan) for plan in sorted(plans, key=str)], runner, loop)


PAST_FAILURES = {
    "a reference was made at the second try, though the first had failed to sync what it rests on": (
        "store_forked",
        "fdatasync,2,1,errno,5",
    ),
    "a torn tail was cut and noted as a gap of another program": ("torn", ""),
    "and so it was when the disk failed right after the cut": ("torn", "fstat,9,0,errno,5"),
    "a folder was made, reported as failed, and its parent never synced": ("one", "mkdir,2,1,after,5"),
    "an error of fstat or flock at open came out as a bare OSError": ("three", "fstat,14,3,errno,5"),
    "a replay was tried again after a failed fsync, and believed the next one": (
        "replayed",
        "fdatasync,3,1,errno,5",
    ),
    "an error of fstat came out of a repair as a bare OSError": ("replayed", "fstat,10,1,errno,5"),
    "the newline that a file lacked could not be replayed": ("unfinished", "write,1,0,errno,28"),
    "the time to close ended during a healing, which went on with closed descriptors": (
        "unlinked",
        "link,1,9,errno,5;fdatasync,11,1,delay,300;rename,99,0,errno,5",
    ),
    "and a healing that hangs for longer than anybody waits": (
        "unlinked",
        "link,1,9,errno,5;fdatasync,11,1,delay,1500;rename,99,0,errno,5",
    ),
    "the name of a new home was never synced: the lock had made it": ("store_recorded", ""),
    "a folder that was made and could not be synced was taken for synced": (
        "store_kept",
        "open,4,1,errno,28",
    ),
    "a fork was made, could not be opened, and stayed": ("store_forked", "fstat,34,0,errno,5"),
    "a fork that failed could not be told from one that was made": ("store_forked", "lstat,43,0,errno,5"),
    "a fork stayed because its temporary name could not be removed": ("store_forked", "unlink,2,0,errno,28"),
    "an error of closing what was read came out as a bare OSError": ("store_forked", "close,13,0,errno,5"),
    "an error of flock came out of a compression as a bare OSError": ("store_kept", "flock,41,1,errno,5"),
    "an error of lstat, open or close came out of an erasure as a bare OSError": (
        "store_erased",
        "close,13,0,errno,5",
    ),
    "a second plan of an erasure that the disk refused was never finished": (
        "store_erased",
        "pwrite,2,0,errno,28",
    ),
    "an erasure was told as done that only the cache had": ("store_erased", "fsync,7,0,errno,28"),
    "a lock that was refused once made leases of it, which its own empty file kept out": (
        "store_erased",
        "flock,26,1,errno,37",
    ),
    "a list left out what it could not look at, without a word": ("store_kept", "lstat,25,0,errno,5"),
}


@pytest.mark.parametrize("what", PAST_FAILURES)
def test_past_failure_does_not_come_back(what: str, runner: Runner, loop: asyncio.Runner) -> None:
    """Each run that once failed is made again, for good."""
    workload, plan = PAST_FAILURES[what]
    keep_contract([Job(workload, decode_plan(plan))], runner, loop)
