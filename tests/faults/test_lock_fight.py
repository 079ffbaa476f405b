"""A short fight for one lock. More: `python -m tests.faults locks`."""

from __future__ import annotations

import pytest

from tests.faults.lock_fight import KINDS, TAKER, FightReport, Hold, check_history, fight


@pytest.mark.case("B29")
@pytest.mark.case("B32")
@pytest.mark.guarantee("G4")
@pytest.mark.parametrize("kind", KINDS)
def test_killed_stopped_and_robbed_processes_never_hold_a_lock_together(kind: str) -> None:
    """Never two holders, each refusal names one, a dead one's lock is free at once, no file stays."""
    acquisitions = refusals = killed_holding = 0
    for _ in range(8):  # a machine that does other things gets less done in one
        report = fight(seconds=4, processes=20, kind=kind)
        assert not report.failures, report.failures
        acquisitions += report.acquisitions
        refusals += report.refusals
        killed_holding += report.killed_holding
        if acquisitions > 20 and refusals > 100 and killed_holding > 3:
            return
    assert (acquisitions > 20, refusals > 100, killed_holding > 3) == (True, True, True)


@pytest.mark.parametrize(
    ("before", "after", "failures"),
    [
        (Hold("a", 10, 20, "1"), Hold("b", 21, 30, "2"), 0),
        (Hold("a", 10, 20, "1"), Hold("b", 20, 30, "2"), 1),
        (Hold("a", 10, 90, "1"), Hold("b", 20, 30, "2"), 1),
        (Hold("a", 10, 20, "1", fenced=True), Hold("b", 21, 30, TAKER), 0),
        (Hold("a", 10, 20, "1", fenced=True), Hold("b", 21, 30, "2"), 1),
    ],
)
def test_history_shows_two_holders_and_who_took_over_without_force(
    before: Hold, after: Hold, failures: int
) -> None:
    """In whatever order the logs are read; a third one behind a long hold is still seen to overlap it."""
    for logs in ([[before], [after]], [[after], [before]]):
        report = FightReport()
        check_history(logs, report)
        assert len(report.failures) == failures
    report = FightReport()
    check_history([[Hold("a", 10, 90, "1")], [Hold("b", 20, 30, "2"), Hold("c", 40, 50, "2")]], report)
    assert len(report.failures) == 2
