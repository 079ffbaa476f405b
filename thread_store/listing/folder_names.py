"""The names in one folder, and what may remember them.

Invariant: names are kept only with the state of their folder, which tells whether they are right still.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import NamedTuple, Protocol

from thread_store.listing.regular_names import KEY, tail_of

__all__ = ["FolderCache", "FolderNames", "FolderState"]


class FolderState(NamedTuple):
    """What tells that no name in a folder has changed."""

    device: int
    inode: int
    mtime_ns: int


class FolderNames:
    """What one folder holds: folders, regular names (newest first), and other names of rollouts.

    `newest`, `oldest`: the first and the last regular name as keys; empty where there is none. `load` and
    `load_tails` give what isn't at hand.
    """

    __slots__ = ("_load", "_load_tails", "_regular", "folders", "newest", "odd", "oldest")

    def __init__(
        self,
        folders: list[str],
        odd: list[str],
        *,
        regular: list[str] | None = None,
        newest: str = "",
        oldest: str = "",
        load: Callable[[], list[str]] | None = None,
        load_tails: Callable[[], array[int] | None] | None = None,
    ) -> None:
        self.folders, self.odd = folders, odd
        self.newest, self.oldest = newest, oldest
        self._regular, self._load, self._load_tails = regular, load, load_tails
        if regular:
            self.newest, self.oldest = regular[0][KEY], regular[-1][KEY]

    @property
    def regular(self) -> list[str]:
        """The regular names, newest first."""
        if self._regular is None:
            self._regular = self._load() if self._load is not None else []
        return self._regular

    @property
    def tails(self) -> array[int]:
        """The ends of the ids of the regular names."""
        known = self._load_tails() if self._load_tails is not None else None
        return array("Q", map(tail_of, self.regular)) if known is None else known


class FolderCache(Protocol):
    """Remembers the names in folders. It may forget any of them at any time."""

    def find_folder(
        self, folder: str, state: FolderState, relist: Callable[[], list[str]]
    ) -> FolderNames | None: ...

    def keep_folder(self, folder: str, state: FolderState, names: FolderNames) -> None: ...

    def find_several(self, states: int) -> set[int] | None: ...

    def keep_several(self, states: int, several: set[int]) -> None: ...
