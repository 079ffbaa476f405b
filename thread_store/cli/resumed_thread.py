"""The thread that `rollout resume` looks at, with its state and what stands against going on with it.

Invariant: looking takes no lock and writes nothing; who isn't known to be dead counts as a live writer. What
only writers need is not loaded for a thread that was named.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import click
from msgspec import structs

from protocol.errors import WriterHolder
from rollout.thread_lock import find_writer
from thread_store.cli.named_thread import HomeThread, find_named, require_thread
from thread_store.cli.resume_view import PassedOver
from thread_store.cli.safe_text import safe_line
from thread_store.cli.terminal import Terminal
from thread_store.home import Home
from thread_store.locks import LockState, ThreadLocks
from thread_store.resume.resume_refusals import split_allowed
from thread_store.resume.resume_state import ResumeState, read_resume_state
from thread_store.resume.resume_surroundings import surrounding_refusals

__all__ = ["ResumedThread", "find_last", "find_resumed"]


class ResumedThread(NamedTuple):
    """What was found. `passed_over`: newer threads that somebody is writing."""

    state: ResumeState
    passed_over: PassedOver = ()

    def allowing(self, allow: Iterable[str]) -> ResumedThread:
        """The same without the reasons that don't count."""
        standing, waived = split_allowed(self.state.refusals, allow)
        return self._replace(state=structs.replace(self.state, refusals=standing, waived=waived))


def find_resumed(terminal: Terminal, argument: str, *, deep: bool) -> ResumedThread:
    """The thread, or the file outside a home, that was named.

    Raises:
        ThreadNotFound, AmbiguousThread, InvalidThreadId: as `Home.find`.
        NotCurrentRollout: the thread goes on in another file.
        NotARollout, RolloutUnreadable, RolloutReplaced: it can't be read.
    """
    named = find_named(terminal, argument)
    if named.target.selects:
        raise click.UsageError("a thread is resumed at its end; to go on from an earlier item, fork it")
    if named.thread is None:
        home, holder = Home.resolve(terminal.home, terminal.environ), None
    else:
        home, holder = named.thread.home, _holder(require_thread(named))
    return ResumedThread(_look(named.path, home, holder or find_writer(named.path), deep=deep))


def _holder(thread: HomeThread) -> WriterHolder | None:
    for lock in ThreadLocks(thread.home.path).holders():
        if lock.thread_id == thread.thread_id and lock.state is not LockState.STALE:
            return lock.writer
    return None


def _look(path: Path, home: Home, writer: WriterHolder | None, *, deep: bool) -> ResumeState:
    state = read_resume_state(path, home, deep=deep)
    return state.with_refusals(surrounding_refusals(state, writer=writer))


def find_last(terminal: Terminal, *, deep: bool) -> ResumedThread:
    """The newest thread of the home that nobody is writing; those that are passed over are told.

    Raises:
        ThreadNotFound: there is none.
        NotARollout, RolloutUnreadable, RolloutReplaced: it can't be read.
    """
    from thread_store.local_threads import LocalThreads
    from thread_store.resume.local_resume import find_resumable, load_resume_state

    threads = LocalThreads(Home.resolve(terminal.home, terminal.environ))
    found = find_resumable(threads)
    for thread_id, writer in found.passed_over:
        terminal.note(f"{thread_id} is passed over: it is being written by {safe_line(writer)}")
    return ResumedThread(load_resume_state(threads, found.thread_id, deep=deep), found.passed_over)
