"""The rollout files of a home by name, and which of them make one thread.

Invariant: of each thread there is one entry, whatever files it has: the live one before the archived one,
the plain one before its `.zst` twin, the last revert before what it came from. Only names are looked at,
and folders that a cache vouches for are not even listed; so a home of 100,000 threads costs some tens of
milliseconds.

A thread is as old as the oldest name among its files says. That never changes: neither recording, reverting,
archiving nor compressing moves a thread in the order of creation.

Most names are *regular* (a thread's first rollout, named by us or by Codex): those sort as they stand, and
the id is cut out of them. Everything else takes the long way.
"""

from __future__ import annotations

import os
import time
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from pathlib import Path
from zlib import adler32, crc32

from protocol.errors import RolloutUnreadable
from rollout.paths import ARCHIVED_FOLDER, SESSIONS_FOLDER, RolloutName
from thread_store.doomed import DoomedFiles
from thread_store.listing.folder_names import FolderCache, FolderNames, FolderState
from thread_store.listing.regular_names import ID, KEY, is_regular, tail_of
from thread_store.listing.thread_files import FileRef, StatFields, StatFile, ThreadFiles
from thread_store.looks import LOOKS_MAX, only_earlier

__all__ = ["HomeFiles"]

_DEPTH_MAX = 6
_SETTLED_NS = 10_000_000_000
"""A folder that changed later than that before it was listed may change again within the same tick of the
file system's clock: it is listed again next time."""


class HomeFiles:
    """The files of the home at `path` (resolved). `passed_over`: what could not be looked at."""

    def __init__(self, path: str, cache: FolderCache | None = None) -> None:
        self.path = path
        self.passed_over: list[RolloutUnreadable] = []
        self._doomed = DoomedFiles(Path(path))
        # While a deletion is under way names say less than a folder's state.
        self._cache = None if self._doomed else cache
        self._states = bytearray()
        self._all_settled = True
        self._seen: dict[str, FolderState | None] = {}
        """How each folder stood before it was listed; None: it could not be looked at."""

    # By name

    def by_creation(self, *, before: str | None, oldest_first: bool = False) -> Iterator[ThreadFiles]:
        """The threads behind `before` (a `created_key`) in the order of creation, the newest first."""
        folders = self._named_at_rest()
        several = self._find_several(folders)
        groups: dict[str, list[FileRef]] = {}
        for folder, names in folders:
            files = [FileRef(folder, name) for name in names.odd]
            if several and not several.isdisjoint(names.tails):
                files += [FileRef(folder, name) for name in names.regular if tail_of(name) in several]
            for each in files:
                groups.setdefault(each.thread_id, []).append(each)
        threads = [ThreadFiles.of(group) for group in groups.values()]
        if before is not None:
            threads = [each for each in threads if _is_behind(each.created_key, before, oldest_first)]
        threads.sort(key=_created_key, reverse=not oldest_first)
        singles = _singles(folders, several, before, oldest_first=oldest_first)
        return merge(singles, threads, key=_created_key, reverse=not oldest_first)

    def _find_several(self, folders: Sequence[tuple[str, FolderNames]]) -> set[int]:
        """The tails of threads that have several files: as they were, if no folder has changed since."""
        if self._cache is None or not self._all_settled:
            return _repeated(folders)
        states = crc32(self._states) << 32 | adler32(self._states)
        several = self._cache.find_several(states)
        if several is None:
            several = _repeated(folders)
            self._cache.keep_several(states, several)
        return several

    def all_files(self) -> Iterator[FileRef]:
        """Every file, a live one before its archived twin."""
        for folder, names in self._named_at_rest():
            for name in (*names.regular, *names.odd):
                yield FileRef(folder, name)

    def _named_at_rest(self) -> list[tuple[str, FolderNames]]:
        """Looked again while names change, a few times: what is archived or expanded meanwhile may be seen
        under neither name.
        """
        looks: list[list[tuple[str, FolderNames]]] = []
        for _ in range(LOOKS_MAX):
            self._states.clear()
            self._seen.clear()
            self._all_settled = True
            looks.append(list(self._named_folders()))
            if self._is_at_rest():
                return looks[-1]
        return looks[-1] + _by_folder(only_earlier([_refs(each) for each in looks], lambda each: each.name))

    def _is_at_rest(self) -> bool:
        return all(_state_of(f"{self.path}/{folder}") == state for folder, state in self._seen.items())

    def _named_folders(self) -> Iterator[tuple[str, FolderNames]]:
        for top, depth in ((SESSIONS_FOLDER, _DEPTH_MAX), (ARCHIVED_FOLDER, 0)):
            for folder, names in self._walk_names(top, depth):
                yield folder, self._standing(folder, names) if self._doomed else names

    def _standing(self, folder: str, names: FolderNames) -> FolderNames:
        """Without those that count as deleted."""
        regular = [each for each in names.regular if not self._is_doomed(folder, each)]
        odd = [each for each in names.odd if not self._is_doomed(folder, each)]
        return FolderNames(names.folders, odd, regular=regular)

    def _is_doomed(self, folder: str, name: str) -> bool:
        return Path(self.path, folder, name) in self._doomed

    def _walk_names(self, folder: str, depth: int) -> Iterator[tuple[str, FolderNames]]:
        try:
            names = self._names_of(folder)
        except FileNotFoundError:
            return
        except OSError as error:
            self.pass_over(folder, error)
            return
        yield folder, names
        if depth:
            for each in names.folders:
                yield from self._walk_names(f"{folder}/{each}", depth - 1)

    def _names_of(self, folder: str) -> FolderNames:
        path = f"{self.path}/{folder}"
        self._seen[folder] = None
        state = self._seen[folder] = _folder_state(path)
        settled = state.mtime_ns < time.time_ns() - _SETTLED_NS
        self._all_settled = self._all_settled and settled
        self._states += repr((folder, *state)).encode(errors="backslashreplace")
        known = None
        if self._cache:
            known = self._cache.find_folder(folder, state, lambda: _list_names(path).regular)
        if known is not None:
            return known
        names = _list_names(path)
        if self._cache and settled:
            self._cache.keep_folder(folder, state, names)
        return names

    def pass_over(self, name: str, error: OSError, operation: str = "list") -> None:
        """Note what can't be looked at, from the home on."""
        path = os.path.join(self.path, name)
        if all(path != each.path for each in self.passed_over):
            self.passed_over.append(RolloutUnreadable(path=path, cause=error, operation=operation))

    # By what the system says

    def stat_all(self) -> tuple[list[StatFields], dict[str, ThreadFiles]]:
        """The current file of each thread, as the fields of a `StatFile`; and the threads of several files,
        by id.
        """
        regular, odd = self._stat_at_rest()
        ids = [name[ID] for _, name, _, _, _ in regular]
        several: set[str] = set()
        if len(set(ids)) != len(ids):
            several = {each for each, count in Counter(ids).items() if count > 1}
        groups: dict[str, list[StatFile]] = {}
        for each in map(StatFile._make, odd):
            groups.setdefault(each.thread_id, []).append(each)
        several.update(groups)
        if several:
            for each in (StatFile._make(each) for each in regular if each[1][ID] in several):
                groups.setdefault(each.thread_id, []).append(each)
            regular = [each for each in regular if each[1][ID] not in several]
        threads: dict[str, ThreadFiles] = {}
        for thread_id, group in groups.items():
            threads[thread_id] = found = ThreadFiles.of(each.ref for each in group)
            regular.append(next(each for each in group if each.ref == found.current))
        return regular, threads

    def _stat_at_rest(self) -> tuple[list[StatFields], list[StatFields]]:
        """The files of regular names, and the others; looked again while names change, as by name."""
        looks: list[tuple[list[StatFields], list[StatFields]]] = []
        for _ in range(LOOKS_MAX):
            regular, odd = look = list[StatFields](), list[StatFields]()
            looks.append(look)
            self._seen.clear()
            self._walk_stat(SESSIONS_FOLDER, _DEPTH_MAX, regular, odd)
            self._walk_stat(ARCHIVED_FOLDER, 0, regular, odd)
            if self._is_at_rest():
                return look
        for each in only_earlier([regular + odd for regular, odd in looks], _name_of):
            (regular if is_regular(_name_of(each)) else odd).append(each)
        return regular, odd

    def _walk_stat(
        self,
        folder: str,
        depth: int,
        regular: list[StatFields],
        odd: list[StatFields],
    ) -> None:
        path = f"{self.path}/{folder}"
        folders, any_doomed = [], bool(self._doomed)
        self._seen[folder] = _state_of(path)
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    name = entry.name
                    files = regular
                    if not is_regular(name):
                        if entry.is_dir(follow_symlinks=False):
                            folders.append(name)
                            continue
                        if RolloutName.match(name) is None:
                            continue
                        files = odd
                    if entry.is_file(follow_symlinks=False) and not (
                        any_doomed and self._is_doomed(folder, name)
                    ):
                        try:
                            status = entry.stat(follow_symlinks=False)
                        except FileNotFoundError:
                            continue  # it went away meanwhile
                        files.append((status.st_mtime_ns, name, folder, status.st_size, status.st_ino))
        except FileNotFoundError:
            return
        except OSError as error:
            self.pass_over(folder, error)
            return
        for name in folders if depth else ():
            self._walk_stat(f"{folder}/{name}", depth - 1, regular, odd)


def _name_of(fields: StatFields) -> str:
    return fields[1]


def _refs(folders: Iterable[tuple[str, FolderNames]]) -> list[FileRef]:
    return [FileRef(folder, name) for folder, names in folders for name in (*names.regular, *names.odd)]


def _by_folder(files: Iterable[FileRef]) -> list[tuple[str, FolderNames]]:
    found: dict[str, list[str]] = {}
    for each in files:
        found.setdefault(each.folder, []).append(each.name)
    return [
        (
            folder,
            FolderNames(
                [],
                [each for each in names if not is_regular(each)],
                regular=sorted(filter(is_regular, names), reverse=True),
            ),
        )
        for folder, names in found.items()
    ]


def _folder_state(path: str) -> FolderState:
    status = os.stat(path)
    return FolderState(status.st_dev, status.st_ino, status.st_mtime_ns)


def _state_of(path: str) -> FolderState | None:
    try:
        return _folder_state(path)
    except OSError:  # who lists it is told
        return None


def _list_names(path: str) -> FolderNames:
    folders, regular, odd = [], [], []
    with os.scandir(path) as entries:
        for entry in entries:
            name = entry.name
            if is_regular(name):
                if entry.is_file(follow_symlinks=False):
                    regular.append(name)
            elif entry.is_dir(follow_symlinks=False):
                folders.append(name)
            elif entry.is_file(follow_symlinks=False) and RolloutName.match(name) is not None:
                odd.append(name)
    regular.sort(reverse=True)
    folders.sort(reverse=True)
    return FolderNames(folders, odd, regular=regular)


def _repeated(folders: Sequence[tuple[str, FolderNames]]) -> set[int]:
    """The tails of ids that more than one name holds: of threads with several files."""
    tails = array("Q")
    for _, names in folders:
        tails.extend(names.tails)
    known = set(tails)
    several = set()
    if len(known) != len(tails):
        several = {each for each, count in Counter(tails).items() if count > 1}
    for _, names in folders:
        for name in names.odd:
            several.add(int(RolloutName.parse(name).thread_id[19:].replace("-", ""), 16))
    return several


def _singles(
    folders: Sequence[tuple[str, FolderNames]], several: set[int], before: str | None, *, oldest_first: bool
) -> Iterator[ThreadFiles]:
    """The threads of one regular file in their order. A folder's names are looked at when it is its turn."""
    rest = [(names.oldest if oldest_first else names.newest, folder, names) for folder, names in folders]
    rest = [each for each in rest if each[0] and _may_lie_behind(each[2], before, oldest_first)]
    rest.sort(key=lambda each: each[0], reverse=oldest_first)  # the next one stands last
    waiting: list[tuple[str, str]] = []  # sorted the other way round: the next one stands last
    while rest or waiting:
        while rest and (not waiting or not _is_behind(rest[-1][0], waiting[-1][0][KEY], oldest_first)):
            _, folder, names = rest.pop()
            waiting += [
                (name, folder)
                for name in names.regular
                if (before is None or _is_behind(name[KEY], before, oldest_first))
                and not (several and tail_of(name) in several)
            ]
            waiting.sort(reverse=oldest_first)
        if waiting:
            name, folder = waiting.pop()
            ref = FileRef(folder, name)
            yield ThreadFiles(name[KEY], ref, ref)


def _is_behind(key: str, before: str, oldest_first: bool) -> bool:
    return key > before if oldest_first else key < before


def _may_lie_behind(names: FolderNames, before: str | None, oldest_first: bool) -> bool:
    if before is None:
        return True
    return _is_behind(names.newest if oldest_first else names.oldest, before, oldest_first)


def _created_key(thread: ThreadFiles) -> str:
    return thread.created_key
