"""Restart of a home: what the product itself makes of what a dead process or a power cut left.

Invariant: nothing is mended here. The store is started, lists, reads each thread, opens it (an archived one
is taken out first), appends one item, closes, and reads again.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from protocol.errors import NotARollout, RolloutError
from rollout.check import check_rollout
from rollout.config import RecorderConfig
from tests.faults.numbered import numbered_item, numbers_of
from tests.faults.restart import RESTART_NUMBER
from thread_store.blocking_thread import BlockingThread
from thread_store.home import Home
from thread_store.listing.thread_list import list_threads
from thread_store.listing.thread_query import ThreadQuery
from thread_store.local_threads import LocalThreads

__all__ = ["RestartedThread", "restart_home"]


@dataclass(slots=True)
class RestartedThread:
    """One thread, as the product reads it."""

    archived: bool
    numbers: list[int]
    """Of its whole history."""
    damaged: int
    after: list[int] | None = None
    """With the item of the restart; None: it can't be opened, because it has no whole line."""


def restart_home(path: Path, *, number: int = RESTART_NUMBER) -> dict[str, RestartedThread]:
    """Go on with every thread of the home, with one item of this number; raises AssertionError for whatever
    must not be.
    """
    try:
        with LocalThreads(Home(path), config=RecorderConfig(close_seconds=30)) as threads:
            found = _look(threads)
            for thread_id, each in found.items():
                _go_on(threads, thread_id, each, number)
    except RolloutError as error:
        raise AssertionError(f"the restart failed: {type(error).__name__}: {error}") from error
    for each in Home(path).rollouts():
        if not each.path.name.endswith(".zst"):
            check_rollout(each.path)
    left = sorted(name.name for name in path.glob("thread-store/kept/*.erasing"))
    assert not left, f"an erasure that was begun is not finished: {left}"
    return found


def _look(threads: LocalThreads) -> dict[str, RestartedThread]:
    listed = [
        each.thread_id for each in list_threads(threads.home, ThreadQuery(limit=1000, archived=None)).threads
    ]
    current = threads.home.current_rollouts()
    assert sorted(listed) == sorted(map(str, current)), f"listed are {listed}, there are {list(current)}"
    found = {}
    for thread_id, rollout in current.items():
        try:
            numbers, damaged = _read(threads, thread_id)
        except NotARollout:
            numbers, damaged = [], 0  # not even its first line is whole: the ledger tells whether that may be
        found[str(thread_id)] = RestartedThread(rollout.archived, numbers, damaged)
    return found


def _read(threads: LocalThreads, thread_id: str) -> tuple[list[int], int]:
    history = threads.read(thread_id)
    assert history.problem is None, f"what {thread_id} rests on can't be read: {history.problem}"
    lines = b"".join((each.line.source or b"") + b"\n" for each in history.records if each.line is not None)
    numbers = numbers_of(lines)
    assert len(numbers) == len(set(numbers)), f"(c) {thread_id} is read with doubled items: {numbers}"
    return numbers, len(history.warnings)


def _go_on(threads: LocalThreads, thread_id: str, each: RestartedThread, number: int) -> None:
    if each.archived:
        threads.unarchive(thread_id)
    try:
        opened = threads.open(thread_id)
    except NotARollout:
        assert not each.numbers, f"a thread of {len(each.numbers)} items is refused"
        return
    thread = BlockingThread(opened)
    thread.record(numbered_item(number, 50))
    thread.sync()
    thread.close()
    each.after, _ = _read(threads, thread_id)
    assert each.after == [*each.numbers, number], f"the restart lost or doubled items of {thread_id}"
    text = os.fspath(threads.home.find_thread(thread_id))
    assert text.endswith(".jsonl"), f"{text} was appended to as it was"
