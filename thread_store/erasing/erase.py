"""Erasing: what was asked for is found, written down, overwritten, and taken out of what was made of it.

Invariant: nothing is overwritten before all of it is planned, the writers of all threads concerned are kept
out, and the journal is on stable storage. On return it is done, on stable storage too; whatever ends
it between, the next opening of a thread of the home goes on (`rollout.erasing`).

A thread that is open is refused, also where it is this process that has it open: its writer holds in memory
what it wrote and writes it again after a failed sync, and its session memory is folded from what was there.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from contextlib import ExitStack

from msgspec import Struct

from protocol.errors import NotARollout, RolloutError, RolloutWriteError
from protocol.ids import ThreadId
from protocol.timestamps import format_timestamp, now_ms
from rollout.erase_journal import EraseCalls, find_journals, read_journal, write_journal
from rollout.erasing import carry_out
from rollout.file_lock import lock_rollout
from rollout.paths import SESSIONS_FOLDER
from rollout.syscalls import let_go
from rollout.thread_lock import refuse_active_writer
from thread_store.chain.lineage import Lineage
from thread_store.erasing.erase_address import NamedRecord, find_named_record
from thread_store.erasing.erase_plan import ErasePlan
from thread_store.erasing.errors import EraseRefused
from thread_store.erasing.home_search import HomeSearch, Meant
from thread_store.erasing.needle import Needle
from thread_store.erasing.places import derived_folder
from thread_store.folding.derived_snapshot import DerivedSnapshots
from thread_store.folding.thread_folding import fold_lineage
from thread_store.home import Home
from thread_store.locks import ThreadLocks

__all__ = ["Erasure", "ErasureReport", "finish_in_home"]

_log = logging.getLogger("rollout.erasing")

_PLANS_MAX = 5
"""So often a plan is made anew because others go on writing meanwhile."""


class ErasureReport(Struct, frozen=True, kw_only=True):
    """What was done, or would be."""

    plan: ErasePlan
    done: bool
    left: list[str]
    """What could not be done, and why: the journal stays for it."""


class Erasure:
    """One erasure, in a home or in a file by itself. `plan()` changes nothing, `carry_out()` does it. Blocks.

    Args:
        home: None if `path` is a file by itself.
        threads: the ids of the threads that are meant; None: all of the home.
        path: of the rollout in which `record` is, or which is meant, where it lies in no home.
        needle: what is to be erased; or `record`, one item.
        reason: written beside what takes a record's place. Not what is erased!
        progress: called with the bytes of each piece that was looked through.

    Raises:
        EraseRefused, ThreadNotFound, NotARollout, RolloutUnreadable: the record can't be had.
    """

    def __init__(
        self,
        home: Home | None,
        *,
        threads: Iterable[str] | None = None,
        path: str | os.PathLike[str] | None = None,
        needle: Needle | None = None,
        record: NamedRecord | None = None,
        reason: str | None = None,
        locks: ThreadLocks | None = None,
        calls: EraseCalls | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        self._home = home
        self._path = None if path is None else os.path.abspath(path)
        self._named = None if threads is None else frozenset(ThreadId.parse(each) for each in threads)
        self._locks = locks
        self._calls = calls or EraseCalls()
        address = None
        if record is not None and self._path is not None:
            address = find_named_record(self._path, home, record)
            needle = address.needle
        elif needle is None:
            raise EraseRefused("nothing was named", hint="Give a text or a record: THREAD#N")
        if needle is not None and reason is not None and needle.is_in_value(reason):
            raise EraseRefused("the reason says what is to be erased", hint="Say it in other words")
        self._search = HomeSearch(
            home,
            self._path,
            meant=self._meant(),
            needle=needle,
            address=address,
            at=format_timestamp(now_ms()),
            reason=reason,
            progress=progress,
        )

    def _meant(self) -> Meant:
        named = self._named
        return lambda thread_id: named is None or thread_id is None or thread_id in named

    def plan(self) -> ErasePlan:
        """What would be done. Takes no lock.

        Raises:
            EraseRefused: something of it can't be erased so.
        """
        return self._search.plan()

    def carry_out(self) -> ErasureReport:
        """Do it. On return what was found is nowhere in the files that were meant, on stable storage.

        What was cut short before is finished first. Interrupted, it is done at the next opening of a thread
        of the home, or by `finish_in_home`.

        Raises:
            ActiveWriter: somebody writes one of the threads, perhaps this process; nothing was changed.
            EraseRefused: something of it can't be erased so; nothing was changed.
            RolloutWriteError: the system refuses. Its `hint` says whether anything was changed.
            RolloutUnreadable: what was cut short before can't be read.
        """
        self._finish_earlier()
        with ExitStack() as stack:
            held: set[str] = set()
            self._keep_out(stack, held, self._named or ())
            plan = self.plan()
            for _ in range(_PLANS_MAX):
                missing = plan.threads - held
                if not missing:
                    break
                self._keep_out(stack, held, missing)
                plan = self.plan()
            if not plan.files:
                return ErasureReport(plan=plan, done=False, left=[])
            locked = self._lock_files(stack, plan)
            self._require_writable(plan)
            left = self._overwrite(plan, frozenset(held), locked)
            self._fold_again(plan)
            return ErasureReport(plan=plan, done=True, left=left)

    def _finish_earlier(self) -> None:
        """Go on with what was cut short. What is half overwritten must not be planned anew: neither plan
        would find again what it wrote down; and what is overwritten in the cache alone isn't found.

        Raises:
            RolloutWriteError: the system still refuses that, for one of the threads that are meant.
        """
        for path in find_journals(self._beside()):
            try:
                journal = read_journal(path, calls=self._calls)
            except NotARollout as error:
                _log.warning("an erasure is not finished: %s", error)
                continue
            if journal is None:
                continue
            try:
                for left in carry_out(journal, calls=self._calls):
                    _log.warning("an erasure is not finished: %s", left)
            except RolloutWriteError:
                if any(self._meant()(each.thread_id) for each in journal.files):
                    raise

    def _keep_out(self, stack: ExitStack, held: set[str], threads: Iterable[str]) -> None:
        if self._home is None:
            if self._path is not None:
                refuse_active_writer(self._path)
            return
        locks = self._locks or ThreadLocks(self._home.path)
        for thread_id in sorted(threads):
            if thread_id not in held:
                lock = locks.acquire(thread_id)
                stack.callback(lock.release)
                held.add(thread_id)

    def _lock_files(self, stack: ExitStack, plan: ErasePlan) -> frozenset[str]:
        """A recorder by itself has a lock on its file alone."""
        for path in sorted(plan.rollouts):
            try:
                descriptor = self._calls.open_read(path)
            except FileNotFoundError:
                continue  # moved just now: the journal finds it again
            except OSError as error:
                raise self._nothing_done(path, error) from error
            stack.callback(let_go, self._calls, descriptor, path)
            try:
                lock_rollout(descriptor, path)
            except OSError as error:
                raise self._nothing_done(path, error) from error
        return frozenset(plan.rollouts)

    def _require_writable(self, plan: ErasePlan) -> None:
        """Told before anything is begun: a file that is not ours, or may only be appended to."""
        for file in plan.files:
            try:
                let_go(self._calls, self._calls.open_overwrite(file.path), file.path)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise self._nothing_done(file.path, error) from error

    def _overwrite(self, plan: ErasePlan, held: frozenset[str], locked: frozenset[str]) -> list[str]:
        beside = self._beside()
        derived = None if self._home is None else derived_folder(self._home)
        try:
            journal = write_journal(beside, plan.files, derived=derived, calls=self._calls)
        except OSError as error:
            raise self._nothing_done(beside, error) from error
        return carry_out(journal, held=held, locked=locked, calls=self._calls)

    def _beside(self) -> str:
        """A path by which the journals are found."""
        if self._home is not None:
            return _in_home(self._home.path)
        assert self._path is not None
        return self._path

    @staticmethod
    def _nothing_done(path: str, error: OSError) -> RolloutWriteError:
        hint = "Nothing was changed; try again when the cause is gone"
        return RolloutWriteError(path=path, operation="erase", cause=error, hint=hint)

    def _fold_again(self, plan: ErasePlan) -> None:
        """Snapshots anew, for the `x_memory` that went: without them a resume of a long thread looks at its
        end only. They are derived: what can't be had is done without."""
        if self._home is None:
            return
        derived = DerivedSnapshots(self._home)
        for path in sorted(plan.rollouts):
            try:
                with Lineage.resolve(path, self._home) as lineage:
                    derived.write(fold_lineage(lineage, deep=True), lineage)
            except RolloutError as error:
                _log.info("%s: no snapshot after it was erased in: %s", path, error)


def finish_in_home(
    path: str | os.PathLike[str], *, locks: ThreadLocks | None = None, calls: EraseCalls | None = None
) -> tuple[int, list[str]]:
    """Go on with every erasure that was cut short, in the home of that path, or beside that file.

    `path`: a rollout, or a home. Returns how many were finished, and what could not be done.

    Raises:
        RolloutUnreadable, NotARollout: a journal can't be read.
        RolloutWriteError: the system refuses.
    """
    calls = calls or EraseCalls()
    rollout = os.fspath(path)
    if os.path.isdir(rollout):
        rollout = _in_home(rollout)
    finished, left = 0, []
    for each in find_journals(rollout):
        journal = read_journal(each, calls=calls)
        if journal is None:
            continue
        told = carry_out(journal, calls=calls)
        finished += not told
        left += told
    return finished, left


def _in_home(home: str | os.PathLike[str]) -> str:
    return os.path.join(home, SESSIONS_FOLDER, "any")
