"""A limited context: the newest part, within its bounds, with every pair whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.thread_store.test_model_view import contexts, item, said
from thread_store.context.context_limit import limit_context
from thread_store.context.model_item import ModelItem
from thread_store.context.model_view import pair_calls

TURNS = [
    said("1"),
    item("reasoning"),
    said("2"),
    item("function_call", "a"),
    item("function_call_output", "a"),
    said("3"),
]


@pytest.mark.parametrize(("turns", "first"), [(0, 6), (1, 5), (2, 2), (3, 0), (9, 0), (None, 0)])
def test_limit_of_turns_keeps_the_newest_whole(turns: int | None, first: int) -> None:
    """From the message that begins the oldest of them on."""
    assert limit_context(TURNS, turns=turns) == TURNS[first:]


def test_limit_of_bytes_drops_a_pair_that_it_would_part() -> None:
    """If the result fits and its call doesn't, neither is left."""
    size = TURNS[5].size_bytes + TURNS[4].size_bytes
    assert limit_context(TURNS, bytes_max=size) == TURNS[5:]
    assert limit_context(TURNS, bytes_max=size + TURNS[3].size_bytes) == TURNS[3:]


def test_limit_that_nothing_fits_leaves_nothing() -> None:
    """A limit is never passed."""
    assert limit_context(TURNS, bytes_max=1) == []
    assert limit_context([], turns=1, bytes_max=1) == []


@pytest.mark.parametrize("limits", [{"turns": -1}, {"bytes_max": -1}])
def test_negative_limit_is_refused(limits: dict[str, int]) -> None:
    """It is a mistake of the caller."""
    with pytest.raises(ValueError, match="negative"):
        limit_context(TURNS, **limits)


@given(contexts, st.none() | st.integers(0, 4), st.none() | st.integers(0, 800))
def test_limited_context_is_a_suffix_that_parts_no_pair(
    items: list[ModelItem], turns: int | None, bytes_max: int | None
) -> None:
    """And no longer than both limits allow."""
    kept = limit_context(items, turns=turns, bytes_max=bytes_max)
    first = len(items) - len(kept)
    assert kept == items[first:]
    assert all(
        pair.call is None or pair.result is None or (pair.call < first) == (pair.result < first)
        for pair in pair_calls(items)
    )
    assert bytes_max is None or sum(each.size_bytes for each in kept) <= bytes_max
    assert turns is None or sum(each.begins_turn for each in kept) <= turns
