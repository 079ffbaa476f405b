"""SIGKILL at random moments: real processes, real files, no shim. More: `python -m tests.faults kill`."""

from __future__ import annotations

import pytest

from tests.faults.kill import KillReport, kill_many

RUNS = 24
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
