"""Several threads that a command does the same to: named one by one, or picked from the home.

Invariant: all are found before anything is done to the first. One that fails is told, and the others are done
all the same; the exit code is that of the first failure.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from protocol.errors import RolloutError
from protocol.ids import ThreadId
from thread_store.cli.failures import ExitCode, report_error
from thread_store.cli.named_thread import find_named, require_thread
from thread_store.cli.terminal import Terminal
from thread_store.home import Home
from thread_store.upkeep.removal import finish_deletions
from thread_store.upkeep.thread_files import ThreadFiles, files_of_thread, threads_of
from thread_store.upkeep.threads import Place

__all__ = ["WantedThread", "do_each", "home_place", "named_threads", "pick_threads"]


class WantedThread(NamedTuple):
    """A thread, the home that it lies in, and its files as they were found."""

    place: Place
    thread_id: ThreadId
    files: ThreadFiles

    @property
    def size(self) -> int:
        """The bytes of its rollouts."""
        return sum(os.lstat(each.path).st_size for each in self.files.rollouts)

    @property
    def changed(self) -> float:
        """When its newest rollout was changed last, in seconds since the epoch."""
        return max(os.lstat(each.path).st_mtime for each in self.files.rollouts)


def home_place(terminal: Terminal) -> Place:
    """The home of this run."""
    return Place.of(Home.resolve(terminal.home, terminal.environ))


def named_threads(terminal: Terminal, arguments: Sequence[str]) -> list[WantedThread]:
    """The threads that the arguments name, each once.

    Raises:
        ThreadNotFound, AmbiguousThread, InvalidThreadId, NotInHome, NotCurrentRollout: one names none.
    """
    places: dict[str, Place] = {}
    found: dict[tuple[str, str], WantedThread] = {}
    for argument in arguments:
        home, thread_id = require_thread(find_named(terminal, argument))
        key = os.fspath(home.path)
        place = places.setdefault(key, Place.of(home))
        if (key, thread_id) not in found:
            found[key, thread_id] = WantedThread(place, thread_id, files_of_thread(home, thread_id))
    return list(found.values())


def pick_threads(terminal: Terminal, wanted: Callable[[WantedThread], bool]) -> Iterator[WantedThread]:
    """The threads of the home that are wanted, newest first. One that goes meanwhile is passed over."""
    place = home_place(terminal)
    for thread_id, files in threads_of(place.home).items():
        each = WantedThread(place, thread_id, files)
        try:
            if wanted(each):
                yield each
        except FileNotFoundError:
            continue


def do_each(terminal: Terminal, threads: Sequence[WantedThread], act: Callable[[WantedThread], None]) -> int:
    """Do something to each, and return the exit code."""
    code = ExitCode.DONE
    for place in {id(each.place): each.place for each in threads}.values():
        finish_deletions(place)
    for each in threads:
        try:
            act(each)
        except RolloutError as error:
            failed = report_error(terminal, error)
            code = code or failed
    return code
