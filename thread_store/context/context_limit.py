"""The newest part of a context, no larger than asked for, that parts no call from its result.

Invariant: what is left is a suffix of the items, and each pair is in it whole or not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from thread_store.context.model_item import ModelItem
from thread_store.context.model_view import pair_calls

__all__ = ["limit_context"]


def limit_context(
    items: Sequence[ModelItem], *, turns: int | None = None, bytes_max: int | None = None
) -> list[ModelItem]:
    """The newest items, at most so many turns and so many bytes of payload.

    A turn begins with what somebody typed. With both limits the stricter one counts. If not even the
    last item (with its pair) fits, nothing is left.

    Raises:
        ValueError: a limit is negative.
    """
    if (turns is not None and turns < 0) or (bytes_max is not None and bytes_max < 0):
        raise ValueError("a limit is not negative")
    first = max(_first_of_turns(items, turns), _first_within(items, bytes_max))
    whole = _whole_from(items)
    return list(items[next(index for index in range(first, len(items) + 1) if whole[index]) :])


def _first_of_turns(items: Sequence[ModelItem], turns: int | None) -> int:
    if turns is None:
        return 0
    if turns == 0:
        return len(items)
    starts = [index for index, item in enumerate(items) if item.begins_turn]
    return starts[-turns] if turns <= len(starts) else 0


def _first_within(items: Sequence[ModelItem], bytes_max: int | None) -> int:
    if bytes_max is None:
        return 0
    sizes = accumulate(item.size_bytes for item in reversed(items))
    return len(items) - sum(1 for size in sizes if size <= bytes_max)


def _whole_from(items: Sequence[ModelItem]) -> list[bool]:
    """Of each index: whether no pair has its call before it and its result behind it."""
    change = [0] * (len(items) + 1)
    for pair in pair_calls(items):
        if pair.call is not None and pair.result is not None:
            change[pair.call + 1] += 1
            change[pair.result + 1] -= 1
    return [depth == 0 for depth in accumulate(change)]
