"""Mutants: bugs planted into the product, to prove that the harnesses would find them.

Invariant: nothing is planted unless the environment names it, and only the processes of the
harnesses look there. Each plant is what a hurried change could really bring.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

from rollout import kept, repair, replay
from rollout.backlog import Backlog, Chunk
from rollout.barrier import Barrier, BarrierQueue, Goal, Receipt, answer_all
from rollout.file_sink import FileSink
from rollout.mended_file import MendedFile
from rollout.salvage import Salvage, Salvaged
from rollout.syscalls import FileCalls
from rollout.unwritten import Unwritten

__all__ = ["MUTANTS", "VARIABLE", "plant_from_environment"]

VARIABLE = "ROLLOUT_FAULTS_MUTANT"
MUTANTS: dict[str, Callable[[], None]] = {}


def _mutant(plant: Callable[[], None]) -> Callable[[], None]:
    MUTANTS[plant.__name__.removeprefix("_")] = plant
    return plant


def plant_from_environment() -> None:
    """Plant what the environment names; usually nothing."""
    name = os.environ.get(VARIABLE)
    if name:
        MUTANTS[name]()


def _replace(owner: Any, name: str, function: Callable[..., Any]) -> None:
    setattr(owner, name, function)


@_mutant
def _acknowledged_before_sync() -> None:
    """A sync is said to be done when it is begun."""
    honest = FileSink.sync_job

    def sync_job(self: FileSink, backlog: Backlog) -> Callable[[], None]:
        job = honest(self, backlog)

        def later() -> None:
            time.sleep(0.005)
            job()

        return threading.Thread(target=later, daemon=True).start

    _replace(FileSink, "sync_job", sync_job)


@_mutant
def _sync_error_ignored() -> None:
    """The error of fdatasync is dropped."""
    honest = FileCalls.datasync

    def datasync(self: FileCalls, descriptor: int) -> None:
        try:
            honest(self, descriptor)
        except OSError:
            return

    _replace(FileCalls, "datasync", datasync)


@_mutant
def _sync_only_retried() -> None:
    """After a failed sync the next one is believed, without writing anything again."""
    _replace(FileSink, "_pwrite_all", lambda *arguments: None)


@_mutant
def _old_tail_not_written_again() -> None:
    """What another process left in the cache is taken for safe."""
    honest = FileSink.take

    def take(self: FileSink, descriptor: int, *, torn_from: int | None) -> None:
        honest(self, descriptor, torn_from=torn_from)
        self._suspect = None

    _replace(FileSink, "take", take)


@_mutant
def _short_count_ignored() -> None:
    """A write is taken for complete whatever it returned, and the end of the file for where it ends."""

    def append_rest(self: FileSink, chunk: Chunk, view: memoryview) -> None:
        self._calls.write(self._file.descriptor, view)
        chunk.handed = len(view)
        self.end_bytes = self._file.size()

    _replace(FileSink, "_append_rest", append_rest)


@_mutant
def _batch_retried_whole() -> None:
    """After a short write all of it is written once more."""

    def write(self: FileCalls, descriptor: int, data: memoryview) -> int:
        if os.write(descriptor, data) < len(data):
            os.write(descriptor, data)
        return len(data)

    _replace(FileCalls, "write", write)


@_mutant
def _batch_retried_after_error() -> None:
    """After an error everything that waits is written, whatever stands there already."""

    def settle(self: FileSink, standing: Any, backlog: Backlog, size: int) -> None:
        self.end_bytes = size
        if backlog.waiting:
            backlog.requeue(backlog.waiting[0])
        self.epoch += 1

    _replace(FileSink, "_settle", settle)


@_mutant
def _eagain_is_nothing() -> None:
    """EAGAIN is passed over, as it is where a raw write returns None and nobody looks."""

    def append_rest(self: FileSink, chunk: Chunk, view: memoryview) -> None:
        try:
            self._calls.write(self._file.descriptor, view)
        except BlockingIOError:
            pass
        chunk.handed = len(view)
        self.end_bytes = self._file.size()

    _replace(FileSink, "_append_rest", append_rest)


@_mutant
def _folder_not_synced() -> None:
    """The file is synced, its name is not."""
    _replace(FileCalls, "sync_folder", lambda self, path: None)


@_mutant
def _parents_not_synced() -> None:
    """The folder of the file is synced, the folders made above it are not."""
    honest = FileCalls.make_folder

    def make_folder(self: FileCalls, path: str) -> None:
        honest(self, path)
        made.add(os.path.dirname(path))

    def sync_folder(self: FileCalls, path: str) -> None:
        if path not in made:
            honest_sync(self, path)

    made: set[str] = set()
    honest_sync = FileCalls.sync_folder
    _replace(FileCalls, "make_folder", make_folder)
    _replace(FileCalls, "sync_folder", sync_folder)


@_mutant
def _torn_tail_not_mended() -> None:
    """A recorder appends behind half a line."""
    honest = FileSink.take
    _replace(
        FileSink, "take", lambda self, descriptor, *, torn_from: honest(self, descriptor, torn_from=None)
    )


@_mutant
def _torn_tail_thrown_away() -> None:
    """A torn tail is cut without being set aside."""
    from rollout import file_sink

    _replace(file_sink, "keep_torn_tail", lambda *arguments, **named: None)


@_mutant
def _broken_line_left() -> None:
    """When a write fails the file is left to end inside a line."""
    _replace(FileSink, "_cut_broken_line", lambda self, chunk: None)


@_mutant
def _flush_answered_at_once() -> None:
    """A flush returns whether the items were handed over or not."""
    honest = BarrierQueue.receive

    def receive(self: BarrierQueue, *, chances: int) -> list[Barrier]:
        closers = honest(self, chances=chances)
        flushes = [each for each in self._waiting if each.goal is Goal.FLUSH]
        for barrier in flushes:
            barrier.receipt = Receipt(barrier.items, 0)
        answer_all(flushes)
        return closers

    _replace(BarrierQueue, "receive", receive)


@_mutant
def _failure_not_told() -> None:
    """A barrier whose try failed returns as if all were well."""

    def lose_chance(self: BarrierQueue, make_error: Callable[[], BaseException]) -> None:
        told = [each for each in self._waiting if each.goal is not Goal.ROOM]
        self.answer(told, 0)

    _replace(BarrierQueue, "lose_chance", lose_chance)


@_mutant
def _unwritten_not_synced() -> None:
    """A file of unwritten items is named before it is on the disk."""

    class Lazy(FileCalls):
        def datasync(self, descriptor: int) -> None:
            """Nothing."""

        def sync_folder(self, path: str) -> None:
            """Nothing."""

    _replace(kept, "FileCalls", Lazy)


@_mutant
def _unwritten_thrown_away() -> None:
    """What could not be written by the end is dropped."""

    async def run(self: Salvage, *, seconds_max: float) -> Salvaged:
        return Salvaged([], self._progress.pending_items, None)

    _replace(Salvage, "run", run)


@_mutant
def _replay_only_synced() -> None:
    """A replay that is tried again trusts the sync after one that failed."""
    _replace(MendedFile, "write_again", lambda self, start: None)


@_mutant
def _replay_without_looking() -> None:
    """A replay appends what was set aside, whatever stands there already."""

    def find_missing(unwritten: Unwritten, *_: Any, **__: Any) -> replay.Missing:
        return replay.Missing(unwritten.lines, 0)

    _replace(repair, "find_missing", find_missing)


@_mutant
def _path_not_checked() -> None:
    """Nobody looks whether the file at the path is still the one that is written."""
    _replace(FileSink, "verify", lambda self: None)
    _replace(FileSink, "_verify_synced", lambda self, *arguments: None)
