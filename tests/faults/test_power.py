"""Power cuts: on every state that one may leave the product starts again, with all that was synced.

A sample; more of them: `python -m tests.faults power --states 1000`.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterator

import pytest

from tests.faults.disk_model import Loss
from tests.faults.power import PowerReport, cut_power
from tests.faults.runner import Runner
from tests.faults.shim import FOREVER, Action, Fault
from tests.faults.store_workloads import STORE_WORKLOADS
from tests.faults.sweep import Job

SEED = 20261129


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    with Runner() as made:
        yield made


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as made:
        yield made


def cut(job: Job, states: int, runner: Runner, loop: asyncio.Runner) -> PowerReport:
    report = PowerReport()
    cut_power(job, runner, loop, states=states, seed=SEED, report=report)
    assert not report.failures, "\n\n".join(f"{command}\n{what}" for command, what in report.failures[:3])
    return report


@pytest.mark.guarantee("G2")
@pytest.mark.parametrize(
    "workload", ["page", "batch", "large", "overlapping", "torn", "unlinked", "abandoned", "replayed"]
)
def test_power_cut_leaves_what_was_synced(workload: str, runner: Runner, loop: asyncio.Runner) -> None:
    """Synced items are there once, whole and in order; the others are, or are not, or are a torn tail."""
    report = cut(Job(workload, ()), 100, runner, loop)
    assert report.distinct >= 40, f"only {report.distinct} states: {report.states}"


@pytest.mark.guarantee("G2")
@pytest.mark.parametrize("workload", STORE_WORKLOADS)
def test_power_cut_leaves_a_store_as_it_said(workload: str, runner: Runner, loop: asyncio.Runner) -> None:
    """Forks, archived, compressed, deleted and erased threads, whatever names and journals came out."""
    report = cut(Job(workload, ()), 250, runner, loop)
    assert report.distinct == 250
    assert report.states[Loss.NAMES] > 0


@pytest.mark.guarantee("G3")
@pytest.mark.parametrize("workload", ["store_forked", "store_kept", "store_erased"])
def test_power_cut_after_a_failed_sync_of_a_store_leaves_what_was_returned(
    workload: str, runner: Runner, loop: asyncio.Runner
) -> None:
    """The page cache looks right; what was told as done must be on the disk all the same."""
    for call in ("fdatasync", "fsync"):
        cut(Job(workload, (Fault(call, 3, Action.ERRNO, errno.EIO, 1),)), 60, runner, loop)


@pytest.mark.guarantee("G3")
@pytest.mark.parametrize("workload", ["five", "abandoned"])
@pytest.mark.parametrize("count", [1, 3, FOREVER])
def test_power_cut_after_failed_syncs_leaves_what_a_later_one_covered(
    workload: str, count: int, runner: Runner, loop: asyncio.Runner
) -> None:
    """A sync that failed may have lost its pages; what a later one acknowledged is on the disk."""
    cut(Job(workload, (Fault("fdatasync", 2, Action.ERRNO, errno.EIO, count),)), 60, runner, loop)


@pytest.mark.guarantee("G1")
@pytest.mark.parametrize("size", [1, -1])
def test_power_cut_after_a_full_disk_leaves_what_was_set_aside(
    size: int, runner: Runner, loop: asyncio.Runner
) -> None:
    """The close named a file of unwritten items: it survives, and with the rollout it gives everything."""
    short = Fault("write", 3, Action.SHORT, size)
    cut(Job("five", (short, Fault("write", 4, Action.ERRNO, errno.ENOSPC, 40))), 60, runner, loop)
