"""Fork points as values."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from protocol.errors import ForkPointInvalid
from thread_store.chain.fork_point import ForkPoint


@pytest.mark.case("B72")
@pytest.mark.parametrize(
    "make",
    [
        lambda: ForkPoint.turn(-1),
        lambda: ForkPoint.before_turn(0),
        lambda: ForkPoint.before_offset(-1),
        lambda: ForkPoint.before_ordinal(-1),
        lambda: ForkPoint.at_checkpoint(0),
    ],
)
def test_point_that_no_thread_can_have_is_refused(make: Callable[[], ForkPoint]) -> None:
    """It fails where it is made, with the class that unknown points have too."""
    with pytest.raises(ForkPointInvalid):
        make()


def test_points_are_values_and_name_themselves() -> None:
    """Equal points are equal, and print as they are written."""
    assert ForkPoint.turn(2) == ForkPoint.turn(2) != ForkPoint.before_turn(2)
    assert str(ForkPoint.end()) == "end()"
    assert str(ForkPoint.turn(2)) == "turn(2)"
    assert str(ForkPoint.at_checkpoint()) == "at_checkpoint(-1)"
    assert str(ForkPoint.before_offset(9, rollout_id="r")) == "before_offset(9 of r)"
