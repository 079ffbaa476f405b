"""Deletions that were begun: journals that say which files are to go, until they are gone.

Invariant: what a journal names counts as deleted as soon as the journal has its name: no list shows it, and
whoever comes next finishes the work. It names each file by identity, size and mtime, so that one
which came back, or went on, is another file and stays.

    <home>/thread-store/deleting/<random>.json
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from rollout.paths import ARCHIVED_FOLDER, SESSIONS_FOLDER, RolloutName

__all__ = ["DoomedFile", "DoomedFiles", "DoomedThread", "Journal", "journal_folder", "read_journals"]

_log = logging.getLogger("thread_store.upkeep")

_VERSION = 1
_JOURNAL_BYTES_MAX = 64 << 20


class DoomedFile(Struct, frozen=True, array_like=True):
    """One file that is to go. `path`: from the home on."""

    path: str
    device: int
    inode: int
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, path: str | os.PathLike[str], home: Path) -> DoomedFile:
        """As it stands there now. Raises OSError."""
        status = os.lstat(path)
        path = os.path.relpath(path, home)
        return cls(path, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)

    def stands(self, home: Path) -> bool:
        """Whether the very file stands there still, as long as it was. Raises OSError."""
        try:
            status = os.lstat(home / self.path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        now = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        return now == (self.device, self.inode, self.size, self.mtime_ns)


class DoomedThread(Struct, frozen=True, kw_only=True):
    """What goes with one thread: its rollouts, the current one last, and what lies elsewhere for it."""

    thread_id: str
    rollouts: tuple[DoomedFile, ...]
    others: tuple[DoomedFile, ...] = ()


class Journal(Struct, frozen=True, kw_only=True):
    """The content of one journal."""

    version: int = _VERSION
    threads: tuple[DoomedThread, ...]

    def encode(self) -> bytes:
        """As it stands in the file."""
        return json.dumps(msgspec.to_builtins(self), ensure_ascii=True).encode() + b"\n"


def journal_folder(home: Path) -> Path:
    """Where the journals of a home stand."""
    return home / "thread-store" / "deleting"


def read_journals(home: Path) -> list[tuple[str, Journal]]:
    """The journals of a home, each with its path. One that can't be read is logged and counts for nothing."""
    return list(_journals(home))


def _journals(home: Path) -> Iterator[tuple[str, Journal]]:
    folder = journal_folder(home)
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        _log.warning("%s: deletions that were begun can't be looked at: %s", folder, error)
        return
    for name in sorted(names):
        if name.endswith(".json") and not name.startswith("."):
            journal = _read(folder / name)
            if journal is not None:
                yield os.fspath(folder / name), journal


def _read(path: Path) -> Journal | None:
    try:
        with open(path, "rb") as file:
            data = file.read(_JOURNAL_BYTES_MAX)
        journal = msgspec.convert(json.loads(data), Journal)
    except FileNotFoundError:
        return None  # it is done
    except (OSError, ValueError, RecursionError, msgspec.ValidationError) as error:
        _log.warning("%s: a deletion that was begun can't be read: %s", path, error)
        return None
    if journal.version == _VERSION and all(map(_is_sound, journal.threads)):
        return journal
    _log.warning("%s: a deletion that was begun is of another version, or damaged", path)
    return None


def _is_sound(thread: DoomedThread) -> bool:
    """Whether it names what may be a thread's, and nothing else."""
    for each in thread.rollouts:
        name = RolloutName.match(os.path.basename(each.path))
        if name is None or name.thread_id != thread.thread_id:
            return False
        if not _lies_below(each, SESSIONS_FOLDER, ARCHIVED_FOLDER):
            return False
    return all(_lies_below(each, os.path.join("thread-store", "kept")) for each in thread.others)


def _lies_below(file: DoomedFile, *folders: str) -> bool:
    path = os.path.normpath(file.path)
    return path == file.path and path.startswith(tuple(os.path.join(each, "") for each in folders))


class DoomedFiles:
    """The rollouts of a home that count as deleted, as it is now."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._files: dict[str, list[DoomedFile]] = {}
        for _, journal in _journals(home):
            self._add(each for thread in journal.threads for each in thread.rollouts)

    def _add(self, files: Iterable[DoomedFile]) -> None:
        for each in files:
            self._files.setdefault(each.path, []).append(each)

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self._files)

    def __contains__(self, path: Path) -> bool:
        """Whether the rollout at this path is one of them."""
        if not self._files:
            return False
        named = self._files.get(os.path.relpath(path, self._home), ())
        try:
            return any(each.stands(self._home) for each in named)
        except OSError as error:
            _log.warning("%s: can't be looked at: %s", path, error)
            return False
