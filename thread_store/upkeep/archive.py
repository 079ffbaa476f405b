"""The archive: threads that were set aside, flat in `archived_sessions/`, as Codex does it.

Invariant: each file is moved by one rename, bytes, mode and mtime as they were, and a thread is archived as
soon as its current rollout is. Who is killed leaves it there or not, whole and found once, and the same call
finishes what was begun. Called twice it does nothing more.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from protocol.errors import NotARollout, RolloutError, RolloutExists, RolloutWriteError
from rollout.kept import make_folders
from rollout.paths import ARCHIVED_FOLDER
from thread_store.home import Home, StoredRollout
from thread_store.upkeep.calls import UpkeepCalls
from thread_store.upkeep.successor import held_file, make_successor
from thread_store.upkeep.thread_files import ThreadFiles, live_path
from thread_store.upkeep.threads import HeldThread, Place, held_thread
from thread_store.upkeep.twins import drop_twin, twin_of

__all__ = ["Moved", "archive_thread", "unarchive_thread"]

_HINT = "What was moved stays moved, and the thread is whole; the same command goes on when the cause is gone"


class Moved(Struct, frozen=True, kw_only=True):
    """What an archiving did, or the way back. `paths`: where the files that were moved are now; none if all
    were there already."""

    thread_id: str
    path: str
    """Of the current rollout."""
    paths: tuple[str, ...]


def archive_thread(place: Place, thread_id: str, *, known: ThreadFiles | None = None) -> Moved:
    """Put a thread into the archive, with the rollouts that its reverts left. Blocks.

    On return it is on stable storage. A thread that others rest on may be archived. `known`: its files as
    they were found not long ago, which spares a look through the home.

    Raises:
        InvalidThreadId, ThreadNotFound: there is no such thread.
        ActiveWriter: somebody writes it; the error names them.
        RolloutExists: the archive has another rollout of that name.
        RolloutWriteError, RolloutUnreadable, LocksBusy: the system refuses; the thread is whole.
    """
    with held_thread(place, thread_id, known) as held:
        archive = place.home.path / ARCHIVED_FOLDER
        targets = [(each, archive / each.path.name) for each in held.files.rollouts if not each.archived]
        left = {live_path(place.home, each).parent for each in held.files.rollouts if each.archived}
        return _move_all(place, held, targets, left)


def unarchive_thread(place: Place, thread_id: str, *, known: ThreadFiles | None = None) -> Moved:
    """Take a thread out of the archive, back to the folder of its day. Blocks. As `archive_thread`."""
    with held_thread(place, thread_id, known) as held:
        archived = [each for each in reversed(held.files.rollouts) if each.archived]
        targets = [(each, live_path(place.home, each)) for each in archived]
        return _move_all(place, held, targets, {place.home.path / ARCHIVED_FOLDER})


def _move_all(
    place: Place, held: HeldThread, targets: list[tuple[StoredRollout, Path]], left: set[Path]
) -> Moved:
    """`left`: where those come from that were moved before; an earlier call may have failed to sync that."""
    moving = {found.path for found, _ in targets}
    settled = {each.path.parent for each in held.files.rollouts if each.path not in moving}
    paths = {each.path: each.path for each in held.files.rollouts}
    for found, target in targets:
        source = os.fspath(found.path)
        try:
            _move(source, os.fspath(target), place, held.fence)
        except OSError as error:
            if isinstance(error, RolloutError):
                raise
            raise RolloutWriteError(path=source, operation="move", cause=error, hint=_HINT) from error
        place.derived.follow(source, target)
        paths[found.path] = target
    for folder in sorted(settled | left if settled else settled):
        _sync(os.fspath(folder), place)
    current = max(held.files.rollouts, key=lambda each: each.name.rollout_id or "")
    return Moved(
        thread_id=held.files.thread_id,
        path=os.fspath(paths[current.path]),
        paths=tuple(os.fspath(target) for _, target in targets),
    )


def _move(source: str, target: str, place: Place, fence: Callable[[], None]) -> None:
    calls = place.calls
    make_folders(calls, Path(target).parent, below=place.home.path)
    _require_real_folders(target, place.home)
    for there in (target, twin_of(target)):
        if not drop_twin(source, there, calls) and there == target:
            raise RolloutExists(path=target, reason=f"it isn't what {source} was")
    if not _rename(source, target, calls, fence):
        make_successor(source, target, calls=calls, fence=fence)
    for folder in (os.path.dirname(target), os.path.dirname(source)):
        calls.sync_folder(folder)


def _rename(source: str, target: str, calls: UpkeepCalls, fence: Callable[[], None]) -> bool:
    """False: the target lies on another file system."""
    with held_file(source, calls) as descriptor:
        fence()
        try:
            calls.rename(source, target)
        except OSError as error:
            if error.errno == errno.EXDEV:
                return False
            if not _stands_at(target, descriptor):  # it was done, and yet reported as failed
                raise
    return True


def _sync(folder: str, place: Place) -> None:
    try:
        place.calls.sync_folder(folder)
    except FileNotFoundError:
        return  # it was never there, or the last file in it was moved and somebody tidied up
    except OSError as error:
        raise RolloutWriteError(path=folder, operation="sync", cause=error, hint=_HINT) from error


def _stands_at(path: str, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.lstat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _require_real_folders(target: str, home: Home) -> None:
    """Below the two folders of a home nobody looks through a link."""
    folder = Path(target).parent
    while len(folder.relative_to(home.path).parts) > 1:
        if folder.is_symlink():
            raise NotARollout(path=folder, reason="it is a link, which nobody looks through")
        folder = folder.parent
