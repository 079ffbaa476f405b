"""Temporary files of processes that were killed before they could take them away.

Invariant: one counts only if its name is one that this library gives, if nothing was written to it for a day,
and if it isn't the only copy of anything: what was moved aside and never replaced is none.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from protocol.errors import RolloutWriteError
from rollout.paths import ARCHIVED_FOLDER, SESSIONS_FOLDER
from thread_store.home import Home
from thread_store.upkeep.calls import UpkeepCalls
from thread_store.upkeep.thread_files import parse_left_behind

__all__ = ["QUIET_SECONDS", "Leftover", "find_leftovers", "remove_leftovers"]

QUIET_SECONDS = 86_400.0
"""What was written to later may still be somebody's."""

_OWN_FOLDERS = ("kept", "derived", "deleting")
_OWN = re.compile(r"\.?(?P<owner>.+?)(?:\.[0-9a-f]{8,32})?\.tmp", re.DOTALL)
_INDEX = re.compile(r"\.session_index\.jsonl\.[0-9a-f]{12}\.tmp")


class Leftover(Struct, frozen=True, kw_only=True):
    """A file that is nobody's."""

    path: str
    bytes: int


class _Entry(NamedTuple):
    path: str
    size: int
    changed: float


def find_leftovers(home: Home, *, now: float | None = None) -> list[Leftover]:
    """Those of a home. A folder that can't be listed has none."""
    latest = (time.time() if now is None else now) - QUIET_SECONDS
    found = [*_beside_rollouts(home.path), *_in_own_folders(home.path)]
    return [Leftover(path=each.path, bytes=each.size) for each in found if each.changed <= latest]


def _beside_rollouts(home: Path) -> Iterator[_Entry]:
    for top in (SESSIONS_FOLDER, ARCHIVED_FOLDER):
        for folder, _, names in os.walk(home / top):
            for name in names:
                left = parse_left_behind(name)
                if left is None or (left.is_aside and left.owner not in names):
                    continue
                yield from _entry(os.path.join(folder, name))


def _in_own_folders(home: Path) -> Iterator[_Entry]:
    places = [(home / "thread-store" / name, _OWN) for name in _OWN_FOLDERS]
    for folder, pattern in (*places, (home, _INDEX)):
        for name in _names_in(folder):
            if pattern.fullmatch(name):
                yield from _entry(os.path.join(folder, name))


def _names_in(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []  # there is none, or nobody may look into it


def _entry(path: str) -> Iterator[_Entry]:
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return
    if stat.S_ISREG(status.st_mode):
        yield _Entry(path, status.st_size, status.st_mtime)


def remove_leftovers(leftovers: Sequence[Leftover], *, calls: UpkeepCalls) -> int:
    """Remove these; returns how many bytes that were.

    Raises:
        RolloutWriteError: the system refuses; some may be gone.
    """
    done = 0
    for each in leftovers:
        try:
            calls.unlink(each.path)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise RolloutWriteError(
                path=each.path, operation="remove", cause=error, hint="Nothing but leftovers were removed"
            ) from error
        done += each.bytes
    return done
