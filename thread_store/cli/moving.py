"""What `rollout archive` and `rollout unarchive` have in common: which threads, asking, and telling."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import click

from protocol.errors import RolloutError
from thread_store.cli.amounts import counted
from thread_store.cli.confirming import is_confirmed
from thread_store.cli.failures import ExitCode
from thread_store.cli.library_log import attach_log
from thread_store.cli.many_threads import WantedThread, do_each, named_threads, pick_threads
from thread_store.cli.safe_text import safe_line
from thread_store.cli.terminal import Terminal
from thread_store.upkeep.archive import Moved

__all__ = ["Direction", "move_threads"]


class Direction(NamedTuple):
    """One of the two ways."""

    command: str
    done: str
    """The word for what was done, and the `kind` of what is printed as JSON."""
    to_archive: bool
    move: Callable[[WantedThread], Moved]


def move_threads(
    terminal: Terminal,
    direction: Direction,
    arguments: Sequence[str],
    *,
    here: bool,
    older_than: float | None,
    dry_run: bool,
    yes: bool,
) -> int:
    """Do it, and return the exit code."""
    attach_log(terminal)
    picks = here or older_than is not None
    if bool(arguments) == picks:
        raise click.UsageError("name the threads, or pick them with --here or --older-than")
    threads = (
        [*pick_threads(terminal, lambda each: _is_picked(each, direction, here, older_than))]
        if picks
        else named_threads(terminal, arguments)
    )
    if not threads:
        terminal.note("no thread fits; nothing was changed")
        return ExitCode.DONE
    if dry_run:
        for each in threads:
            _tell(terminal, direction, each.thread_id, os.fspath(each.files.current.path), (), dry_run=True)
        return ExitCode.DONE
    question = f"{counted(len(threads), 'thread')} will be {direction.done}. Go on"
    if picks and not is_confirmed(terminal, direction.command, question, yes=yes):
        return ExitCode.REFUSED

    def act(each: WantedThread) -> None:
        moved = direction.move(each)
        _tell(terminal, direction, moved.thread_id, moved.path, moved.paths)

    return do_each(terminal, threads, act)


def _is_picked(each: WantedThread, direction: Direction, here: bool, older_than: float | None) -> bool:
    if each.files.current.archived == direction.to_archive:
        return False
    if older_than is not None and time.time() - each.changed < older_than:
        return False
    return not here or _is_of_this_folder(each)


def _is_of_this_folder(each: WantedThread) -> bool:
    """By the recorded folder's text alone: nobody looks where it leads."""
    from thread_store.local_threads import read_meta

    try:
        cwd = read_meta(each.files.current.path).cwd
    except RolloutError:
        return False
    return cwd in (os.getcwd(), os.path.realpath("."))


def _tell(
    terminal: Terminal,
    direction: Direction,
    thread_id: str,
    path: str,
    paths: Sequence[str],
    *,
    dry_run: bool = False,
) -> None:
    if terminal.json:
        terminal.emit(
            direction.done, thread=thread_id, path=path, paths=[*paths], changed=bool(paths), dry_run=dry_run
        )
    elif dry_run:
        terminal.print(safe_line(f"{thread_id} would be {direction.done}"))
    elif paths:
        terminal.print(safe_line(f"{thread_id} {direction.done}: {path}"))
    else:
        terminal.print(safe_line(f"{thread_id} was {direction.done} already: {path}"))
