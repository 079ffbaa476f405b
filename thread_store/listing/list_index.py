"""The list index: facts and names that were read before (`<home>/thread-store/derived/list.sqlite`).

Invariant: never the truth, and never in the way. A row counts only if its checksum is right and the file or
folder that it speaks of is as it was then (size, time and inode; device, inode and time). What is missing is
read again; an index that is corrupt, locked, read-only or of a newer version is done without, and `note` says
so, once. Nothing raises.

Theory of operation. It is opened for one look and closed again: no connection is ever shared between
threads or inherited by a forked child. Its journal is a rollback journal and not a write-ahead log: a list
writes seldom and little, and a log would need memory shared by mapping a file, which another process may
shrink under us, and can't be had on network disks. Rows are written at the end of a look, in one
transaction. A corrupt file is removed by the next one who opens it: under a flock on `.list-index`, that
everybody holds shared while the index is open, so that no journal of somebody else meets a new file.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from array import array
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import NamedTuple, Self
from urllib.parse import quote_from_bytes

import msgspec

from rollout.syscalls import drop
from thread_store.listing.folder_names import FolderNames, FolderState
from thread_store.listing.folder_rows import (
    checksum_of,
    decode_names,
    decode_summary,
    decode_tails,
    encode_names,
    encode_summary,
)
from thread_store.listing.index_guard import INDEX_NAME, IndexGuard, remove_index
from thread_store.listing.migrations import IndexNotUsable, migrate
from thread_store.listing.rollout_facts import FACTS_VERSION, RolloutFacts

__all__ = ["FileStamp", "ListIndex"]

_BUSY_SECONDS = 0.25
_RACY_NS = 2_000_000_000
"""A file that was written later than that before it was read may change again within the same tick of the
file system's clock: what was read of it isn't kept."""

_AT_ONCE = 500
_KEPT_AT_ONCE = 5000
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(RolloutFacts).decode


class FileStamp(NamedTuple):
    """A file from the home on, and what tells that it is as it was."""

    path: str
    size: int
    mtime_ns: int
    inode: int


class ListIndex:
    """The index of one home, open for as long as the block runs. `note`: why it was done without."""

    def __init__(self, home: str) -> None:
        self._folder = os.path.join(home, "thread-store", "derived")
        self._path = os.path.join(self._folder, INDEX_NAME)
        self.note: str | None = None
        self._connection: sqlite3.Connection | None = None
        self._guard = IndexGuard(self._folder)
        self._folders: dict[str, tuple[FolderState, bytes, int]] = {}
        self._new_folders: dict[str, tuple[FolderState, FolderNames]] = {}
        self._new_facts: dict[FileStamp, bytes] = {}
        self._new_several: tuple[int, set[int]] | None = None

    def __enter__(self) -> Self:
        try:
            self._open()
        except (OSError, sqlite3.Error, IndexNotUsable) as error:
            self._give_up(error)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._write_or_give_up()
        finally:
            self._close()

    # Opening

    def _open(self) -> None:
        try:
            status = os.lstat(self._path)
        except (FileNotFoundError, NotADirectoryError):
            return  # it is made when there is something to write
        if not stat.S_ISREG(status.st_mode):
            raise IndexNotUsable("something else stands in its place")
        self._hold(create=False)
        self._connect()
        if self._is_current():
            self._load_folders()

    def _hold(self, *, create: bool) -> None:
        if not self._guard.hold(create=create):
            raise IndexNotUsable("another process is making it anew")

    def _connect(self) -> sqlite3.Connection:
        """Also to read: what a killed writer left half done is undone by who opens it to write. Where nothing
        may be written SQLite opens it to read.
        """
        self._disconnect()
        uri = f"file:{quote_from_bytes(os.fsencode(self._path))}?mode=rw"
        self._connection = connection = sqlite3.connect(
            uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        connection.execute("PRAGMA mmap_size = 0")
        connection.execute("PRAGMA trusted_schema = OFF")
        return connection

    def _is_current(self) -> bool:
        """Whether the tables are there; an index that is half made is written anew at the end."""
        assert self._connection is not None
        try:
            self._connection.execute("SELECT 1 FROM facts, folders, folder_names, several LIMIT 0")
        except sqlite3.OperationalError as error:
            if "no such table" not in str(error):
                raise
            self._disconnect()
            return False
        return True

    def _load_folders(self) -> None:
        assert self._connection is not None
        rows = self._connection.execute(
            "SELECT folder, device, inode, mtime_ns, summary, checksum FROM folders"
        )
        for folder, device, inode, mtime_ns, summary, checksum in rows:
            self._folders[folder] = FolderState(device, inode, mtime_ns), summary, checksum

    # Looking

    def find_folder(
        self, folder: str, state: FolderState, relist: Callable[[], list[str]]
    ) -> FolderNames | None:
        """The names in a folder, if it hasn't changed since they were kept. `relist` lists them anew."""
        key = _text(folder)
        found = self._folders.get(key)
        if found is None or found[0] != state or not isinstance(found[1], bytes):
            return None
        if checksum_of(found[1], key, *state) != found[2]:
            return None

        def load() -> list[str]:
            content = self._fetch("SELECT names, checksum FROM folder_names WHERE folder = ?", key, *state)
            return relist() if content is None else decode_names(content)

        def load_tails() -> array[int] | None:
            content = self._fetch(
                "SELECT tails, tails_checksum FROM folder_names WHERE folder = ?", key, *state
            )
            return None if content is None else decode_tails(content)

        return decode_summary(found[1], load, load_tails)

    def _fetch(self, query: str, key: object, *about: object) -> bytes | None:
        """The content of a row that is asked for by its key, if its checksum is right."""
        if self._connection is None:
            return None
        try:
            row = self._connection.execute(query, (key,)).fetchone()
        except sqlite3.Error as error:
            self._give_up(error)
            return None
        if row is None or not isinstance(row[0], bytes) or checksum_of(row[0], key, *about) != row[1]:
            return None
        return row[0]

    def find_several(self, states: int) -> set[int] | None:
        """The tails of threads that have several files, if all folders are as they were."""
        content = self._fetch("SELECT tails, checksum FROM several WHERE home = ?", 1, states)
        return None if content is None else set(decode_tails(content))

    def keep_several(self, states: int, several: set[int]) -> None:
        """Keep them, if the index can be written."""
        self._new_several = states, several

    def keep_folder(self, folder: str, state: FolderState, names: FolderNames) -> None:
        """Keep them, if the index can be written."""
        self._new_folders[_text(folder)] = state, names

    def find_facts(self, files: Sequence[FileStamp]) -> dict[FileStamp, RolloutFacts]:
        """The facts of those files that haven't changed since they were kept."""
        found: dict[FileStamp, RolloutFacts] = {}
        try:
            for start in range(0, len(files), _AT_ONCE):
                found.update(self._find_some(files[start : start + _AT_ONCE]))
        except sqlite3.Error as error:
            self._give_up(error)
        return found

    def _find_some(self, files: Sequence[FileStamp]) -> Iterable[tuple[FileStamp, RolloutFacts]]:
        if self._connection is None:
            return []
        wanted = {_text(each.path): each for each in files}
        marks = ",".join("?" * len(wanted))
        rows = self._connection.execute(
            f"SELECT path, size, mtime_ns, inode, facts, checksum FROM facts"
            f" WHERE version = {FACTS_VERSION} AND path IN ({marks})",
            list(wanted),
        ).fetchall()
        found = []
        for path, size, mtime_ns, inode, content, checksum in rows:
            stamp = wanted.get(path)
            if stamp is None or (size, mtime_ns, inode) != stamp[1:] or not isinstance(content, bytes):
                continue
            if checksum == _checksum(stamp, content):
                found.append((stamp, _decode(content)))
        return found

    def keep_facts(self, stamp: FileStamp, facts: RolloutFacts) -> None:
        """Keep them, if the index can be written."""
        if stamp.mtime_ns < time.time_ns() - _RACY_NS:
            try:
                self._new_facts[stamp] = _encode(facts)
            except (UnicodeEncodeError, OverflowError):
                return  # a lone surrogate, a number of many digits: it is read again each time
            if len(self._new_facts) >= _KEPT_AT_ONCE:
                self._write_or_give_up()

    # Writing

    def _write_or_give_up(self) -> None:
        try:
            self._write()
        except (OSError, sqlite3.Error, IndexNotUsable) as failure:
            self._give_up(failure)
        self._new_facts.clear()
        self._new_folders.clear()
        self._new_several = None

    def _write(self) -> None:
        if self.note is not None or not (self._new_facts or self._new_folders or self._new_several):
            return
        if not os.path.lexists(self._path):
            self._make()
        self._hold(create=True)
        connection = self._connect()
        migrate(connection)
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(
            "INSERT OR REPLACE INTO folders (folder, device, inode, mtime_ns, summary, checksum)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            (
                (folder, *state, content := encode_summary(names), checksum_of(content, folder, *state))
                for folder, (state, names) in self._new_folders.items()
            ),
        )
        connection.executemany(
            "INSERT OR REPLACE INTO folder_names (folder, mtime_ns, names, checksum, tails, tails_checksum)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            (
                (
                    folder,
                    state.mtime_ns,
                    content := encode_names(names),
                    checksum_of(content, folder, *state),
                    tails := names.tails.tobytes(),
                    checksum_of(tails, folder, *state),
                )
                for folder, (state, names) in self._new_folders.items()
            ),
        )
        if self._new_several is not None:
            states, several = self._new_several
            content = array("Q", sorted(several)).tobytes()
            connection.execute(
                "INSERT OR REPLACE INTO several (home, states, tails, checksum) VALUES (1, ?, ?, ?)",
                (str(states), content, checksum_of(content, 1, states)),
            )
        connection.executemany(
            "INSERT OR REPLACE INTO facts (path, version, size, mtime_ns, inode, facts, checksum)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            [
                (_text(stamp.path), FACTS_VERSION, *stamp[1:], content, _checksum(stamp, content))
                for stamp, content in self._new_facts.items()
            ],
        )
        connection.execute("COMMIT")

    def _make(self) -> None:
        """An empty file of mode 0600: SQLite gives its journal the same."""
        for folder in (os.path.dirname(self._folder), self._folder):
            try:
                os.mkdir(folder, 0o700)
                os.chmod(folder, 0o700)  # whatever the umask
            except FileExistsError:
                if not stat.S_ISDIR(os.lstat(folder).st_mode):
                    raise
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
        try:
            if hasattr(os, "fchmod"):
                os.fchmod(descriptor, 0o600)
        finally:
            drop(descriptor, self._path)

    # Ending

    def _give_up(self, error: Exception) -> None:
        """Do without, and say why; what is corrupt is taken out of the way."""
        self._disconnect()
        self._folders.clear()
        broken = isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError)
        self.note = self.note or f"the list index is done without: {error}"
        if broken:
            self._guard.drop()
            removed = remove_index(os.path.dirname(os.path.dirname(self._folder)))
            self.note = f"the list index was corrupt ({error}) and is {'made anew' if removed else 'in use'}"

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _close(self) -> None:
        self._disconnect()
        self._guard.drop()


def _text(name: str) -> str:
    """A path as SQLite takes it: bytes that are no UTF-8 are escaped."""
    return name if name.isascii() else os.fsencode(name).decode(errors="backslashreplace")


def _checksum(stamp: FileStamp, content: bytes) -> int:
    return checksum_of(content, _text(stamp.path), *stamp[1:])
