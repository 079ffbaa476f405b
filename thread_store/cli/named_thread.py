"""The thread that an argument means: its id and its home, for commands that do something to it.

Invariant: a file below a `sessions` or `archived_sessions` folder that has a rollout's name is of the
thread that the name says, in the home that it lies in, whatever `--home` says. Every other file
is by itself.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import click

from protocol.ids import ThreadId
from rollout.kept import find_home
from rollout.paths import RolloutName
from thread_store.cli.target import STDIN, Target, find_target
from thread_store.cli.terminal import Terminal
from thread_store.errors import NotCurrentRollout, NotInHome
from thread_store.home import Home

__all__ = ["HomeThread", "NamedThread", "find_named", "require_thread"]


class HomeThread(NamedTuple):
    """A thread of a home."""

    home: Home
    thread_id: ThreadId


class NamedThread(NamedTuple):
    """What was named: the file, and the thread that it is of; None if it is by itself."""

    target: Target
    path: Path
    thread: HomeThread | None


def find_named(terminal: Terminal, argument: str) -> NamedThread:
    """Find what the argument names.

    Raises:
        ThreadNotFound, AmbiguousThread, InvalidThreadId: as `Home.find`.
    """
    target = find_target(terminal, argument)
    if target.source == STDIN:
        raise click.UsageError("standard input is no thread; give an id or a path")
    path = Path(target.source)
    name, home = RolloutName.match(path.name), find_home(path)
    thread = None if name is None or home is None else HomeThread(Home(home), name.thread_id)
    return NamedThread(target, path, thread)


def require_thread(named: NamedThread) -> HomeThread:
    """The thread, if the file is the one that it goes on in.

    Raises:
        NotInHome: the file is by itself.
        NotCurrentRollout: the thread goes on in another file.
    """
    if named.thread is None:
        raise NotInHome(named.path)
    home, thread_id = named.thread
    current = home.find_thread(thread_id)
    if not os.path.samefile(current, named.path):
        raise NotCurrentRollout(path=named.path, thread_id=thread_id, current_path=current)
    return named.thread
