"""The rollout files of threads: all of them, in both places and both forms.

Invariant: a thread's files come in the order in which they may be archived one by one, so that after each the
thread is whole and the same one is current: the one that it goes on in is the last. Of twins (one rollout
in two files) all are told.
"""

from __future__ import annotations

import os
import re
import stat
from collections import defaultdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from protocol.errors import RolloutUnreadable, ThreadNotFound
from protocol.ids import ThreadId
from rollout.paths import ARCHIVED_FOLDER, SESSIONS_FOLDER, RolloutName
from rollout.staged_file import ASIDE_SUFFIX, put_back, remove_file
from thread_store.doomed import DoomedFiles
from thread_store.home import Home, StoredRollout
from thread_store.upkeep.calls import UpkeepCalls

__all__ = [
    "LeftBehind",
    "ThreadFiles",
    "files_of_thread",
    "live_path",
    "look_again",
    "mend_folders",
    "parse_left_behind",
    "threads_of",
]

_DAY = timedelta(days=1)

_TEMPORARY = re.compile(
    r"\.?(?P<owner>rollout-.+?\.jsonl(?:\.zst)?)(?:\.[0-9a-f]{8,32}\.(?:tmp|aside|taken))+", re.DOTALL
)


class ThreadFiles(NamedTuple):
    """The files of one thread. `rollouts`: one for each of its rollouts, the current one last. `twins`:
    other files of the same rollouts, which count for nothing."""

    thread_id: ThreadId
    rollouts: tuple[StoredRollout, ...]
    twins: tuple[StoredRollout, ...]

    @property
    def current(self) -> StoredRollout:
        """The one that the thread goes on in."""
        return self.rollouts[-1]

    @property
    def rollout_ids(self) -> list[str]:
        """Of its rollouts, in their order."""
        return [str(each.name.rollout_id or each.name.thread_id) for each in self.rollouts]

    @property
    def all(self) -> tuple[StoredRollout, ...]:
        """What counts for nothing first, the current one last."""
        return (*self.twins, *self.rollouts)


def threads_of(home: Home) -> dict[ThreadId, ThreadFiles]:
    """All threads of a home, newest name first. Folders are listed, no file is opened.

    Raises:
        RolloutUnreadable: the home can't be listed.
    """
    found: dict[ThreadId, list[StoredRollout]] = defaultdict(list)
    for each in home.rollouts():
        found[each.name.thread_id] += _with_hidden(each)
    return {thread_id: _ordered(thread_id, files) for thread_id, files in found.items()}


def files_of_thread(home: Home, thread_id: str) -> ThreadFiles:
    """The files of one thread.

    Raises:
        InvalidThreadId, ThreadNotFound: there is no such thread.
        RolloutUnreadable: the home can't be listed.
    """
    wanted = ThreadId.parse(thread_id)
    files = [
        each for found in home.rollouts() if found.name.thread_id == wanted for each in _with_hidden(found)
    ]
    if not files:
        raise ThreadNotFound(thread_id, path=home.path)
    return _ordered(wanted, files)


def _with_hidden(found: StoredRollout) -> list[StoredRollout]:
    """Also the compressed file beside a plain one, which a home doesn't list."""
    beside = f"{found.path}.zst"
    if found.name.compressed or not _is_regular(beside):
        return [found]
    return [found, StoredRollout(Path(beside), found.name._replace(compressed=True), found.archived)]


def _ordered(thread_id: ThreadId, files: list[StoredRollout]) -> ThreadFiles:
    by_rollout: dict[str, list[StoredRollout]] = defaultdict(list)
    for each in files:
        by_rollout[each.name.rollout_id or ""].append(each)
    rollouts, twins = [], []
    for same in by_rollout.values():
        same.sort(key=lambda each: (each.archived, each.name.compressed, each.name.stamp))
        rollouts.append(same[0])
        twins += same[1:]
    rollouts.sort(key=lambda each: (not each.archived, each.name.rollout_id or ""))
    return ThreadFiles(thread_id, tuple(rollouts), tuple(twins))


def live_path(home: Home, found: StoredRollout) -> Path:
    """Where a rollout belongs that isn't archived: in the folder of the day in its name; of the day of its
    last change where another program wrote something else there."""
    if found.name.created is not None:
        return home.path / found.name.folder / found.path.name
    day = datetime.fromtimestamp(found.path.stat().st_mtime)
    return home.path / SESSIONS_FOLDER / day.strftime("%Y/%m/%d") / found.path.name


def look_again(home: Home, known: ThreadFiles) -> ThreadFiles:
    """The files of a thread that were found not long ago: moved, compressed or reverted since, perhaps.

    Looks where they were, where they would be else, and into the folders of these days, where a revert puts
    its file; not through the home.

    Raises:
        ThreadNotFound: it is gone.
        RolloutUnreadable: the system refuses.
    """
    names = {each.path.name.removesuffix(".zst") for each in known.all}
    folders = {each.path.parent for each in known.all if not each.archived}
    folders |= {home.path / each.name.folder for each in known.all if each.name.created is not None}
    now = datetime.now()
    today = {home.path / SESSIONS_FOLDER / (now + _DAY * days).strftime("%Y/%m/%d") for days in (-1, 0, 1)}
    for folder in today:
        names |= _names_in(folder, known.thread_id)
    places = [*((each, False) for each in folders | today), (home.path / ARCHIVED_FOLDER, True)]
    candidates = [
        (folder / f"{name}{suffix}", archived)
        for folder, archived in places
        for name in names
        for suffix in ("", ".zst")
    ]
    doomed = DoomedFiles(home.path)
    found = [
        StoredRollout(path, RolloutName.parse(path.name), archived)
        for path, archived in candidates
        if _is_regular(path) and path not in doomed
    ]
    if not found:
        raise ThreadNotFound(known.thread_id, path=home.path)
    return _ordered(known.thread_id, found)


def _names_in(folder: Path, thread_id: ThreadId) -> set[str]:
    """Of the plain form."""
    try:
        entries = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return set()
    except OSError as error:
        raise RolloutUnreadable(path=folder, cause=error, operation="list") from error
    found = [(each, RolloutName.match(each)) for each in entries if thread_id in each.lower()]
    return {
        each.removesuffix(".zst") for each, name in found if name is not None and name.thread_id == thread_id
    }


def _is_regular(path: str | Path) -> bool:
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise RolloutUnreadable(path=path, cause=error, operation="look at") from error


def mend_folders(files: ThreadFiles, calls: UpkeepCalls) -> bool:
    """Take away what was left beside a thread's files by somebody who was killed. Its lock must be held.

    Whoever writes such a file keeps to that lock, so nobody does now. Returns whether there was anything.

    Raises:
        OSError: the system refuses.
    """
    names = {each.path.name.removesuffix(".zst") for each in files.all}
    mended = False
    for folder in {each.path.parent for each in files.all}:
        try:
            entries = os.listdir(folder)
        except FileNotFoundError:
            continue
        for entry in entries:
            left = parse_left_behind(entry)
            if left is not None and left.owner.removesuffix(".zst") in names:
                mended = True
                if left.is_aside and put_back(os.path.join(folder, left.owner), calls):
                    continue
                remove_file(os.path.join(folder, entry), calls)
    return mended


class LeftBehind(NamedTuple):
    """What the name of a temporary file tells."""

    owner: str
    """The file that it was to become, or was."""
    is_aside: bool


def parse_left_behind(entry: str) -> LeftBehind | None:
    """A name as this library gives it to temporary files of rollouts; None if it is any other."""
    found = _TEMPORARY.fullmatch(entry)
    if found is None or RolloutName.match(found["owner"]) is None:
        return None
    return LeftBehind(found["owner"], entry.endswith(ASIDE_SUFFIX))
