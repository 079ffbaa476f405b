"""Short forms of thread ids: their ends, because ids made on one day begin alike.

Invariant: among the ids that were given, each short form names its thread and no other, as `Home.find`
looks for it: the beginnings of ids first, then their ends.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import log

from thread_store.home import FRAGMENT_MIN

__all__ = ["ShortIds"]

_ID_CHARACTERS = 36


class ShortIds:
    """All as long as each other. Ids that were not among the given ones stay whole."""

    def __init__(self, thread_ids: Iterable[str]) -> None:
        self._known = set(thread_ids)
        self._characters = _fewest_characters(self._known)

    def __call__(self, thread_id: str) -> str:
        return thread_id[-self._characters :] if thread_id in self._known else thread_id


def _fewest_characters(thread_ids: set[str]) -> int:
    # Of so many ids some end alike in fewer characters, nearly always.
    likely = int(2 * log(len(thread_ids) or 1, 16)) - 1
    for count in range(max(FRAGMENT_MIN, likely), _ID_CHARACTERS):
        ends = {each[-count:] for each in thread_ids}
        if len(ends) == len(thread_ids) and ends.isdisjoint(each[:count] for each in thread_ids):
            return count
    return _ID_CHARACTERS
