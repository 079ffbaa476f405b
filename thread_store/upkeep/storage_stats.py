"""Where the bytes of a home are: how many files of each kind, and how large.

Invariant: each regular file of the home is counted once, by where it lies and what it is called; none is
opened, and no link is followed. What can't be listed is told.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import Struct

from rollout.paths import ARCHIVED_FOLDER, SESSIONS_FOLDER, RolloutName
from thread_store.home import Home
from thread_store.upkeep.thread_files import parse_left_behind

__all__ = ["KINDS", "StorageKind", "StorageStats", "kind_of", "measure_storage"]

Progress = Callable[[int], None]
"""Called with the number of files that were counted."""

KINDS = {
    "live": "rollouts that are not archived",
    "live_compressed": "the same, compressed",
    "archived": "archived rollouts",
    "archived_compressed": "the same, compressed",
    "blobs": "texts and images kept apart",
    "kept": "torn tails and unwritten items",
    "titles": "titles, labels, prompt history",
    "derived": "snapshots and indexes, which may be deleted",
    "locks": "locks",
    "leftovers": "temporary files",
    "other": "what is none of this library's",
}
"""The kinds, each with what it is."""

_PROGRESS_FILES = 512
_TITLES = frozenset({"session_index.jsonl", "history.jsonl", "session_index.jsonl.lock"})


class StorageKind(Struct, kw_only=True):
    """The files of one kind. `bytes`: as they lie there; `disk_bytes`: in blocks that are taken."""

    kind: str
    files: int = 0
    bytes: int = 0
    disk_bytes: int = 0


class StorageStats(Struct, frozen=True, kw_only=True):
    """Of a home: its kinds in the order of `KINDS`, those without files too."""

    kinds: tuple[StorageKind, ...]
    threads: int
    archived_threads: int
    unlistable: tuple[str, ...] = ()
    """Folders that can't be looked into."""

    @property
    def bytes(self) -> int:
        """Of everything."""
        return sum(each.bytes for each in self.kinds)


def measure_storage(home: Home, progress: Progress | None = None) -> StorageStats:
    """Count a home. Each file costs one look at its status; nothing is read."""
    kinds = {name: StorageKind(kind=name) for name in KINDS}
    live, archived = set[str](), set[str]()
    unlistable: list[str] = []
    for count, (path, status) in enumerate(_files(home.path, unlistable)):
        name = kind_of(path)
        found = kinds[name]
        found.files += 1
        found.bytes += status.st_size
        found.disk_bytes += getattr(status, "st_blocks", 0) * 512
        if name.startswith(("live", "archived")):
            thread_id = RolloutName.parse(path[-1]).thread_id
            (live if name.startswith("live") else archived).add(thread_id)
        if progress is not None and count % _PROGRESS_FILES == 0:
            progress(count)
    return StorageStats(
        kinds=tuple(kinds.values()),
        threads=len(live | archived),
        archived_threads=len(archived - live),
        unlistable=tuple(unlistable),
    )


def _files(home: Path, unlistable: list[str]) -> Iterator[tuple[tuple[str, ...], os.stat_result]]:
    """Each regular file: the parts of its path from the home on, and its status."""
    waiting: list[tuple[str, ...]] = [()]
    while waiting:
        parts = waiting.pop()
        folder = os.path.join(home, *parts)
        try:
            with os.scandir(folder) as listing:
                entries = list(listing)
        except FileNotFoundError:
            continue
        except OSError:
            unlistable.append(folder)
            continue
        for entry in entries:
            if entry.is_dir(follow_symlinks=False) or (not parts and _is_linked_place(entry)):
                waiting.append((*parts, entry.name))
                continue
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            except OSError:
                unlistable.append(entry.path)
                continue
            if stat.S_ISREG(status.st_mode):
                yield (*parts, entry.name), status


def _is_linked_place(entry: os.DirEntry[str]) -> bool:
    """The two folders of rollouts may be links: that is the user's choice."""
    return entry.name in (SESSIONS_FOLDER, ARCHIVED_FOLDER) and entry.is_dir()


def kind_of(parts: tuple[str, ...]) -> str:
    """The kind of a file, by its path from the home on."""
    top, name = parts[0], parts[-1]
    if top in (SESSIONS_FOLDER, ARCHIVED_FOLDER) and len(parts) > 1:
        found = RolloutName.match(name)
        if found is not None:
            place = "live" if top == SESSIONS_FOLDER else "archived"
            return f"{place}_compressed" if found.compressed else place
        return "leftovers" if parse_left_behind(name) is not None else "other"
    if top == "blobs" and len(parts) > 1:
        return "blobs"
    if top == "thread-writer-locks" and len(parts) > 1:
        return "locks"
    if top == "thread-store" and len(parts) > 1:
        return _own_kind(parts)
    return "titles" if len(parts) == 1 and name in _TITLES else "other"


def _own_kind(parts: tuple[str, ...]) -> str:
    if parts[-1].endswith(".tmp"):
        return "leftovers"
    known = {"kept": "kept", "deleting": "kept", "labels.jsonl": "titles"}
    return known.get(parts[1], "derived" if parts[1] == "derived" else "other")
