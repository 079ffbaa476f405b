"""What a revert would take out is counted before it is done, and nothing is done."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.errors import ForkPointInvalid
from tests.thread_store.histories import turns, uuid, write_thread
from thread_store.chain.fork_point import ForkPoint
from thread_store.chain.lineage import Lineage
from thread_store.forks.revert_plan import plan_revert
from thread_store.home import Home

THREAD = uuid(0x1A1)


@pytest.mark.parametrize(
    ("point", "ended_turns", "records"),
    [
        (ForkPoint.end(), 0, 0),
        (ForkPoint.turn(2), 1, 10),
        (ForkPoint.turn(0), 3, 30),
        (ForkPoint.before_ordinal(5), 2, 26),
    ],
)
def test_plan_counts_what_stands_behind_the_point(
    home: Path, point: ForkPoint, ended_turns: int, records: int
) -> None:
    """A turn that is cut within is none that goes; records of all types count."""
    path = write_thread(Home(home), THREAD, turns(3))
    before = path.read_bytes()
    plan = plan_revert(Lineage.resolve(path, Home(home)), point)
    assert (plan.turns, plan.records) == (ended_turns, records)
    assert path.read_bytes() == before


def test_point_that_is_none_has_no_plan(home: Path) -> None:
    """It is refused as the revert itself would be."""
    path = write_thread(Home(home), THREAD, turns(1))
    with pytest.raises(ForkPointInvalid):
        plan_revert(Lineage.resolve(path, Home(home)), ForkPoint.before_ordinal(6))
