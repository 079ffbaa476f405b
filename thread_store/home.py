"""The home: the folder that holds the rollouts of many threads (FORMAT.md, Files).

Invariant: what is found is a file whose name is a rollout's, or a path that the caller wrote
out; an id never becomes a path before `ThreadId` took it. Looking reads names only: no file is
opened, no link below the home is followed, and what can't be listed is passed over and named
in `passed_over`. Nothing is made here either: folders appear with the first record.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import NamedTuple, NoReturn

from protocol.errors import InvalidThreadId, RolloutUnreadable, ThreadNotFound
from protocol.ids import ThreadId
from rollout.paths import ARCHIVED_FOLDER, SESSIONS_FOLDER, RolloutName
from thread_store.doomed import DoomedFiles
from thread_store.errors import AmbiguousThread
from thread_store.looks import LOOKS_MAX, only_earlier, places_of

__all__ = ["FRAGMENT_MIN", "Home", "StoredRollout", "looks_like_path", "rollout_rank"]

FRAGMENT_MIN = 4
"""Fewer characters of an id than these name no thread."""

_DEPTH_MAX = 6
"""Folders below `sessions/` that are looked into: Codex makes three levels."""

_NEWEST_NAMED = 3
_NEWEST = re.compile(r"@(\d*)\Z")
_FRAGMENT = re.compile(r"[0-9a-fA-F-]+\Z")
_PATH_SUFFIXES = (".jsonl", ".jsonl.zst", ".json")


class StoredRollout(NamedTuple):
    """One rollout file in a home."""

    path: Path
    name: RolloutName
    archived: bool


class _Folder(NamedTuple):
    """One folder as it was listed: its rollouts, and the names of the folders in it."""

    changed_ns: int | None
    entries: list[StoredRollout | str]


class Home:
    """A folder of rollouts. `path` is absolute and free of symbolic links.

    `passed_over` holds what the last look could not list, each as a `RolloutUnreadable`.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._given = path if os.path.isabs(path) else os.path.join(os.getcwd(), path)
        self.passed_over: list[RolloutUnreadable] = []

    @cached_property
    def path(self) -> Path:
        """Looked for on the disk when it is asked for first, so that a home may be named on any loop."""
        return Path(os.path.realpath(self._given))

    @classmethod
    def resolve(cls, flag: str | None = None, environ: Mapping[str, str] | None = None) -> Home:
        """The home that `flag` names, else `ROLLOUT_HOME`, else `$XDG_STATE_HOME/rollout`.

        It need not exist. Empty texts count as not given.
        """
        environ = os.environ if environ is None else environ
        named = flag or environ.get("ROLLOUT_HOME")
        if named:
            return cls(Path(named).expanduser())
        from platformdirs import user_state_path  # 13 ms that most calls don't need

        return cls(user_state_path("rollout", appauthor=False))

    def __repr__(self) -> str:
        return f"Home({os.fspath(self._given)!r})"

    def new_rollout_path(self, thread_id: str, *, created: datetime | None = None) -> Path:
        """Where the first rollout of a thread goes: `sessions/YYYY/MM/DD/rollout-…-<id>.jsonl`.

        `created` is local time, by default now. Nothing is made on disk.

        Raises:
            InvalidThreadId: the id is no UUID.
        """
        name = RolloutName.make(thread_id, created=created or datetime.now())
        return self.path / name.folder / name.text

    def rollouts(self, *, archived: bool = True) -> Iterator[StoredRollout]:
        """Every rollout file, the live ones first, each group from the newest name to the oldest.

        A compressed file beside its plain one is left out, and so is what a deletion that was begun
        would take (`doomed`). Odd entries are passed over.

        Raises:
            RolloutUnreadable: the home itself is there and can't be listed.
        """
        self.require_listable()
        doomed = DoomedFiles(self.path)
        for each in self._look_until_still(archived=archived):
            if each.path not in doomed:
                yield each

    def _look_until_still(self, *, archived: bool) -> list[StoredRollout]:
        """A file that gets another name meanwhile (archived, expanded) may be seen under neither: as long as
        names change it is looked again, a few times.
        """
        looks: list[list[StoredRollout]] = []
        seen: dict[Path, _Folder] = {}
        for _ in range(LOOKS_MAX):
            self.passed_over = []
            looks.append(list(self._walk_all(seen, archived=archived)))
            if all(_changed_ns(path) == folder.changed_ns for path, folder in seen.items()):
                return looks[-1]
        missed = only_earlier(looks, lambda each: each.path.name)
        return looks[-1] + [
            each for each in map(self._find_again, missed) if each and archived >= each.archived
        ]

    def _find_again(self, found: StoredRollout) -> StoredRollout | None:
        """Where it stands by now; None: it went away, or can't be looked at."""
        folder = str(found.path.parent.relative_to(self.path))
        for place in [*places_of(folder, found.path.name)] * LOOKS_MAX:
            path = self.path.joinpath(*place)
            try:
                if stat.S_ISREG(os.lstat(path).st_mode):
                    return StoredRollout(path, RolloutName.parse(path.name), place[0] == ARCHIVED_FOLDER)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                self.passed_over.append(RolloutUnreadable(path=path, cause=error, operation="look at"))
                return None
        return None

    def _walk_all(self, seen: dict[Path, _Folder], *, archived: bool) -> Iterator[StoredRollout]:
        yield from self._walk(self.path / SESSIONS_FOLDER, seen, archived=False, depth=_DEPTH_MAX)
        if archived:
            yield from self._walk(self.path / ARCHIVED_FOLDER, seen, archived=True, depth=0)

    def require_listable(self) -> None:
        """Make sure that the home, if it is there, is a folder.

        Raises:
            RolloutUnreadable: it isn't.
        """
        try:
            if not stat.S_ISDIR(os.stat(self.path).st_mode):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        except FileNotFoundError:
            return  # an empty home
        except OSError as error:
            raise RolloutUnreadable(path=self.path, cause=error, operation="list") from error

    def _walk(
        self, path: Path, seen: dict[Path, _Folder], *, archived: bool, depth: int
    ) -> Iterator[StoredRollout]:
        """`seen`: the folders as they were listed before; those that haven't changed aren't listed again."""
        changed_ns, folder = _changed_ns(path), seen.get(path)
        if folder is None or folder.changed_ns != changed_ns:
            entries = self._list(path, archived=archived)
            if entries is None:
                return
            folder = seen[path] = _Folder(changed_ns, entries)
        for each in folder.entries:
            if isinstance(each, StoredRollout):
                yield each
            elif depth > 0:
                yield from self._walk(path / each, seen, archived=archived, depth=depth - 1)

    def _list(self, path: Path, *, archived: bool) -> list[StoredRollout | str] | None:
        """The rollouts in a folder, and the names of the folders in it, the newest name first; None: it can't
        be listed.
        """
        try:
            with os.scandir(path) as listing:
                entries = sorted(listing, key=lambda entry: entry.name, reverse=True)
        except FileNotFoundError:
            return []
        except OSError as error:
            self.passed_over.append(RolloutUnreadable(path=path, cause=error, operation="list"))
            return None
        names = {entry.name for entry in entries}
        found: list[StoredRollout | str] = []
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                found.append(entry.name)
                continue
            name = RolloutName.match(entry.name)
            if name is None or not entry.is_file(follow_symlinks=False):
                continue
            if name.compressed and entry.name.removesuffix(".zst") in names:
                continue
            found.append(StoredRollout(path / entry.name, name, archived))
        return found

    def current_rollouts(self, *, archived: bool = True) -> dict[ThreadId, StoredRollout]:
        """The rollout that each thread goes on in, newest thread first.

        Of several files of one thread: a live one before an archived one, a plain one before its
        compressed twin, and the last revert before what it came from.
        """
        current: dict[ThreadId, StoredRollout] = {}
        for found in self.rollouts(archived=archived):
            known = current.get(found.name.thread_id)
            if known is None or rollout_rank(found) > rollout_rank(known):
                current[found.name.thread_id] = found
        return current

    def find_thread(self, thread_id: str) -> Path:
        """The current rollout of the thread of exactly this id.

        Raises:
            InvalidThreadId: the id is no UUID.
            ThreadNotFound: the home holds no such thread.
        """
        wanted = ThreadId.parse(thread_id)
        for _ in range(2):  # one look may miss what is taken out of the archive meanwhile
            files = [found for found in self.rollouts() if found.name.thread_id == wanted]
            if files:
                break
        else:
            self._not_found(thread_id)
        return max(files, key=rollout_rank).path

    def find(self, text: str) -> Path:
        """The rollout that a person names: a path, an id, the beginning or the end of one, `@`, `@2`.

        `@` is the newest thread of this home, `@2` the second newest. The end of an id serves as
        its beginning does, because ids made on one day begin alike.

        Raises:
            InvalidThreadId: the text can't be a name at all.
            ThreadNotFound: nothing fits.
            AmbiguousThread: several threads fit, or it is shorter than `FRAGMENT_MIN`.
        """
        if not text or "\0" in text:
            raise InvalidThreadId(text)
        newest = _NEWEST.match(text)
        if newest is not None:
            return self._find_newest(text, int(newest[1] or 1))
        if looks_like_path(text):
            if not os.path.lexists(text):
                self._not_found(text)
            return Path(text)
        found = self._find_fragment(text) if _FRAGMENT.match(text) else None
        if found is None and os.path.lexists(text):
            return Path(text)
        return found or self._not_found(text)

    def _find_newest(self, text: str, position: int) -> Path:
        threads = self.current_rollouts(archived=False)
        if not 1 <= position <= len(threads):
            self._not_found(text)
        return next(islice(threads.values(), position - 1, None)).path

    def _find_fragment(self, text: str) -> Path | None:
        lowered = text.lower()
        threads = self.current_rollouts()
        if lowered in threads:
            return threads[ThreadId(lowered)].path
        matches = [each for each in threads if each.startswith(lowered)]
        matches = matches or [each for each in threads if each.endswith(lowered)]
        if len(matches) > 1 or (matches and len(lowered) < FRAGMENT_MIN):
            raise AmbiguousThread(text, matches, minimum=FRAGMENT_MIN)
        return threads[matches[0]].path if matches else None

    def _not_found(self, text: str) -> NoReturn:
        error = ThreadNotFound(text, path=None if looks_like_path(text) else self.path)
        newest = list(islice(self.current_rollouts(), _NEWEST_NAMED))
        error.hint = (
            f"The newest are {', '.join(newest)}"
            if newest
            else "This home holds no threads yet. Try: rollout record"
        )
        raise error


def looks_like_path(text: str) -> bool:
    """Whether a person means a file by it: it holds a separator, or ends as rollouts do."""
    separators = (os.sep, os.altsep) if os.altsep else (os.sep,)
    return any(each in text for each in separators) or text.endswith(_PATH_SUFFIXES)


def rollout_rank(found: StoredRollout) -> tuple[bool, str, bool]:
    """Of several files of one thread the greatest is the one that it goes on in."""
    return (not found.archived, found.name.rollout_id or "", not found.name.compressed)


def _changed_ns(folder: Path) -> int | None:
    """When a name in it changed last; None: it isn't there, or can't be looked at."""
    try:
        return os.stat(folder).st_mtime_ns
    except OSError:  # who lists it is told
        return None
