"""Several looks at names that change meanwhile.

Invariant: what stands there all the time, under whatever name, is found. A look may miss a file that is
archived, expanded or the like while names are read; what only an earlier look saw is told apart, to be looked
for by whoever knows where it may stand by now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

__all__ = ["LOOKS_MAX", "only_earlier"]

LOOKS_MAX = 3
"""So often is looked at what changes meanwhile."""

_T = TypeVar("_T")


def only_earlier(looks: Sequence[Iterable[_T]], name_of: Callable[[_T], str]) -> list[_T]:
    """What the last look did not see and an earlier one did, as the latest of these saw it. `name_of`: the
    file's own name; whether it is compressed makes no difference.
    """
    known: set[str] = set()
    missed: list[_T] = []
    for number, look in enumerate(reversed(looks)):
        new = {name_of(each).removesuffix(".zst"): each for each in look}
        if number:
            missed += (each for name, each in new.items() if name not in known)
        known |= new.keys()
    return missed
