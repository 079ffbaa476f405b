"""Several looks at names that change meanwhile.

Invariant: what stands there all the time, under whatever name, is found. A look may miss a file that is
archived, expanded or the like while names are read; what only an earlier look saw is told apart, to be looked
for where the same rollout may stand by now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from rollout.paths import ARCHIVED_FOLDER, RolloutName

__all__ = ["LOOKS_MAX", "only_earlier", "places_of"]

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


def places_of(folder: str, name: str) -> Iterator[tuple[str, str]]:
    """Where a rollout that was seen in a folder of a home (from the home on) may stand: there, compressed or
    expanded, in the archive or out of it. Each with its name there.
    """
    other = name.removesuffix(".zst") if name.endswith(".zst") else f"{name}.zst"
    created = RolloutName.parse(name)
    elsewhere = ARCHIVED_FOLDER if folder != ARCHIVED_FOLDER else None
    if elsewhere is None and created.created is not None:
        elsewhere = str(created.folder)
    for each in (folder, elsewhere):
        if each is not None:
            yield each, name
            yield each, other
