"""Mutants of what a store does: forks, upkeep, erasing, locks. As `mutants`, in whose table they stand."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rollout import erase_journal, kept
from rollout.erase_journal import EraseCalls, ErasedFile, EraseJournal
from rollout.staged_file import StagedFile
from rollout.syscalls import FileCalls
from tests.faults.mutants import planted, replace
from thread_store import local_threads
from thread_store.erasing import erase
from thread_store.locks import lease, lock_file
from thread_store.locks.folder import LockFolder
from thread_store.locks.holder import Verdict
from thread_store.turns.tool_call import RecordedCall
from thread_store.upkeep import archive, removal, successor
from thread_store.upkeep.calls import UpkeepCalls

__all__: list[str] = []


@planted
def _staged_not_synced() -> None:
    """A new file (a fork, a compressed rollout) gets its name before it is on the disk."""
    honest = StagedFile.write

    def write(self: StagedFile, fill: Callable[[int], None], **options: Any) -> None:
        honest(self, fill, **{**options, "durable": False})

    replace(StagedFile, "write", write)


@planted
def _fork_not_settled() -> None:
    """The name of a fork is not synced."""
    replace(StagedFile, "settle", lambda self: os.unlink(self.temporary))


@planted
def _archive_not_synced() -> None:
    """A thread is moved, and neither folder is synced."""

    def move(source: str, target: str, place: Any, fence: Callable[[], None]) -> None:
        Path(target).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.rename(source, target)

    replace(archive, "_move", move)


@planted
def _original_removed_first() -> None:
    """A rollout is removed as soon as its compressed form is written, before that has its name."""
    honest = successor._Change._stage

    def stage(self: successor._Change, *arguments: Any) -> None:
        honest(self, *arguments)
        self._calls.unlink(self.source)

    replace(successor._Change, "_stage", stage)
    replace(successor._Change, "_require_unchanged", lambda self: None)
    replace(successor._Change, "_remove_source", lambda self: None)


@planted
def _erased_without_journal() -> None:
    """An erasure begins before it is written down."""

    def write_journal(
        path: str, files: Sequence[ErasedFile], *, derived: str | None, calls: EraseCalls
    ) -> EraseJournal:
        return EraseJournal(path=f"{path}.nowhere", at_ms=0, derived=derived, files=tuple(files))

    replace(erase, "write_journal", write_journal)


@planted
def _home_not_synced() -> None:
    """The name of a new home is not synced: the lock made it, and the recorder finds it there."""
    replace(LockFolder, "_sync_name", lambda self, path: None)


@planted
def _folders_synced_once() -> None:
    """A folder that was made, and could not be synced, is taken for synced the next time."""
    honest = kept.make_folders

    def make_folders(calls: FileCalls, folder: Path, *, below: Path | None = None) -> None:
        honest(calls, folder)

    for module in (archive, removal, erase_journal, kept):
        replace(module, "make_folders", make_folders)


@planted
def _fork_left_behind() -> None:
    """A fork that was made and can't be opened stays, though it was said that nothing was made."""

    def open_made(self: Any, paths: Sequence[str], *arguments: Any) -> Any:
        return self._open_core(paths[0], *arguments)

    replace(local_threads.LocalThreads, "_open_made", open_made)


@planted
def _removed_without_journal() -> None:
    """A deletion unlinks what it wants to, and then fails to sync the folder."""
    honest = UpkeepCalls.sync_folder

    def sync_folder(self: UpkeepCalls, path: str) -> None:
        if os.path.basename(os.path.dirname(path)) != "thread-store":
            return
        honest(self, path)

    replace(UpkeepCalls, "sync_folder", sync_folder)


@planted
def _tool_runs_unrecorded() -> None:
    """A tool runs as soon as its start is accepted."""

    async def enter(self: RecordedCall) -> RecordedCall:
        await self._recorder.record(self.start())
        self.note(type(self.phase).STARTED)
        return self

    replace(RecordedCall, "__aenter__", enter)


# Locks


@planted
def _flock_not_taken() -> None:
    """Whoever asks for a flock has it."""
    replace(lock_file, "try_flock", lambda calls, descriptor: True)


@planted
def _lease_of_the_living_taken() -> None:
    """Every lease counts as that of somebody dead."""
    replace(lease, "may_act", lambda standing: Verdict.DEAD)


@planted
def _path_of_lock_not_checked() -> None:
    """A flock counts, whatever file the path means by now: who was taken over from goes on."""
    replace(lock_file.LockFile, "stands_at_path", lambda self: True)
