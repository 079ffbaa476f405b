"""The facts of files: from the index where they stand, else read, and then kept.

Invariant: asked twice in one look, it gives the same answer. A file that goes away meanwhile has no facts but
that.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from protocol.errors import InvalidThreadId
from protocol.ids import ThreadId
from protocol.timestamps import format_timestamp, milliseconds_of
from rollout.paths import SESSIONS_FOLDER, RolloutName
from thread_store.listing.home_files import HomeFiles
from thread_store.listing.list_index import FileStamp, ListIndex
from thread_store.listing.rollout_facts import GONE, RolloutFacts
from thread_store.listing.thread_files import FileRef, StatFile, ThreadFiles
from thread_store.looks import LOOKS_MAX, places_of

if TYPE_CHECKING:
    from thread_store.listing.earlier_state import EarlierState

__all__ = ["KnownFiles"]

_BASES_MAX = 64
_PASSING = frozenset({GONE, "rollout_unreadable"})
"""What may be otherwise the next time, though the file is as it was."""


class KnownFiles:
    """The facts of the files of one home, for one look."""

    def __init__(self, files: HomeFiles, index: ListIndex | None) -> None:
        self._files = files
        self._index = index
        self._facts: dict[FileRef, RolloutFacts] = {}
        self._earlier: dict[FileRef, EarlierState | None] = {}
        self._days: dict[str, dict[str, str]] = {}
        self._by_rollout: dict[str, FileRef] | None = None

    def stat(self, ref: FileRef) -> StatFile | None:
        """What the system says of it, also if it was archived, expanded or the like since; None if it is no
        plain file (any more), or can't be looked at.
        """
        for place in [*places_of(ref.folder, ref.name)] * LOOKS_MAX:  # it may move while it is looked for
            each = FileRef(*place)
            try:
                status = os.lstat(self._path(each))
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                self._files.pass_over(each.path, error, "look at")
                return None
            if not stat.S_ISREG(status.st_mode):
                return None
            return StatFile(status.st_mtime_ns, each.name, each.folder, status.st_size, status.st_ino)
        return None

    def _path(self, ref: FileRef) -> str:
        return f"{self._files.path}/{ref.path}"

    def load(self, files: Iterable[StatFile]) -> None:
        """Fetch what the index has of them, at once."""
        stamps = [_stamp_of(each) for each in files if each.ref not in self._facts]
        found = self._index.find_facts(stamps) if self._index and stamps else {}
        for stamp, facts in found.items():
            folder, _, name = stamp.path.rpartition("/")
            self._facts[FileRef(folder, name)] = facts

    def forget(self) -> None:
        """Let go of what isn't needed any more: a home may be large."""
        self._facts.clear()

    def facts(self, status: StatFile) -> RolloutFacts:
        """The facts of a file."""
        known = self._facts.get(status.ref)
        if known is None:
            from thread_store.listing.facts_reader import read_facts

            known = read_facts(self._path(status.ref), status.thread_id)
            self._facts[status.ref] = known
            if self._index is not None and known.problem_code not in _PASSING:
                self._index.keep_facts(_stamp_of(status), known)
        return known

    def standing(self, status: StatFile) -> StatFile | None:
        """The file with its facts, wherever it was moved to meanwhile; None: it went away."""
        for _ in range(LOOKS_MAX):
            if self.facts(status).problem_code != GONE:
                return status
            del self._facts[status.ref]
            moved = self.stat(status.ref)
            if moved is None:
                return None
            status = moved
        return None

    def earlier(self, status: StatFile, as_of_ms: int) -> EarlierState | None:
        """How a file stood at an earlier moment."""
        ref = status.ref
        if ref not in self._earlier:
            from thread_store.listing.earlier_state import find_earlier

            self._earlier[ref] = find_earlier(self._path(ref), as_of_ms)
        return self._earlier[ref]

    def created(self, thread: ThreadFiles, status: StatFile) -> str | None:
        """When a thread was begun: as its oldest file says, else as that is called."""
        oldest = status if thread.oldest == status.ref else self.stat(thread.oldest)
        if oldest is not None:
            self.load([oldest])
        stated = None if oldest is None else milliseconds_of(self.facts(oldest).created)
        return _named_time(thread.oldest) if stated is None else format_timestamp(max(0, stated))

    def prompt(self, status: StatFile) -> str | None:
        """What was typed first into the thread's history: in the files that it rests on, else in its own."""
        chain = [status]
        while len(chain) < _BASES_MAX:
            base = self.facts(chain[-1]).base_rollout
            below = None if base is None else self._find_rollout(base)
            if below is None or below in chain:
                break
            chain.append(below)
            self.load([below])
        return next((text for each in reversed(chain) if (text := self.facts(each).prompt)), None)

    def _find_rollout(self, rollout_id: str) -> StatFile | None:
        try:
            wanted = ThreadId.parse(rollout_id)
        except InvalidThreadId:
            return None
        ref = self._near(wanted) or self._everywhere().get(wanted)
        return None if ref is None else self.stat(ref)

    def _near(self, wanted: ThreadId) -> FileRef | None:
        """Ids tell when they were made: most files lie in the folder of that day."""
        day = datetime.fromtimestamp(min(int(wanted[:8] + wanted[9:13], 16) / 1000, 4e9))
        folder = f"{SESSIONS_FOLDER}/{day:%Y/%m/%d}"
        if folder not in self._days:
            self._days[folder] = _rollouts_in(f"{self._files.path}/{folder}")
        name = self._days[folder].get(wanted)
        return None if name is None else FileRef(folder, name)

    def _everywhere(self) -> dict[str, FileRef]:
        if self._by_rollout is None:
            self._by_rollout = {}
            for ref in self._files.all_files():
                self._by_rollout.setdefault(_rollout_id(ref.name) or "", ref)
        return self._by_rollout


def _stamp_of(status: StatFile) -> FileStamp:
    return FileStamp(status.ref.path, status.size, status.mtime_ns, status.inode)


def _rollouts_in(path: str) -> dict[str, str]:
    """The names in a folder by rollout id, a plain file before its twin."""
    try:
        names = sorted(os.listdir(path), reverse=True)
    except OSError:
        return {}  # the look through all files finds what there is
    return {_rollout_id(name) or "": name for name in names}


def _rollout_id(name: str) -> str | None:
    found = RolloutName.match(name)
    return None if found is None else found.rollout_id or found.thread_id


def _named_time(ref: FileRef) -> str | None:
    """Names tell local time."""
    created = RolloutName.parse(ref.name).created
    if created is None:
        return None
    try:
        return format_timestamp(int(created.astimezone(UTC).timestamp() * 1000))
    except (OverflowError, ValueError, OSError):
        return None
