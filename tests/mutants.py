"""The proof that the tests of the recorder can fail: `python -m tests.mutants [NAME …]`.

Each mutant is a bug that a hurried change could bring, planted by replacing a function in a
process of its own, in which the tests then run until the first one fails. Exit code 1: a mutant
was missed, or the tests fail without one. `--stateful`: let the random interleavings alone look
for those that touch the file.
"""

from __future__ import annotations

import argparse
import atexit
import dataclasses
import inspect
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio

from protocol.errors import PendingQueueFull
from rollout import blocking, core, file_lock, file_sink, live_file, pending, recorder, syscalls, writer
from rollout.alarm import Alarm
from rollout.backlog import Backlog, Chunk
from rollout.barrier import Barrier, BarrierQueue, Goal
from rollout.file_sink import FileSink
from rollout.live_file import LiveFile
from rollout.pending import Pending
from rollout.place import Place
from rollout.progress import Covered, Progress
from rollout.reconcile import Standing
from rollout.salvage import Salvage, Salvaged
from rollout.service import Service
from rollout.sink import SinkDisturbed
from rollout.sync_run import SyncRun
from rollout.syncing import Syncing
from rollout.syscalls import FileCalls
from rollout.timers import Timers
from rollout.writer import Writer

__all__ = ["MUTANTS", "main"]

PROJECT = Path(__file__).resolve().parent.parent
TESTS = tuple(
    f"tests/rollout/test_{name}.py"
    for name in (
        *("pending", "backlog", "reconcile", "barrier", "live_file", "file_lock", "file_sink"),
        *("writer", "blocking", "service", "recorder"),
        *("progress", "syncing", "place", "salvage", "ending", "alarm"),
    )
)
STATEFUL = ("tests/rollout/test_stateful.py",)
LIMIT_SECONDS = 240
"""A run that takes longer hangs: the mutant is caught."""

MUTANTS: dict[str, Callable[[], None]] = {}
ON_THE_FILE: set[str] = set()
"""Those that the stateful test must find too."""


def mutant(plant: Callable[[], None]) -> Callable[[], None]:
    MUTANTS[plant.__name__] = plant
    return plant


def on_the_file(plant: Callable[[], None]) -> Callable[[], None]:
    ON_THE_FILE.add(plant.__name__)
    return mutant(plant)


def plant(owner: Any, name: str, function: Any) -> None:
    assert hasattr(owner, name), f"{owner} has no {name} any more"
    setattr(owner, name, function)


def fix_attribute(owner: type, name: str, value: object) -> None:
    """An attribute of each instance that keeps one value, whatever is assigned."""
    assert f"self.{name}" in inspect.getsource(owner.__init__), f"{owner} has no {name} any more"
    setattr(owner, name, property(lambda self: value, lambda self, assigned: None))


def wrap(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    plant(owner, name, make(getattr(owner, name)))


# Writing


@on_the_file
def batch_retried_after_short_write() -> None:
    """After a short write the whole chunk is written once more."""

    def append_rest(self: FileSink, chunk: Chunk, view: memoryview) -> None:
        for _ in range(50):
            written = self._calls.write(self._file.descriptor, view)
            self.end_bytes += written
            if written == len(view):
                break
        chunk.handed = len(view)

    plant(FileSink, "_append_rest", append_rest)


@on_the_file
def short_count_ignored() -> None:
    """A write is taken for complete whatever it returned."""

    def append_rest(self: FileSink, chunk: Chunk, view: memoryview) -> None:
        self._calls.write(self._file.descriptor, view)
        chunk.handed = len(view)
        self.end_bytes = self._file.size()

    plant(FileSink, "_append_rest", append_rest)


@on_the_file
def eagain_passed_over() -> None:
    """EAGAIN counts as written."""

    def make(honest: Any) -> Any:
        def append_rest(self: FileSink, chunk: Chunk, view: memoryview) -> None:
            try:
                honest(self, chunk, view)
            except BlockingIOError:
                chunk.handed = len(view)

        return append_rest

    wrap(FileSink, "_append_rest", make)


@on_the_file
def batch_retried_after_error() -> None:
    """After an error everything that waits is written, whatever stands there already."""

    def settle(self: FileSink, standing: Standing, backlog: Backlog, size: int) -> None:
        self.end_bytes = size
        if backlog.waiting:
            backlog.requeue(backlog.waiting[0])
        self.epoch += 1

    plant(FileSink, "_settle", settle)


@mutant
def broken_line_left_until_the_next_write() -> None:
    """Readers see half a line while the disk is full."""
    plant(FileSink, "_cut_broken_line", lambda self, chunk: None)


@on_the_file
def foreign_bytes_cut() -> None:
    """What another program appended is taken for ours."""

    def make(honest: Any) -> Any:
        def compare(*given: Any, **named: Any) -> Standing:
            return dataclasses.replace(honest(*given, **named), foreign_bytes=0, foreign_behind=0)

        return compare

    wrap(file_sink, "compare", make)


@mutant
def half_line_of_others_not_ended() -> None:
    """Ours is glued to what another program left."""
    fix_attribute(FileSink, "_needs_newline", False)


@mutant
def newline_of_its_own_write() -> None:
    """The newline before our line is no part of what is written again after a failed sync."""

    def make(honest: Any) -> Any:
        def append(self: FileSink, chunk: Chunk) -> None:
            if self._needs_newline and not chunk.handed:
                self.end_bytes += self._calls.write(self._file.descriptor, b"\n")
                self._needs_newline = False
            honest(self, chunk)

        return append

    wrap(FileSink, "append", make)


# Syncing


@on_the_file
def sync_error_ignored() -> None:
    """The error of a sync is dropped."""

    def make(honest: Any) -> Any:
        def sync_job(self: FileSink, backlog: Backlog) -> Callable[[], None]:
            job = honest(self, backlog)

            def quiet() -> None:
                try:
                    job()
                except OSError:
                    return

            return quiet

        return sync_job

    wrap(FileSink, "sync_job", make)


@on_the_file
def sync_only_retried() -> None:
    """After a failed sync the next one is believed, without writing anything again."""
    plant(FileSink, "_pwrite_all", lambda *arguments: None)


@on_the_file
def rewrite_forgotten_when_no_descriptor_is_left() -> None:
    """What was to be written again is forgotten if the sync can't even begin."""

    def make(honest: Any) -> Any:
        def sync_job(self: FileSink, backlog: Backlog) -> Callable[[], None]:
            try:
                job: Callable[[], None] = honest(self, backlog)
            except OSError:
                self._rewrite, self._suspect = False, None
                raise
            return job

        return sync_job

    wrap(FileSink, "sync_job", make)


@on_the_file
def acknowledged_before_the_sync() -> None:
    """A sync is said to be done when it begins."""

    def run(self: SyncRun) -> None:
        self._note(self.covered)
        job, self._job = self._job, lambda: None
        honest(self)
        time.sleep(0.005)
        try:
            job()
        except Exception:  # noqa: BLE001  # nobody is there any more who could be told
            return

    honest = SyncRun.run
    plant(SyncRun, "run", run)


@on_the_file
def folder_not_synced() -> None:
    """The file is synced, its name is not."""

    def make(honest: Any) -> Any:
        def sync_job(self: FileSink, backlog: Backlog) -> Any:
            self._file.unsynced_folders.clear()
            return honest(self, backlog)

        return sync_job

    wrap(FileSink, "sync_job", make)


@mutant
def parents_of_new_folders_not_synced() -> None:
    """The entry of a folder that was made may be lost with all that is in it."""
    plant(LiveFile, "_note_unsynced", lambda self, folder: None)


@on_the_file
def end_of_an_old_file_believed() -> None:
    """What a dead process left in the cache is taken for stored."""

    def make(honest: Any) -> Any:
        def take(self: FileSink, descriptor: int, *, torn_from: int | None) -> None:
            honest(self, descriptor, torn_from=torn_from)
            self._suspect = None

        return take

    wrap(FileSink, "take", make)


@mutant
def stale_sync_believed() -> None:
    """A sync that a healing overtook counts, and goes on placing bytes where they were."""
    plant(FileSink, "_require_unhealed", lambda self, epoch: None)


@mutant
def sync_that_a_healing_overtook_counts() -> None:
    """The backlog forgets what no longer stands there."""

    def settle(self: Progress, covered: Covered) -> None:
        self._synced_epoch = self._sink.epoch
        self._backlog.note_durable(covered.stream, offset=covered.offset_bytes)

    plant(Progress, "settle", settle)


@mutant
def syncs_side_by_side() -> None:
    """The next one starts while one runs, whose outcome is never heard of."""

    def make(honest: Any) -> Any:
        def is_due(self: Syncing, *, closing: bool) -> bool:
            run, self._run = self._run, None
            try:
                return bool(honest(self, closing=closing))
            finally:
                self._run = run

        return is_due

    wrap(Syncing, "is_due", make)


@mutant
def overtaken_sync_is_a_failure() -> None:
    """What only has to be looked at again is reported as broken."""

    def make(honest: Any) -> Any:
        def outcome(self: SyncRun) -> BaseException | None:
            error = honest(self)
            return OSError(str(error)) if isinstance(error, SinkDisturbed) else error

        return outcome

    wrap(SyncRun, "outcome", make)


@mutant
def synced_file_not_looked_for() -> None:
    """A sync of an inode that is no longer at the path counts."""
    plant(FileSink, "_verify_synced", lambda *arguments: None)


@mutant
def flush_waits_for_the_sync() -> None:
    """A slow disk holds up who only wants the OS to have it."""

    def make(honest: Any) -> Any:
        def answer(self: Writer) -> None:
            run = self._syncing._run
            if run is None or run.is_over():
                honest(self)

        return answer

    wrap(Writer, "_answer", make)


@mutant
def syncs_not_shared() -> None:
    """One sync for each who waits."""
    wrap(
        BarrierQueue,
        "select",
        lambda honest: lambda self, goal, *, target_max: honest(self, goal, target_max=target_max)[:1],
    )
    wrap(
        BarrierQueue,
        "met",
        lambda honest: (
            lambda self, is_met: [each for each in honest(self, is_met) if each.goal is not Goal.SYNC][:1]
        ),
    )


@mutant
def periodic_sync_forgotten() -> None:
    """Nothing is synced unless somebody asks."""

    def make(honest: Any) -> Any:
        def start(self: Timers, name: str, *given: Any) -> None:
            if name != "sync":
                honest(self, name, *given)

        return start

    wrap(Timers, "start", make)


@mutant
def call_not_synced() -> None:
    """That a tool call began is on the disk a second later."""
    pending._ALWAYS_SYNCED.clear()


# The file and its path


@on_the_file
def path_not_checked() -> None:
    """Writes go into an inode that nobody will find."""
    plant(LiveFile, "verify", lambda self, expected_size: None)


@mutant
def renamed_file_rebuilt() -> None:
    """Two live twins."""
    wrap(
        FileCalls,
        "fstat",
        lambda honest: (
            lambda self, descriptor: (
                os.stat_result((*honest(self, descriptor)[:3], 0, *honest(self, descriptor)[4:]))
                if sys._getframe(1).f_code.co_name in ("perform", "find_again")
                else honest(self, descriptor)
            )
        ),
    )


@mutant
def any_file_at_the_path_adopted() -> None:
    """Somebody else's file is written to."""
    plant(LiveFile, "_is_same_rollout", lambda *arguments: True)


@mutant
def copy_of_others_cut() -> None:
    """An inode that we did not open is truncated."""
    fix_attribute(LiveFile, "may_cut", True)


@on_the_file
def gap_not_named() -> None:
    """Destroyed bytes are passed over in silence."""

    def note_gap(self: FileSink, size: int, backlog: Backlog) -> int:
        backlog.durable_offset = size
        if backlog.handed:
            backlog.requeue(backlog.handed[0])
        return size

    plant(FileSink, "_note_gap", note_gap)


@on_the_file
def header_not_written_again() -> None:
    """An emptied file goes on without its meta line."""

    def make(honest: Any) -> Any:
        def note_gap(self: FileSink, size: int, backlog: Backlog) -> int:
            first, self._first_line = self._first_line, b""
            try:
                result: int = honest(self, size, backlog)
            finally:
                self._first_line = first
            return result

        return note_gap

    wrap(FileSink, "_note_gap", make)


@on_the_file
def torn_tail_not_mended() -> None:
    """A new record is glued to what a dead process left."""
    wrap(FileSink, "take", lambda honest: lambda self, descriptor, *, torn_from: honest(
        self, descriptor, torn_from=None
    ))  # fmt: skip


@mutant
def torn_tail_thrown_away() -> None:
    """It is cut, and kept nowhere."""
    plant(file_sink, "keep_torn_tail", lambda *given, **named: None)


@mutant
def torn_tail_kept_again_with_each_try() -> None:
    """A disk in trouble fills up with copies of it."""
    wrap(
        FileSink,
        "_set_aside",
        lambda honest: lambda self, offset, end: (setattr(self, "_kept", None), honest(self, offset, end))[1],
    )


@mutant
def links_followed() -> None:
    """A planted link decides where we write."""
    syscalls._SAFE &= ~os.O_NOFOLLOW


@mutant
def modes_left_to_the_umask() -> None:
    """Others may read what an agent did."""
    syscalls.FILE_MODE = 0o644
    syscalls.FOLDER_MODE = 0o755


@mutant
def close_error_raised() -> None:
    """close(2) complains, and a good descriptor is taken for a bad one."""

    def let_go(self: LiveFile, *descriptors: int) -> None:
        for descriptor in descriptors:
            if descriptor >= 0:
                self._calls.close(descriptor)

    plant(LiveFile, "let_go", let_go)


@mutant
def lock_not_taken() -> None:
    """Two writers on one file."""
    for module in (core, live_file):
        plant(module, "lock_rollout", lambda *given, **named: True)


@mutant
def lock_lost_when_reopened() -> None:
    """The lock ends with the first descriptor."""

    def make(honest: Any) -> Any:
        def take(self: LiveFile, descriptor: int) -> None:
            honest(self, descriptor)
            if self._lock_descriptor >= 0:
                os.close(self._lock_descriptor)
                self._lock_descriptor = -1

        return take

    wrap(LiveFile, "take", make)


@mutant
def holder_not_named() -> None:
    """Somebody holds it; find out who."""
    plant(file_lock, "_describe", lambda pid: file_lock.WriterHolder())


@mutant
def sync_of_the_parent_kept_in_the_child() -> None:
    """A forked child keeps the lock alive."""
    plant(FileSink, "close_in_child", FileSink.close)


@mutant
def forked_child_not_closed() -> None:
    """It writes what its parent writes too, or waits for a thread that isn't there."""
    plant(core, "_close_in_child", lambda: None)
    plant(Writer, "reset_after_fork", lambda self: None)


@mutant
def opening_touches_the_file() -> None:
    """A look changes the time of the last activity."""

    def make(honest: Any) -> Any:
        def take(self: FileSink, descriptor: int, *, torn_from: int | None) -> None:
            honest(self, descriptor, torn_from=torn_from)
            os.utime(descriptor)

        return take

    wrap(FileSink, "take", make)


@mutant
def file_made_before_the_first_item() -> None:
    """A thread that never said anything leaves a file."""

    def make(honest: Any) -> Any:
        def assemble(*given: Any, **named: Any) -> Any:
            made = honest(*given, **named)
            made.pending.append_header()
            made.pending.wake(True)
            return made

        return assemble

    wrap(core, "_assemble", make)


# Accepting


@mutant
def fact_accepted_in_part() -> None:
    """The good items before a bad one stay."""

    def make(honest: Any) -> Any:
        def accept(self: Pending, items: Any, *, forced: bool, count: int) -> Any:
            found = None
            for each in items:
                found = honest(self, [each], forced=forced, count=min(count, 1)) or found
            return found

        return accept

    wrap(Pending, "_accept", make)


@mutant
def number_taken_before_the_capacity_is_checked() -> None:
    """A refused item leaves a hole in the ordinals."""

    def make(honest: Any) -> Any:
        def accept(self: Pending, items: Any, **named: Any) -> Any:
            try:
                return honest(self, items, **named)
            except PendingQueueFull:
                self._next_ordinal = (self._next_ordinal or 0) + 1
                self._slow_items -= 1
                raise

        return accept

    wrap(Pending, "_accept", make)


@mutant
def queue_without_a_bound() -> None:
    """A stalled disk takes all memory."""
    wrap(
        Pending,
        "_accept",
        lambda honest: lambda self, items, *, forced, count: honest(self, items, forced=True, count=count),
    )


@mutant
def own_records_numbered() -> None:
    """Codex would use their numbers again."""
    wrap(
        Pending,
        "_plan",
        lambda honest: lambda self, item: honest(self, item)._replace(numbered=True),
    )


@mutant
def stamps_follow_the_clock_back() -> None:
    """A clock that is set back makes time run backward."""

    def make(honest: Any) -> Any:
        def renew(self: Pending) -> None:
            self._stamp_ms = 0
            honest(self)

        def accept(self: Pending, *given: Any, **named: Any) -> Any:
            self._stamp_ends = 0.0
            return accepted(self, *given, **named)

        accepted = Pending._accept
        plant(Pending, "_accept", accept)
        return renew

    wrap(Pending, "_renew_stamp", make)


@mutant
def items_of_signal_handlers_dropped() -> None:
    """What interrupts a call is lost."""
    plant(Pending, "_stash", lambda self, items: None)


@mutant
def items_of_signal_handlers_left_behind() -> None:
    """They wait for the next call."""
    plant(Pending, "_join_reentered", lambda self: None)


@mutant
def lock_not_given_back_by_an_interrupt() -> None:
    """Ctrl-C in the middle of a call, and nobody records any more."""

    def make(honest: Any) -> Any:
        def append(self: Pending, *items: Any) -> None:
            self._lock.acquire()
            honest(self, *items)
            self._lock.release()

        return append

    wrap(Pending, "append", make)


@mutant
def record_that_waits_spins() -> None:
    """It asks again and again whether there is room now."""

    wrap(Progress, "_has_room", lambda honest: lambda self, durable_min: honest(self, 0))


# Answers and ends


@mutant
def barriers_answered_without_a_look() -> None:
    """The file may be gone when a flush returns."""
    plant(Writer, "_is_undisturbed", lambda self: True)


@mutant
def first_failure_told() -> None:
    """A fault that passed in a moment reaches the caller."""
    wrap(BarrierQueue, "receive", lambda honest: lambda self, *, chances: honest(self, chances=1))


@mutant
def barriers_of_a_fenced_writer_forgotten() -> None:
    """Whoever asks after the lock was lost waits for ever."""
    plant(BarrierQueue, "fail_all", lambda self, make_error: self._waiting.clear())


@mutant
def ring_lost_while_the_writer_works() -> None:
    """It sleeps over what came meanwhile."""

    def make(honest: Any) -> Any:
        async def sleep(self: Alarm) -> None:
            self._rung, self._event = False, anyio.Event()
            await honest(self)

        return sleep

    wrap(Alarm, "sleep", make)


@mutant
def descriptors_closed_under_a_healing() -> None:
    """The numbers may belong to another file by the time the healing writes."""
    plant(Place, "close", lambda self: self._sink.close())


@mutant
def abandoned_place_written_to() -> None:
    """A healing comes back after the end, and lines that were set aside are written too."""
    fix_attribute(Place, "abandoned", False)


@mutant
def lines_of_a_hung_healing_forgotten() -> None:
    """Only what came since the healing began is set aside."""

    def make(honest: Any) -> Any:
        def undurable_lines(self: Place) -> list[bytes]:
            self._at_stake = []
            lines: list[bytes] = honest(self)
            return lines

        return undurable_lines

    wrap(Place, "undurable_lines", make)


@mutant
def fence_not_asked() -> None:
    """A writer that lost its lock goes on."""
    fix_attribute(FileSink, "_fence", None)


@mutant
def bug_answers_nobody() -> None:
    """The writer died; its callers wait for ever."""

    def die(self: Writer, bug: BaseException) -> None:
        self._ending.bug = bug

    plant(Writer, "_die", die)


@mutant
def bug_takes_the_items_with_it() -> None:
    """The writer died, and so did what it was given."""
    plant(Salvage, "run_now", lambda self: None)


@mutant
def close_does_not_sync() -> None:
    """What was written is taken for safe."""

    def is_drained(self: Progress) -> bool:
        return self._backlog.written >= self._pending.accepted_bytes

    plant(Progress, "is_drained", property(is_drained))


@mutant
def close_without_a_deadline() -> None:
    """A broken disk makes the close wait for ever."""
    plant(Writer, "_deadline_passed", lambda self: None)


@mutant
def deadline_begins_when_the_disk_answers() -> None:
    """A healing that hangs holds up the end."""

    def request(self: Writer, barrier: Barrier) -> None:
        if barrier.goal is not Goal.CLOSE:
            honest(self, barrier)
        else:
            self._progress.aim(barrier)
            if self._barriers.leave(barrier):
                self._alarm.wake(True)
            else:
                self._ending.answer(barrier, self._progress.receipt)

    honest = Writer.request
    plant(Writer, "request", request)


@mutant
def unwritten_items_dropped() -> None:
    """The time to close is over: what was not written is gone."""

    async def run(self: Salvage, *, seconds_max: float) -> Salvaged:
        return Salvaged([], self._progress.pending_items, None)

    plant(Salvage, "run", run)


@mutant
def discarded_items_written() -> None:
    """Discarding drains."""
    plant(Writer, "discard", lambda self: self.close_soon())


@mutant
def dropped_handle_not_drained() -> None:
    """Nobody closed it: its items are lost."""
    plant(recorder, "_drop", lambda *given: None)


@mutant
def exit_does_not_drain() -> None:
    """The interpreter ends with items in memory."""
    plant(Service, "_drain_at_exit", lambda self: None)


@mutant
def abandoned_opening_left_open() -> None:
    """Its caller was cancelled: the file stays locked for ever."""
    plant(recorder, "_close_unwanted", lambda opening: None)


@mutant
def blocking_inside_a_loop() -> None:
    """A deadlock instead of an error."""
    plant(blocking, "_refuse_inside_loop", lambda: None)


@mutant
def warning_for_each_failure() -> None:
    """Hours of a full disk fill the log."""

    def make(honest: Any) -> Any:
        def fail(self: Writer, error: Any) -> None:
            writer._log.warning("%s: %s", self._sink.path, error)
            honest(self, error)

        return fail

    wrap(Writer, "_fail", make)


@mutant
def writer_takes_the_others_with_it() -> None:
    """One that breaks its word ends the service."""

    async def run(self: Service, served: Any) -> None:
        try:
            await served.run()
        finally:
            self._writers.discard(served)

    plant(Service, "_run", run)


# The command


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What the tests made of one mutant."""

    caught: bool
    said: str


def run_tests(name: str, tests: tuple[str, ...]) -> Verdict:
    """The tests in a process of their own, with the mutant planted if there is one."""
    command = [sys.executable, "-m", "tests.mutants", "--plant", name, *tests]
    try:
        done = subprocess.run(
            command,
            cwd=PROJECT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=LIMIT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return Verdict(True, "they hang")
    failed = re.search(r"^(?:FAILED|ERROR) (\S+?::\S+)", done.stdout, re.MULTILINE)
    if done.returncode == 0:
        return Verdict(False, "all tests pass")
    if failed is None and "Timeout" in done.stdout:
        return Verdict(True, "a test hangs")
    return Verdict(failed is not None, failed[1] if failed else done.stdout[-2000:])


def plant_in_children(name: str) -> None:
    """The processes that the tests start have the same bug."""
    folder = tempfile.mkdtemp(prefix="mutants-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    script = f"from tests.mutants import MUTANTS\nMUTANTS[{name!r}]()\n"
    Path(folder, "sitecustomize.py").write_text(script, encoding="utf-8")
    os.environ["PYTHONPATH"] = os.pathsep.join([folder, str(PROJECT)])


def run_here(name: str, tests: list[str]) -> int:
    """Plant and test; the exit code is pytest's."""
    import pytest

    if name:
        MUTANTS[name]()
        plant_in_children(name)
    seconds = LIMIT_SECONDS - 10 if tests == list(STATEFUL) else 20
    options = ["-x", "-q", "--assert=plain", "--tb=no", "--no-header", "-p", "no:cacheprovider"]
    options += ["-o", f"timeout={seconds}"]
    code = int(pytest.main([*options, *tests]))
    sys.stdout.flush()
    threading.Timer(5, os._exit, [code]).start()  # a mutant may hold up the exit
    return code


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--stateful", action="store_true", help="let the stateful test look, and no other")
    parser.add_argument("--plant", metavar="NAME", help=argparse.SUPPRESS)
    parser.add_argument("names", nargs="*", metavar="NAME")
    given = parser.parse_args(arguments)
    if given.plant is not None:
        return run_here(given.plant, given.names)
    tests = STATEFUL if given.stateful else TESTS
    names = given.names or [name for name in MUTANTS if not given.stateful or name in ON_THE_FILE]
    sound = run_tests("", tests)
    if sound.said != "all tests pass":
        print(f"without a mutant: {sound.said}")
        return 1
    missed = 0
    for name in names:
        verdict = run_tests(name, tests)
        missed += not verdict.caught
        print(f"{'caught' if verdict.caught else 'MISSED'}  {name:44} {verdict.said}", flush=True)
    print(f"{len(names) - missed} of {len(names)} caught")
    return 1 if missed else 0


if __name__ == "__main__":
    # The planted functions belong to the modules under test, whatever this one is called.
    sys.exit(main())
