"""Erasing: doing what a journal says, from its beginning or from wherever it was cut short.

Invariant: what is done twice is done once, and the journal goes when all of it is done and on stable storage.
One file that can't be had keeps no other from being done. What another program changed meanwhile is left,
and told (`rollout.overwriting`).
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from protocol.errors import RolloutError, RolloutWriteError
from rollout.erase_journal import EraseCalls, ErasedFile, EraseJournal, find_journals, read_journal
from rollout.kept import find_home
from rollout.overwriting import overwrite_file, remove_path, wipe_file
from rollout.paths import ARCHIVED_FOLDER, RolloutName
from rollout.thread_lock import hold_thread_lock

__all__ = ["carry_out", "delete_derived", "finish_erasures"]

_log = logging.getLogger("rollout.erasing")

_HINT = "What is left is written down: rollout erase --finish goes on with it, and so does the next opening"


def finish_erasures(
    rollout_path: str | os.PathLike[str], *, thread_id: str | None = None, calls: EraseCalls | None = None
) -> list[str]:
    """Go on with what was cut short in the home that this rollout lies in. Returns what could not be done.

    `thread_id`: whose writer the caller is. Costs one look into a folder where there is nothing to do. What
    another live writer holds is left: that one has done its part when it opened its thread.
    """
    calls = calls or EraseCalls()
    left: list[str] = []
    try:
        for path in find_journals(rollout_path):
            journal = read_journal(path, calls=calls)
            if journal is not None:
                left += carry_out(journal, held=frozenset({thread_id}), calls=calls)
    except (RolloutError, OSError) as error:
        left.append(str(error))
    for each in left:
        _log.warning("an erasure is not finished: %s", each)
    return left


def carry_out(
    journal: EraseJournal,
    *,
    held: frozenset[str | None] = frozenset(),
    locked: frozenset[str] = frozenset(),
    calls: EraseCalls,
    progress: Callable[[int], None] | None = None,
) -> list[str]:
    """Do all that a journal says, and take it away. Returns what could not be done; then it stays.

    `held`: the threads whose writers the caller keeps out. `locked`: files that it has flocked. `progress` is
    called with the bytes of each file.

    Raises:
        RolloutWriteError: the system refuses; the journal stays.
    """
    left: list[str] = []
    failed: RolloutWriteError | None = None
    for file in journal.files:
        try:
            with _kept_out(file, held):
                if not _do(file, calls, locked=file.path in locked or file.thread_id is not None):
                    left.append(_changed(file, journal))
        except RolloutError as error:
            left.append(str(error))
        except OSError as error:
            failed = failed or _failure(file.path, error)
        if progress is not None:
            progress(sum(each.size for each in file.patches))
    try:
        if journal.derived is not None:
            delete_derived(journal.derived, calls)
        if not left and failed is None:
            remove_path(journal.path, calls)
    except OSError as error:
        failed = failed or _failure(journal.path, error)
    if failed is not None:
        raise failed from failed.__cause__
    return left


def _changed(file: ErasedFile, journal: EraseJournal) -> str:
    return f"{file.path}: another program changed it meanwhile; erase again, then delete {journal.path}"


def _failure(path: str, cause: OSError) -> RolloutWriteError:
    failure = RolloutWriteError(path=path, operation="erase", cause=cause, hint=_HINT)
    failure.__cause__ = cause
    return failure


def _kept_out(file: ErasedFile, held: frozenset[str | None]) -> AbstractContextManager[None]:
    if file.thread_id is None or file.thread_id in held:
        return nullcontext()
    return hold_thread_lock(file.path, file.thread_id)


def _do(file: ErasedFile, calls: EraseCalls, *, locked: bool) -> bool:
    """False: what stands there isn't what was written down."""
    path = _find_again(file.path)
    if path is None:
        return True  # it is gone, and what it held with it
    if file.action == "remove":
        wipe_file(path, calls)
        return True
    return overwrite_file(path, file, calls, locked=locked)


def _find_again(path: str) -> str | None:
    """Where a file lies now that was archived, taken out again, compressed, expanded or replayed since."""
    plain = path.removesuffix(".zst")
    base = os.path.basename(plain)
    name = RolloutName.match(base)
    places = [plain, f"{plain}.zst", f"{path}.replayed"]
    home = find_home(plain)
    if name is not None and home is not None and name.created is not None:
        for other in (os.fspath(home / name.folder), os.fspath(home / ARCHIVED_FOLDER)):
            places += [os.path.join(other, base), os.path.join(other, f"{base}.zst")]
    return path if os.path.lexists(path) else next(filter(os.path.lexists, places), None)


# What was made of it

_GUARDS = frozenset({".guard", ".list-index"})
"""Files without a content, which others have locked."""


def delete_derived(folder: str, calls: EraseCalls) -> None:
    """Delete the derived files of a home, all of them: an index holds what is erased where nobody finds it.

    Raises:
        OSError: the system refuses.
    """
    try:
        if not stat.S_ISDIR(os.lstat(folder).st_mode):
            return  # a link leads out of the home
        with os.scandir(folder) as listing:
            names = [
                each.path
                for each in listing
                if each.name not in _GUARDS and not each.is_dir(follow_symlinks=False)
            ]
    except (FileNotFoundError, NotADirectoryError):
        return
    for path in names:
        try:
            calls.unlink(path)
        except FileNotFoundError:
            continue  # its maker took it away
    if names:
        calls.sync_folder(folder)
