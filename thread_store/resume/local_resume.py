"""Resuming the threads of a home: looked at, taken over, decided on. For code that may block.

Invariant: a thread is judged under its lock and before anything of it is opened, so a refusal leaves the
lock free and every byte as it was. What is recorded on the way (a recovery, a decision) is on stable
storage when the call returns.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from pathlib import Path

from msgspec import structs

from protocol.errors import ActiveWriter, NotARollout, RolloutUnreadable, ThreadNotFound, WriterHolder
from protocol.ids import ThreadId
from protocol.own import MemoryItem
from rollout.barrier import Goal
from rollout.config import RecorderConfig
from rollout.thread_lock import find_writer
from thread_store.chain.lineage import Lineage
from thread_store.folding.thread_folding import snapshot_of
from thread_store.home import StoredRollout
from thread_store.listing.cwd_filter import CwdFilter
from thread_store.local_threads import LocalThreads, read_meta
from thread_store.locks.seen import LockState
from thread_store.open_threads import discard, hand_over, wait_for
from thread_store.resume.call_decision import Outcome, decision_item, find_uncertain
from thread_store.resume.recovery import recovery_items
from thread_store.resume.resumable import Resumable, folder_filter, is_candidate, nothing_resumable
from thread_store.resume.resume_refusals import refuse, split_allowed
from thread_store.resume.resume_state import ResumeState, look_back, read_resume_state, state_of_look
from thread_store.resume.resume_surroundings import place_refusals, surrounding_refusals
from thread_store.thread import OpenThread

__all__ = [
    "find_resumable",
    "load_resume_state",
    "resolve_call",
    "resume_thread",
]

_log = logging.getLogger("thread_store.resume")


def load_resume_state(threads: LocalThreads, thread_id: str, *, deep: bool = False) -> ResumeState:
    """What a thread is at its end, and everything that stands against going on with it. Takes no lock and
    writes nothing.

    What recorders of this process have accepted for it is handed to the OS first.

    Raises:
        InvalidThreadId, ThreadNotFound: there is no such thread.
        NotARollout, RolloutUnreadable, RolloutReplaced: its rollout can't be read.
        RolloutWriteError: it is open here, and what it has can't be written.
    """
    wanted = ThreadId.parse(thread_id)
    if (writing := threads.find_writing(wanted)) is not None:
        hand_over(writing, Goal.FLUSH)
    state = _read(threads, threads.home.find_thread(wanted), deep=deep)
    writer = _writers(threads).get(wanted) or find_writer(state.path)
    return state.with_refusals(surrounding_refusals(state, writer=writer))


def _read(threads: LocalThreads, path: str | os.PathLike[str], *, deep: bool = False) -> ResumeState:
    return read_resume_state(path, threads.home, deep=deep, safety=threads.safety, derived=threads.derived)


def _writers(threads: LocalThreads) -> dict[str, WriterHolder]:
    """Who writes which thread, as far as that is known: one that isn't known to be dead does."""
    return {
        each.thread_id: each.writer for each in threads.locks.holders() if each.state is not LockState.STALE
    }


def resume_thread(
    threads: LocalThreads,
    thread_id: str,
    *,
    deep: bool = False,
    allow: Iterable[str] = (),
    config: RecorderConfig | None = None,
) -> tuple[OpenThread, ResumeState]:
    """Take a thread over from an agent that ended, and open it. The state is that behind the recovery.

    Args:
        deep: look at everything, where no `x_memory` speaks for what is older.
        allow: reasons (`RefusalReason`) that don't count.

    Raises:
        ResumeRefused: something stands against it; nothing was written, and nobody holds it.
        InvalidThreadId, ThreadNotFound, ActiveWriter, NotARollout, RolloutUnreadable: as `open`.
        RolloutWriteError: the recovery can't be made durable; nobody holds it.
        ValueError: `allow` names something that is no reason, or can't be waived.
    """
    names = tuple(allow)
    split_allowed((), names)
    judge = _Judge(threads, deep=deep, allow=names)
    path = threads.home.find_thread(thread_id)
    if refusals := [*place_refusals(path, thread_id)]:
        raise refuse(refusals, thread_id=thread_id, path=os.fspath(path))
    opened = threads.open(thread_id, config=config, judge=judge)
    try:
        judge.require_unchanged(opened)
        return opened, _recover(threads, opened, judge)
    except BaseException:
        discard(opened)
        raise


class _Judge:
    """Looks at a thread under its lock, before it is opened."""

    state: ResumeState
    memory: MemoryItem | None = None
    """What a deep look found, where a shorter one doesn't find as much: recorded, it speaks for all of it."""

    def __init__(self, threads: LocalThreads, *, deep: bool, allow: tuple[str, ...]) -> None:
        self.deep = deep
        self._threads = threads
        self._allow = allow
        self._size = -1

    def __call__(self, path: Path) -> None:
        safety = self._threads.safety
        with Lineage.resolve(path, self._threads.home) as lineage:
            self._size = lineage.own.size
            looked = look_back(lineage, deep=self.deep, safety=safety, derived=self._threads.derived)
            if self.deep and looked.folded.whole:
                self.deep = False  # from now on
                if not look_back(lineage, safety=safety).folded.whole:
                    self.memory = snapshot_of(lineage, looked.folded)
            state = state_of_look(lineage, looked)
        self.state = state.with_refusals(surrounding_refusals(state)).allowing(self._allow)

    def require_unchanged(self, opened: OpenThread) -> None:
        """A recorder of that one file, which knows nothing of a home's locks, may have written meanwhile; now
        that it is open here, none can."""
        path = opened.core.path
        try:
            size = os.stat(path).st_size
        except OSError as error:
            raise RolloutUnreadable(path=path, cause=error, operation="look at") from error
        if size != self._size:
            raise ActiveWriter(path=path, thread_id=opened.core.thread_id)


def _recover(threads: LocalThreads, opened: OpenThread, judge: _Judge) -> ResumeState:
    """Record what the recovery has to say, and look again."""
    state, core = judge.state, opened.core
    items = recovery_items(state, epoch=core.epoch)
    if judge.memory is not None:
        core.pending.append_note(judge.memory)
    if items:
        core.pending.append(items)
    if not items and judge.memory is None:
        return structs.replace(state, path=core.path)  # it may have been compressed before
    wait_for(opened, Goal.SYNC)
    behind = _read(threads, core.path, deep=judge.deep)
    return structs.replace(behind.allowing(each.reason for each in state.waived), waived=state.waived)


def resolve_call(
    threads: LocalThreads,
    thread_id: str,
    call_id: str,
    *,
    outcome: Outcome,
    by: str,
    note: str | None = None,
    turn_id: str | None = None,
) -> ResumeState:
    """Record what was decided of an uncertain call, and return the state behind it. On stable storage on
    return. Works too while the thread is open in this process.

    Args:
        outcome: `happened`, `not_happened`, or `retry`: a further attempt with the same key may run.
        turn_id: where several uncertain calls have that id.

    Raises:
        CallNotResolvable: there is no such call, it isn't uncertain, or several are.
        InvalidThreadId, ThreadNotFound, ActiveWriter, NotARollout, RolloutUnreadable: as `open`.
        RolloutWriteError: it can't be made durable.
        ValueError: there is no such outcome.
    """
    wanted = ThreadId.parse(thread_id)
    decision = []

    def judge(path: Path) -> None:
        state = _read(threads, path)
        if not state.whole and all(each.call_id != call_id for each in state.open_calls):
            state = _read(threads, path, deep=True)
        call = find_uncertain(state, call_id, turn_id=turn_id)
        decision.append(decision_item(call, outcome, by=by, note=note))

    opened = threads.find_writing(wanted)
    if opened is not None:
        hand_over(opened, Goal.FLUSH)
        judge(threads.home.find_thread(wanted))
        opened.core.pending.append(decision)
        wait_for(opened, Goal.SYNC)
    else:
        opened = threads.open(wanted, judge=judge)
        try:
            opened.core.pending.append(decision)
            wait_for(opened, Goal.CLOSE)
        except BaseException:
            discard(opened)
            raise
        opened.released.result()
    return load_resume_state(threads, wanted)


def find_resumable(threads: LocalThreads, *, cwd: str | os.PathLike[str] | None = None) -> Resumable:
    """The newest thread that nobody writes, of any folder or of `cwd`; sub-agents and archived threads are
    none.

    Raises:
        ThreadNotFound: there is none.
        RolloutUnreadable: the system refuses.
    """
    writers, folder = _writers(threads), folder_filter(cwd)
    passed_over: list[tuple[str, WriterHolder]] = []
    for thread_id, found in threads.home.current_rollouts(archived=False).items():
        if not _is_candidate(found, folder):
            continue
        writer = writers.get(thread_id) or find_writer(found.path)
        if writer is None:
            return Resumable(str(thread_id), os.fspath(found.path), tuple(passed_over))
        passed_over.append((str(thread_id), writer))
    raise nothing_resumable(threads.home.path, passed_over)


def _is_candidate(found: StoredRollout, folder: CwdFilter | None) -> bool:
    try:
        return is_candidate(read_meta(found.path), folder)
    except (NotARollout, RolloutUnreadable, ThreadNotFound) as error:
        _log.info("passed over: %s", error)
        return False
