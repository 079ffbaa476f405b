"""Mutants: bugs planted into the product, to prove that the harnesses would find them.

Invariant: nothing is planted unless the environment names it, and only the processes of the
harnesses look there. Each plant is what a hurried change could really bring.
"""

from __future__ import annotations

import importlib
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

__all__ = ["MUTANTS", "VARIABLE", "plant_from_environment", "planted", "replace"]

VARIABLE = "ROLLOUT_FAULTS_MUTANT"
MUTANTS: dict[str, Callable[[], None]] = {}


def planted(plant: Callable[[], None]) -> Callable[[], None]:
    """Put a plant into the table, by its name."""
    MUTANTS[plant.__name__.removeprefix("_")] = plant
    return plant


def plant_from_environment() -> None:
    """Plant what the environment names; usually nothing."""
    name = os.environ.get(VARIABLE)
    if name:
        if name not in MUTANTS:
            importlib.import_module("tests.faults.store_mutants")  # they stand in the same table
        MUTANTS[name]()


def replace(owner: Any, name: str, function: Callable[..., Any]) -> None:
    """Put a function in the place of one of the product."""
    setattr(owner, name, function)


@planted
def _acknowledged_before_sync() -> None:
    """A sync is said to be done when it is begun."""
    honest = FileSink.sync_job

    def sync_job(self: FileSink, backlog: Backlog) -> Callable[[], None]:
        job = honest(self, backlog)

        def later() -> None:
            time.sleep(0.005)
            job()

        return threading.Thread(target=later, daemon=True).start

    replace(FileSink, "sync_job", sync_job)


@planted
def _sync_error_ignored() -> None:
    """The error of fdatasync is dropped."""
    honest = FileCalls.datasync

    def datasync(self: FileCalls, descriptor: int) -> None:
        try:
            honest(self, descriptor)
        except OSError:
            return

    replace(FileCalls, "datasync", datasync)


@planted
def _sync_only_retried() -> None:
    """After a failed sync the next one is believed, without writing anything again."""
    replace(FileSink, "_pwrite_all", lambda *arguments: None)


@planted
def _old_tail_not_written_again() -> None:
    """What another process left in the cache is taken for safe."""
    honest = FileSink.take

    def take(self: FileSink, descriptor: int, *, torn_from: int | None) -> None:
        honest(self, descriptor, torn_from=torn_from)
        self._suspect = None

    replace(FileSink, "take", take)


@planted
def _short_count_ignored() -> None:
    """A write is taken for complete whatever it returned, and the end of the file for where it ends."""

    def append_rest(self: FileSink, chunk: Chunk, view: memoryview) -> None:
        self._calls.write(self._file.descriptor, view)
        chunk.handed = len(view)
        self.end_bytes = self._file.size()

    replace(FileSink, "_append_rest", append_rest)


@planted
def _batch_retried_whole() -> None:
    """After a short write all of it is written once more."""

    def write(self: FileCalls, descriptor: int, data: memoryview) -> int:
        if os.write(descriptor, data) < len(data):
            os.write(descriptor, data)
        return len(data)

    replace(FileCalls, "write", write)


@planted
def _batch_retried_after_error() -> None:
    """After an error everything that waits is written, whatever stands there already."""

    def settle(self: FileSink, standing: Any, backlog: Backlog, size: int) -> None:
        self.end_bytes = size
        if backlog.waiting:
            backlog.requeue(backlog.waiting[0])
        self.epoch += 1

    replace(FileSink, "_settle", settle)


@planted
def _eagain_is_nothing() -> None:
    """EAGAIN is passed over, as it is where a raw write returns None and nobody looks."""

    def append_rest(self: FileSink, chunk: Chunk, view: memoryview) -> None:
        try:
            self._calls.write(self._file.descriptor, view)
        except BlockingIOError:
            pass
        chunk.handed = len(view)
        self.end_bytes = self._file.size()

    replace(FileSink, "_append_rest", append_rest)


@planted
def _folder_not_synced() -> None:
    """The file is synced, its name is not."""
    replace(FileCalls, "sync_folder", lambda self, path: None)


@planted
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
    replace(FileCalls, "make_folder", make_folder)
    replace(FileCalls, "sync_folder", sync_folder)


@planted
def _torn_tail_not_mended() -> None:
    """A recorder appends behind half a line."""
    honest = FileSink.take
    replace(FileSink, "take", lambda self, descriptor, *, torn_from: honest(self, descriptor, torn_from=None))


@planted
def _torn_tail_thrown_away() -> None:
    """A torn tail is cut without being set aside."""
    from rollout import file_sink

    replace(file_sink, "keep_torn_tail", lambda *arguments, **named: None)


@planted
def _broken_line_left() -> None:
    """When a write fails the file is left to end inside a line."""
    replace(FileSink, "_cut_broken_line", lambda self, chunk: None)


@planted
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

    replace(BarrierQueue, "receive", receive)


@planted
def _failure_not_told() -> None:
    """A barrier whose try failed returns as if all were well."""

    def lose_chance(self: BarrierQueue, make_error: Callable[[], BaseException]) -> None:
        told = [each for each in self._waiting if each.goal is not Goal.ROOM]
        self.answer(told, 0)

    replace(BarrierQueue, "lose_chance", lose_chance)


@planted
def _unwritten_not_synced() -> None:
    """A file of unwritten items is named before it is on the disk."""

    class Lazy(FileCalls):
        def datasync(self, descriptor: int) -> None:
            """Nothing."""

        def sync_folder(self, path: str) -> None:
            """Nothing."""

    replace(kept, "FileCalls", Lazy)


@planted
def _unwritten_thrown_away() -> None:
    """What could not be written by the end is dropped."""

    async def run(self: Salvage, *, seconds_max: float) -> Salvaged:
        return Salvaged([], self._progress.pending_items, None)

    replace(Salvage, "run", run)


@planted
def _replay_only_synced() -> None:
    """A replay that is tried again trusts the sync after one that failed."""
    replace(MendedFile, "write_again", lambda self, start: None)


@planted
def _replay_without_looking() -> None:
    """A replay appends what was set aside, whatever stands there already."""

    def find_missing(unwritten: Unwritten, *_: Any, **__: Any) -> replay.Missing:
        return replay.Missing(unwritten.lines, 0)

    replace(repair, "find_missing", find_missing)


@planted
def _path_not_checked() -> None:
    """Nobody looks whether the file at the path is still the one that is written."""
    replace(FileSink, "verify", lambda self: None)
    replace(FileSink, "_verify_synced", lambda self, *arguments: None)
