"""The places where what is erased may stand: every file of a home, by what it is.

Invariant: looking reads names only, follows no link, and leaves nothing out: what is nobody's that is known
here comes as `OTHER`, so that it can be named. Rollouts come first, the newest names before the oldest.
"""

from __future__ import annotations

import enum
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from typing import NamedTuple

from protocol.errors import RolloutUnreadable
from rollout.kept import find_home, spill_folder
from rollout.paths import ARCHIVED_FOLDER, SESSIONS_FOLDER, RolloutName
from thread_store.home import Home

__all__ = ["ErasePlace", "PlaceKind", "derived_folder", "places_beside", "places_in_home"]

_KEPT = re.compile(
    r"(?P<rollout>rollout-.+\.jsonl)\.\d+-\d+-[0-9a-f]{8}\.(?P<kind>torn|unwritten)(\.replayed)?\Z"
)
_KEPT_ANY = re.compile(r"\.\d+-\d+-[0-9a-f]{8}\.(?P<kind>torn|unwritten)(\.replayed)?\Z")
_LEFTOVER = re.compile(r"\..*\.tmp\Z|.*\.[0-9a-f]{8}\.tmp\Z")


_SHARED_BEGIN = (".session_index.jsonl.", ".history.jsonl.")


class PlaceKind(enum.StrEnum):
    """What a file is."""

    ROLLOUT = "rollout"
    TORN = "torn tail"
    UNWRITTEN = "unwritten items"
    TITLES = "titles"
    PROMPTS = "prompt history"
    LABELS = "labels"
    BLOB = "blob"
    LEFTOVER = "leftover"
    """A temporary file of somebody who was killed."""
    DERIVED = "derived"
    OURS = "ours"
    """Locks and journals of erasures: they hold nothing of a thread."""
    OTHER = "other"


class ErasePlace(NamedTuple):
    """A file, and of which thread and rollout it is, where its name says so."""

    path: str
    kind: PlaceKind
    thread_id: str | None = None
    rollout_id: str | None = None


def places_in_home(home: Home, passed_over: list[RolloutUnreadable]) -> Iterator[ErasePlace]:
    """Every regular file below a home, and what was kept for it among the system's temporary files."""
    root = os.fspath(home.path)
    for top in (SESSIONS_FOLDER, ARCHIVED_FOLDER, "."):
        for path in _files(os.path.join(root, top), passed_over, recurse=top != "."):
            yield _place_of(path, root)
    for name in _folders(root):
        if name not in (SESSIONS_FOLDER, ARCHIVED_FOLDER):
            for path in _files(os.path.join(root, name), passed_over, recurse=True):
                yield _place_of(path, root)
    yield from _spilled(root, passed_over)


def places_beside(path: str) -> Iterator[ErasePlace]:
    """The same for a rollout that lies in no home: itself, and what was kept beside it."""
    yield ErasePlace(path, PlaceKind.ROLLOUT)
    folder, base = os.path.split(path)
    for each in _files(folder, [], recurse=False):
        name = os.path.basename(each)
        found = _KEPT_ANY.match(name, len(base)) if name.startswith(base) else None
        if found is not None:
            yield ErasePlace(each, _kept_kind(found["kind"]))
    for each in _files(os.path.join(folder, "blobs"), [], recurse=False):
        yield ErasePlace(
            each, PlaceKind.LEFTOVER if _LEFTOVER.match(os.path.basename(each)) else PlaceKind.BLOB
        )


def derived_folder(home: Home) -> str:
    """Where the derived files of a home lie."""
    return os.path.join(home.path, "thread-store", "derived")


def _files(folder: str, passed_over: list[RolloutUnreadable], *, recurse: bool) -> Iterator[str]:
    try:
        with os.scandir(folder) as listing:
            entries = sorted(listing, key=lambda each: each.name, reverse=True)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        passed_over.append(RolloutUnreadable(path=folder, cause=error, operation="list"))
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            if recurse:
                yield from _files(entry.path, passed_over, recurse=True)
        elif entry.is_file(follow_symlinks=False):
            yield os.path.normpath(entry.path)


def _folders(root: str) -> list[str]:
    try:
        with os.scandir(root) as listing:
            return sorted(each.name for each in listing if each.is_dir(follow_symlinks=False))
    except OSError:
        return []  # told when its files were listed


def _place_of(path: str, root: str) -> ErasePlace:
    folder, name = os.path.split(os.path.relpath(path, root))
    top = folder.split(os.sep)
    own = top[0] in (SESSIONS_FOLDER, ARCHIVED_FOLDER, "thread-store", "blobs")
    if _LEFTOVER.match(name) and (own or (not folder and name.startswith(_SHARED_BEGIN))):
        return ErasePlace(path, PlaceKind.LEFTOVER)
    if top[0] in (SESSIONS_FOLDER, ARCHIVED_FOLDER):
        rollout = RolloutName.match(name)
        if rollout is not None:
            rollout_id = rollout.rollout_id or rollout.thread_id
            return ErasePlace(path, PlaceKind.ROLLOUT, rollout.thread_id, rollout_id)
    elif folder == os.path.join("thread-store", "kept"):
        return _kept_place(path, name)
    elif folder == os.path.join("thread-store", "derived"):
        return ErasePlace(path, PlaceKind.DERIVED)
    elif folder == "thread-store" and name == "labels.jsonl":
        return ErasePlace(path, PlaceKind.LABELS)
    elif folder == "blobs":
        return ErasePlace(path, PlaceKind.BLOB)
    elif folder == "thread-writer-locks":
        return ErasePlace(path, PlaceKind.OURS)
    elif not folder and name in ("session_index.jsonl", "history.jsonl"):
        return ErasePlace(path, PlaceKind.TITLES if name.startswith("s") else PlaceKind.PROMPTS)
    return ErasePlace(path, PlaceKind.OTHER)


def _kept_place(path: str, name: str) -> ErasePlace:
    if name.endswith(".erasing"):
        return ErasePlace(path, PlaceKind.OURS)
    found = _KEPT.match(name)
    if found is None:
        any_kind = _KEPT_ANY.search(name)
        return ErasePlace(path, PlaceKind.OTHER if any_kind is None else _kept_kind(any_kind["kind"]))
    rollout = RolloutName.match(found["rollout"])
    return ErasePlace(path, _kept_kind(found["kind"]), None if rollout is None else rollout.thread_id)


def _kept_kind(kind: str) -> PlaceKind:
    return PlaceKind.TORN if kind == "torn" else PlaceKind.UNWRITTEN


def _spilled(root: str, passed_over: list[RolloutUnreadable]) -> Iterator[ErasePlace]:
    """Unwritten items found no room in the home: theirs are told by their header when they are read."""
    folder = os.fspath(spill_folder(tempfile.gettempdir()))
    try:
        status = os.lstat(folder)
    except OSError:
        return  # there is none
    if stat.S_ISDIR(status.st_mode) and (not hasattr(os, "geteuid") or status.st_uid == os.geteuid()):
        for path in _files(folder, passed_over, recurse=False):
            place = _kept_place(path, os.path.basename(path))
            if place.kind is PlaceKind.UNWRITTEN and _is_of_home(path, root):
                yield place


def _is_of_home(path: str, root: str) -> bool:
    from protocol.errors import RolloutError
    from rollout.unwritten import read_unwritten_header

    try:
        home = find_home(read_unwritten_header(path).rollout)
    except RolloutError:
        return True  # damaged: rather looked through once too often
    return home is not None and os.path.realpath(home) == root
