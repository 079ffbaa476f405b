"""Kept files: what could not stay in a rollout, or not get into it, set aside and never deleted.

Invariant: a kept file appears whole and on stable storage, or not at all; what it was taken from
is only cut afterwards. Mode 0600 in folders of 0700, whatever the umask; no link is followed.

Two kinds, named after their rollout and the byte where their content belongs:

    <rollout>.<offset>-<ms>-<random>.torn        the bytes of a torn tail, as they were
    <rollout>.<offset>-<ms>-<random>.unwritten   a header line, then whole lines that the recorder
                                                 accepted and could not write (`rollout.unwritten`)

They lie in `<home>/thread-store/kept/`, or beside a rollout that is in no home. Unwritten lines
that find no room there go to a folder of the user's own among the system's temporary files.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import re
import secrets
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from protocol.errors import NotARollout, RolloutUnreadable, RolloutWriteError
from protocol.timestamps import now_ms
from rollout.paths import ARCHIVED_FOLDER, SESSIONS_FOLDER
from rollout.syscalls import FileCalls, let_go
from rollout.unwritten import Piece, UnwrittenHeader, path_text, read_unwritten_header

__all__ = [
    "KeptFile",
    "find_home",
    "find_kept",
    "keep_torn_tail",
    "keep_unwritten",
    "kept_folder",
    "kept_stem",
    "make_folders",
    "spill_folder",
]

_log = logging.getLogger("rollout.kept")

TORN, UNWRITTEN = "torn", "unwritten"

BLOCK_BYTES = 1 << 20
NAME_BYTES_MAX = 150
"""A longer name of a rollout is shortened in the names of its kept files."""

_Path = str | os.PathLike[str]
_REST = re.compile(r"\.(?P<offset>\d+)-(?P<at_ms>\d+)-[0-9a-f]{8}\.(?P<kind>torn|unwritten)\Z")


class KeptFile(Struct, frozen=True):
    """A kept file that waits for somebody. `offset_bytes`: where its content belongs, or stood."""

    path: str
    kind: str
    """`torn` or `unwritten`."""
    offset_bytes: int
    at_ms: int
    size_bytes: int


# Where they lie


def find_home(rollout_path: _Path) -> Path | None:
    """The home of a rollout: the folder above its `sessions` or `archived_sessions`. No disk is touched."""
    for parent in Path(os.path.abspath(rollout_path)).parents:
        if parent.name in (SESSIONS_FOLDER, ARCHIVED_FOLDER):
            return parent.parent
    return None


def kept_folder(rollout_path: _Path) -> Path:
    """Where the kept files of a rollout belong; the folder need not exist."""
    home = find_home(rollout_path)
    return Path(os.path.abspath(rollout_path)).parent if home is None else home / "thread-store" / "kept"


def _own_folders(rollout_path: _Path) -> list[Path]:
    """Which folders on the way to the kept files are this library's own: no link may stand there."""
    folder = kept_folder(rollout_path)
    return [folder.parent, folder] if find_home(rollout_path) is not None else []


def spill_folder(base: _Path) -> Path:
    """The user's own folder among temporary files, for what the kept folder doesn't take."""
    owner = os.getuid() if hasattr(os, "getuid") else 0
    return Path(base) / f"rollout-kept-{owner}"


def kept_stem(rollout_path: _Path) -> str:
    """What its kept files' names begin with: its name; a compressed one keeps the name it had before."""
    name = os.path.basename(os.fspath(rollout_path)).removesuffix(".zst")
    encoded = os.fsencode(name)
    if len(encoded) <= NAME_BYTES_MAX:
        return name
    return (
        f"{encoded[: NAME_BYTES_MAX - 20].decode(errors='ignore')}-{hashlib.sha256(encoded).hexdigest()[:16]}"
    )


# Setting aside


def keep_torn_tail(
    descriptor: int, start: int, end: int, rollout_path: _Path, *, calls: FileCalls | None = None
) -> Path:
    """Copy the bytes from `start` to `end` aside, in blocks; a run of NULs takes no room on disk.

    On return the copy is on stable storage, so that the tail may be cut.

    Raises:
        RolloutWriteError: it can't be had; nothing may be cut.
    """
    calls = calls or FileCalls()

    def fill(target: int) -> None:
        position, size = start, 0
        while position < end:
            block = calls.pread(descriptor, min(BLOCK_BYTES, end - position), position)
            if not block:
                raise OSError(errno.ESTALE, "the rollout shrank while its tail was copied")
            position, size = position + len(block), size + len(block)
            if block.strip(b"\0"):
                _write_all(calls, target, block)
            else:
                calls.truncate(target, size)

    name = _kept_name(rollout_path, start, now_ms(), TORN)
    try:
        return _set_aside(calls, kept_folder(rollout_path), _own_folders(rollout_path), name, fill)
    except OSError as error:
        raise RolloutWriteError(
            path=rollout_path,
            operation="keep",
            cause=error,
            hint="Its torn tail must be set aside before anything is cut: make room for it",
            offset_bytes=start,
        ) from error


def keep_unwritten(
    rollout_path: _Path,
    lines: Iterable[Piece],
    *,
    thread_id: str | None,
    offset_bytes: int,
    items: int,
    spill_folders: Sequence[_Path] = (),
    calls: FileCalls | None = None,
) -> Path | None:
    """Set accepted lines aside that can't be written: with the kept files, else in a spill folder.

    `lines`: whole lines with their newlines, in pieces of any size. `offset_bytes`: where the first
    of them would have begun. Returns where they are, on stable storage; None if no place took them.
    """
    calls = calls or FileCalls()
    pieces = list(lines)
    header = UnwrittenHeader.describe(
        pieces, rollout_path=rollout_path, thread_id=thread_id, offset_bytes=offset_bytes, items=items
    )

    def fill(target: int) -> None:
        for piece in (header.encode(), *pieces):
            _write_all(calls, target, piece)

    name = _kept_name(rollout_path, offset_bytes, header.at_ms, UNWRITTEN)
    places = [(kept_folder(rollout_path), _own_folders(rollout_path))]
    places += [(folder, [folder]) for folder in map(spill_folder, spill_folders)]
    for folder, own in places:
        try:
            return _set_aside(calls, folder, own, name, fill)
        except OSError as error:
            _log.warning("unwritten items of %s can't be kept in %s: %s", rollout_path, folder, error)
    return None


def _kept_name(rollout_path: _Path, offset: int, at_ms: int, kind: str) -> str:
    return f"{kept_stem(rollout_path)}.{offset}-{at_ms}-{secrets.token_hex(4)}.{kind}"


def _set_aside(
    calls: FileCalls, folder: Path, own: list[Path], name: str, fill: Callable[[int], None]
) -> Path:
    """Write a file under a temporary name, sync it, give it its name, sync the folder."""
    make_folders(calls, folder, below=own[0].parent if own else None)
    for each in own:
        _require_own(each)
    temporary, final = folder / f".{name}.tmp", folder / name
    descriptor = calls.open_new(os.fspath(temporary))
    try:
        fill(descriptor)
        calls.datasync(descriptor)
        os.rename(temporary, final)
    except BaseException:
        calls.unlink(os.fspath(temporary))
        raise
    finally:
        let_go(calls, descriptor, os.fspath(temporary))
    calls.sync_folder(os.fspath(folder))
    return final


def _write_all(calls: FileCalls, descriptor: int, data: Piece) -> None:
    view = memoryview(data)
    while view:
        written = calls.write(descriptor, view)
        if not written:
            raise OSError(errno.EIO, "write returned 0")
        view = view[written:]


def make_folders(calls: FileCalls, folder: Path, *, below: Path | None = None) -> None:
    """Make the folder and those above it: private, and on stable storage.

    `below`: those under it are brought to stable storage also if they are there already. Whoever made them
    may have died before that, or was refused it; nobody else would ever do it.
    """
    missing, above = [], folder
    while not os.path.lexists(above):
        missing.append(above)
        above = above.parent
    for each in reversed(missing):
        try:
            calls.make_folder(os.fspath(each))
        except FileExistsError:
            pass  # another process was quicker, and has perhaps not synced it yet
        calls.sync_folder(os.fspath(each.parent))
    if below is not None and above != below and below in above.parents:
        for each in (above, *above.parents[: above.parents.index(below)]):
            calls.sync_folder(os.fspath(each.parent))


def _require_own(folder: Path) -> None:
    """Refuse a folder that may have been planted."""
    if not _is_own(folder):
        raise PermissionError(errno.EPERM, "it is a link, a file or somebody else's folder", str(folder))


def _is_own(folder: Path) -> bool:
    status = os.lstat(folder)
    return stat.S_ISDIR(status.st_mode) and (not hasattr(os, "geteuid") or status.st_uid == os.geteuid())


# Finding again


def find_kept(rollout_path: _Path, *, spill_folders: Sequence[_Path] | None = None) -> list[KeptFile]:
    """The kept files of a rollout that still wait, oldest first. Replayed ones are left out.

    `spill_folders`: by default the system's folder for temporary files.

    Raises:
        RolloutUnreadable: a folder is there and can't be listed.
    """
    if spill_folders is None:
        spill_folders = [tempfile.gettempdir()]
    found = list(_kept_in(kept_folder(rollout_path), rollout_path))
    for folder in map(spill_folder, spill_folders):
        found += [each for each in _kept_in(folder, rollout_path, own=True) if _is_of(each, rollout_path)]
    return sorted(found, key=lambda each: (each.at_ms, each.offset_bytes, each.path))


def _kept_in(folder: Path, rollout_path: _Path, *, own: bool = False) -> Iterator[KeptFile]:
    try:
        if own and not _is_own(folder):
            return
        with os.scandir(folder) as listing:
            entries = list(listing)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise RolloutUnreadable(path=folder, cause=error, operation="list") from error
    stem = kept_stem(rollout_path)
    for entry in entries:
        rest = _REST.match(entry.name, len(stem)) if entry.name.startswith(stem) else None
        size = None if rest is None else _size_of_regular(entry)
        if rest is not None and size is not None:
            yield KeptFile(entry.path, rest["kind"], int(rest["offset"]), int(rest["at_ms"]), size)


def _size_of_regular(entry: os.DirEntry[str]) -> int | None:
    """None: it is no regular file, or gone (a replay that ended just now renames it)."""
    try:
        status = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RolloutUnreadable(path=entry.path, cause=error, operation="look at") from error
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _is_of(kept: KeptFile, rollout_path: _Path) -> bool:
    """In a spill folder rollouts of several homes may share a name: the header tells them apart."""
    try:
        return read_unwritten_header(kept.path).rollout == path_text(rollout_path)
    except NotARollout:
        return True  # damaged: better reported for one rollout too many than for none
