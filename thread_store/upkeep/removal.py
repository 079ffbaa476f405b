"""Carrying deletions out: journal, unlink, and what is left of those whose process was killed.

Invariant: nothing is unlinked that no journal names, but for a thread of a single rollout on a full disk,
where one call of the system is the whole deletion. Only the very file that was named goes.
"""

from __future__ import annotations

import errno
import logging
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from protocol.errors import ActiveWriter, RolloutError, RolloutWriteError
from rollout.kept import make_folders
from rollout.paths import RolloutName
from rollout.staged_file import TEMPORARY_SUFFIX, StagedFile, remove_file
from thread_store.doomed import DoomedFile, DoomedThread, Journal, journal_folder, read_journals
from thread_store.forks.fork_copy import write_all
from thread_store.upkeep.references import References
from thread_store.upkeep.threads import Place
from thread_store.upkeep.title_removal import remove_titles

__all__ = ["begin_removal", "finish_deletions", "finish_removal", "translated_removal"]

_log = logging.getLogger("thread_store.upkeep")

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_HINT = "What was not deleted is whole; the same command goes on when the cause is gone"


def begin_removal(place: Place, doomed: Sequence[DoomedThread]) -> str | None:
    """Everything that must be done under the coordination lock; returns the journal that was written."""
    with translated_removal(place):
        _sweep(place)
        for thread in doomed:
            for each in thread.rollouts:
                place.derived.forget(place.home.path / each.path)
        journal, left = _write_journal_or_go_without(place, doomed)
        _unlink(place, _rollouts_of(left))
    return journal


def _write_journal_or_go_without(
    place: Place, doomed: Sequence[DoomedThread]
) -> tuple[str | None, Sequence[DoomedThread]]:
    """The journal, and what it is for. On a full disk threads of one rollout go first, and make room."""
    try:
        return _write_journal(place, doomed), doomed
    except OSError as error:
        if error.errno not in _FULL:
            raise
        single = [each for each in doomed if len({_rollout_id(file) for file in each.rollouts}) == 1]
        if not single:
            raise
        _unlink(place, _rollouts_of(single))
        left = [each for each in doomed if each not in single]
        return _write_journal(place, left) if left else None, left


def _rollout_id(file: DoomedFile) -> str:
    name = RolloutName.parse(os.path.basename(file.path))
    return name.rollout_id or name.thread_id


def _write_journal(place: Place, doomed: Sequence[DoomedThread]) -> str:
    calls, data = place.calls, Journal(threads=tuple(doomed)).encode()
    path = journal_folder(place.home.path) / f"{secrets.token_hex(8)}.json"
    staged = StagedFile(os.fspath(path), calls)
    try:
        make_folders(calls, path.parent, below=place.home.path)
        staged.write(lambda descriptor: write_all(calls, descriptor, data))
        staged.replace()
        calls.sync_folder(os.fspath(path.parent))
    except OSError:
        if staged.stands_at_path():
            calls.unlink(os.fspath(path))  # a power cut may take it, so nothing may go by it
        staged.discard()
        raise
    except BaseException:
        if not staged.stands_at_path():
            staged.discard()
        raise
    return os.fspath(path)


@contextmanager
def translated_removal(place: Place) -> Iterator[None]:
    """Say as `RolloutWriteError` what the system refuses in the block."""
    try:
        yield
    except OSError as error:
        if isinstance(error, RolloutError):
            raise
        raise RolloutWriteError(path=place.home.path, operation="delete", cause=error, hint=_HINT) from error


def _rollouts_of(threads: Iterable[DoomedThread]) -> list[DoomedFile]:
    return [each for thread in threads for each in thread.rollouts]


def _unlink(place: Place, files: Iterable[DoomedFile]) -> None:
    home, folders = place.home.path, set[str]()
    for each in files:
        if each.stands(home):
            try:
                place.calls.unlink(os.fspath(home / each.path))
            except FileNotFoundError:
                continue
            folders.add(os.path.dirname(home / each.path))
    for folder in folders:
        place.calls.sync_folder(folder)


def finish_removal(place: Place, doomed: Sequence[DoomedThread], journal: str | None) -> None:
    """What is done when no rollout is left: nobody needs the coordination lock for it."""
    with translated_removal(place):
        _unlink(place, [each for thread in doomed for each in thread.others])
        remove_titles(place.home.path, {each.thread_id for each in doomed}, calls=place.calls)
        if journal is not None:
            place.calls.unlink(journal)
            place.calls.sync_folder(os.path.dirname(journal))


def finish_deletions(place: Place) -> None:
    """Do what is left of deletions whose process was killed. Those that go on are left alone.

    A thread that others have come to rest on meanwhile, by a program that doesn't know of the journal,
    stays.

    Raises:
        LocksBusy, RolloutUnreadable, RolloutWriteError: the system refuses.
    """
    journals = read_journals(place.home.path)
    if not journals:
        if _temporaries(place):
            with place.locks.coordinated(), translated_removal(place):
                _sweep(place)
        return
    references = References(place.home)
    references.look()
    for path, journal in journals:
        with ExitStack() as stack:
            try:
                for thread in journal.threads:
                    lock = place.locks.acquire(thread.thread_id)
                    stack.callback(lock.release)
            except ActiveWriter:
                continue  # whoever deletes holds all of them until it is done
            if not os.path.lexists(path):
                continue
            with place.locks.coordinated(), translated_removal(place):
                references.look()
                doomed = [each for each in journal.threads if not _is_needed(each, references)]
                _unlink(place, _rollouts_of(doomed))
            finish_removal(place, doomed, path)


def _temporaries(place: Place) -> list[Path]:
    folder = journal_folder(place.home.path)
    try:
        return [folder / name for name in os.listdir(folder) if name.endswith(TEMPORARY_SUFFIX)]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _sweep(place: Place) -> None:
    """Journals that were never finished. They are written under the coordination lock, which is held now."""
    for each in _temporaries(place):
        remove_file(os.fspath(each), place.calls)


def _is_needed(thread: DoomedThread, references: References) -> bool:
    children = references.outside(map(_rollout_id, thread.rollouts), [thread.thread_id])
    if children:
        _log.warning("%s stays: %s rests on it", thread.thread_id, children[0].thread_id)
    return bool(children)
