"""The soak, for a minute, and the proof that it can fail. More: `python -m tests.faults soak`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.faults.proof import prove_with
from tests.faults.soak import Plan, soak
from tests.faults.soak_check import check_growth
from tests.faults.soak_log import Ledger

SECONDS = 60.0
SEED = 20261130
_MB = 1 << 20


@pytest.mark.guarantee("G1")
@pytest.mark.guarantee("G2")
@pytest.mark.guarantee("G5")
def test_many_threads_for_a_minute_lose_nothing() -> None:
    """200 threads, processes killed, a disk that fills up, faults below Python, forks and reverts by others:
    everything that was acknowledged is there once, in order; no lock is left, and nothing grows."""
    report = soak(Plan(seconds=SECONDS, seed=SEED))
    assert report.failures == []
    assert report.kills > 5
    assert report.fills > 0
    assert report.acknowledged > 2000


@pytest.mark.parametrize("mutant", ["flush_answered_at_once", "failure_not_told"])
def test_planted_bug_is_found(mutant: str) -> None:
    """A flush that returns before anything is written, or after it failed."""
    verdict = prove_with(mutant, "soak")
    assert verdict.caught, verdict.said


def ledger_of(*entries: tuple[str, int]) -> Ledger:
    """What one thread's producer was told, in this order."""
    ledger = Ledger()
    for kind, count in entries:
        ledger.take({"kind": kind, "thread": 0, "count": count})
    return ledger


@pytest.mark.parametrize(
    ("entries", "safe", "fails"),
    [
        ([("found", 0), ("accept", 5), ("flush", 3)], 3, False),
        ([("found", 0), ("accept", 5), ("sync", 3), ("found", 3)], 3, False),
        ([("found", 0), ("accept", 5), ("sync", 4), ("found", 3)], 3, True),
        ([("found", 0), ("accept", 5), ("close", 5), ("found", 4)], 4, True),
        ([("found", 0), ("accept", 5), ("kept", 5), ("found", 5)], 5, False),
        ([("found", 0), ("accept", 5), ("kept", 5), ("found", 4)], 4, True),
        ([("found", 0), ("accept", 5), ("carried", 5), ("found", 4)], 4, False),
        ([("found", 2), ("accept", 3), ("close", 3), ("accept", 4), ("found", 3)], 3, False),
    ],
)
def test_ledger_knows_what_must_be_there(entries: list[tuple[str, int]], safe: int, fails: bool) -> None:
    """What was acknowledged, and after a close everything."""
    ledger = ledger_of(*entries)
    assert bool(ledger.failures) is fails
    assert ledger.threads[0].safe == safe


def test_entry_that_was_cut_short_counts_as_not_told(tmp_path: Path) -> None:
    """Its process died while it wrote it."""
    whole = json.dumps({"kind": "flush", "thread": 3, "count": 2}) + "\n"
    (tmp_path / "0.log").write_text(whole + whole[:20])
    ledger = Ledger.read(tmp_path)
    assert ledger.threads[3].safe == 2
    assert ledger.counts["flush"] == 1


@pytest.mark.parametrize(
    ("last", "what"),
    [
        ((100 * _MB, 50, 20, 9000), []),
        ((140 * _MB, 50, 20, 9000), ["resident memory"]),
        ((140 * _MB, 50, 20, 40_000), []),
        ((100 * _MB, 90, 20, 9000), ["descriptors"]),
        ((100 * _MB, 50, 40, 9000), ["threads"]),
    ],
)
def test_growth_is_seen(tmp_path: Path, last: tuple[int, int, int, int], what: list[str]) -> None:
    """From the second fifth to the last one, with what was recorded meanwhile; before it warms up."""
    samples = tmp_path / "samples"
    rows = [(20 * _MB, 10, 5, 0)] * 10 + [(100 * _MB, 50, 20, 5000)] * 30 + [last] * 10
    samples.write_text("".join(" ".join(map(str, row)) + "\n" for row in rows))
    failures: list[str] = []
    check_growth(samples, failures)
    assert [failure.split(" grew")[0] for failure in failures] == what
