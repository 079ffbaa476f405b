"""The table of writer states: what may follow what."""

from __future__ import annotations

import itertools

import pytest

from rollout.state import WriterState, move

S = WriterState
ALLOWED = {
    (S.DEFERRED, S.OPEN),
    (S.DEFERRED, S.RECOVERING),
    (S.DEFERRED, S.FENCED),
    (S.DEFERRED, S.CLOSED),
    (S.OPEN, S.RECOVERING),
    (S.OPEN, S.FENCED),
    (S.OPEN, S.CLOSED),
    (S.RECOVERING, S.OPEN),
    (S.RECOVERING, S.FENCED),
    (S.RECOVERING, S.CLOSED),
    (S.FENCED, S.CLOSED),
}


@pytest.mark.parametrize(("current", "target"), list(itertools.product(S, S)))
def test_move_is_possible_only_as_the_table_says(current: S, target: S) -> None:
    """Staying is always possible, the listed moves are, and no other one is."""
    if current is target or (current, target) in ALLOWED:
        assert move(current, target) is target
    else:
        with pytest.raises(ValueError, match=f"from {current} to {target}"):
            move(current, target)


def test_closed_and_fenced_writer_never_writes_again() -> None:
    """From neither state does any way lead back to one that writes."""
    reached, border = set(), {S.FENCED, S.CLOSED}
    while border:
        reached |= border
        border = {target for current, target in ALLOWED if current in border} - reached
    assert not reached & {S.DEFERRED, S.OPEN, S.RECOVERING}


def test_states_are_told_by_their_names() -> None:
    """Health shows the words of the documentation."""
    assert [str(state) for state in S] == ["deferred", "open", "recovering", "fenced", "closed"]
