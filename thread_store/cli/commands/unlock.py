"""`rollout unlock`: a thread is taken over from a writer that hangs."""

from __future__ import annotations

from typing import NamedTuple

import click

from protocol.errors import ThreadNotFound, WriterHolder
from protocol.ids import ThreadId
from thread_store.blocking_thread import BlockingThread
from thread_store.chain.history import find_late_bytes
from thread_store.chain.lineage import Lineage
from thread_store.cli.failures import ExitCode
from thread_store.cli.library_log import attach_log
from thread_store.cli.named_thread import HomeThread, find_named, require_thread
from thread_store.cli.options import shared_options, terminal_of
from thread_store.cli.safe_text import safe_line
from thread_store.cli.terminal import Terminal
from thread_store.home import FRAGMENT_MIN, Home
from thread_store.local_threads import LocalThreads
from thread_store.locks import LockState, SeenLock, ThreadLocks

__all__ = ["command"]


@click.command("unlock")
@click.argument("thread")
@click.option("--force", is_flag=True, help="Take it over, though somebody holds it.")
@shared_options
@click.pass_context
def command(context: click.Context, thread: str, force: bool) -> int:
    """Take a thread over from a writer that hangs.

    The thread goes on in a new rollout: whatever the old writer still does changes nothing in it, and
    `rollout check` tells of it. Without --force it only says who holds the thread (exit code 7), and
    removes the lock of a dead writer.

    \b
    Examples:
      rollout unlock 7f3a
      rollout unlock 7f3a --force
    """
    terminal = terminal_of(context)
    attach_log(terminal)
    where = _find(terminal, thread)
    if not force:
        return _look(terminal, where, thread)
    _tell(terminal, where, _take_over(where))
    return ExitCode.DONE


def _find(terminal: Terminal, thread: str) -> HomeThread:
    """A thread of the home; or one that has a lock and no record yet."""
    try:
        return require_thread(find_named(terminal, thread))
    except ThreadNotFound:
        home = Home.resolve(terminal.home, terminal.environ)
        locked = [each.thread_id for each in ThreadLocks(home.path).holders()]
        fitting = [each for each in locked if each.endswith(thread.lower())]
        if len(fitting) != 1 or len(thread) < FRAGMENT_MIN:
            raise
        return HomeThread(home, fitting[0])


def _look(terminal: Terminal, where: HomeThread, thread: str) -> int:
    locks = ThreadLocks(where.home.path)
    swept = where.thread_id in locks.sweep()
    held = _lock_of(locks, where.thread_id)
    if held is None or held.state is LockState.STALE:
        _tell(terminal, where, _Taken(None, None, 0), swept=swept)
        return ExitCode.DONE
    writer = held.writer
    terminal.fail(
        f"{where.thread_id} is held by {safe_line(writer)}; without --force nothing was done",
        code="needs_force",
        hint=safe_line(f"Try: rollout unlock {thread} --force"),
        thread_id=where.thread_id,
        holder=_as_object(writer),
    )
    return ExitCode.REFUSED


def _lock_of(locks: ThreadLocks, thread_id: ThreadId) -> SeenLock | None:
    return next((each for each in locks.holders() if each.thread_id == thread_id), None)


class _Taken(NamedTuple):
    holder: WriterHolder | None
    path: str | None
    late_bytes: int


def _take_over(where: HomeThread) -> _Taken:
    with LocalThreads(where.home) as threads:
        opened, holder = threads.take_over(where.thread_id)
        with BlockingThread(opened) as thread:
            lineage = Lineage.resolve(thread.path, where.home)
            late = sum(each.size_bytes for each in find_late_bytes(lineage, where.home))
            return _Taken(holder, None if holder is None else thread.path, late)


def _tell(terminal: Terminal, where: HomeThread, taken: _Taken, *, swept: bool = False) -> None:
    if terminal.json:
        terminal.emit(
            "unlocked",
            thread=where.thread_id,
            taken_from=None if taken.holder is None else _as_object(taken.holder),
            path=taken.path,
            late_bytes=taken.late_bytes,
            swept=swept,
        )
    elif taken.holder is None:
        left = "; the lock of a dead writer was removed" if swept else ""
        terminal.print(f"nobody holds {where.thread_id}{left}")
    else:
        path = safe_line(taken.path)
        terminal.print(f"{where.thread_id} was taken from {safe_line(taken.holder)}; it goes on in {path}")
        late = f"{taken.late_bytes:,} late bytes of the old writer so far are no part of it"
        terminal.note(f"{late}. Later: rollout check {where.thread_id}")


def _as_object(holder: WriterHolder) -> dict[str, object]:
    return {key: getattr(holder, key) for key in ("pid", "host", "since", "command")}
