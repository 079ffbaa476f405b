"""SIGKILL at random moments: real processes, real files, no shim. More: `python -m tests.faults kill`."""

from __future__ import annotations

import pytest

from tests.faults.kill import KillReport, kill_many
from tests.faults.store_kill import StoreKillReport, kill_stores

RUNS, STORE_RUNS = 24, 40
SEED = 20261129


@pytest.mark.case("B18")
@pytest.mark.guarantee("G2")
def test_killed_processes_lose_nothing_that_they_acknowledged() -> None:
    """0 acknowledged items lost or doubled, 0 unreadable files, the order of each producer kept."""
    report = KillReport()
    for report in kill_many(RUNS, seed=SEED, parallel=4):
        assert not report.failures, report.failures
    assert report.runs >= RUNS * 3 // 4
    assert report.acknowledged > 100


@pytest.mark.case("B18")
@pytest.mark.guarantee("G2")
def test_killed_users_of_a_store_leave_every_thread_whole() -> None:
    """Several threads were open; others were forked, archived, compressed, deleted, erased in, pruned."""
    report = StoreKillReport()
    for report in kill_stores(STORE_RUNS, seed=SEED, parallel=2):
        assert not report.failures, report.failures
    assert report.runs == STORE_RUNS
    assert report.threads > 100
    assert len(report.under_way) > 3
