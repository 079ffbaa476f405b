"""What is wrong with the history that a rollout rests on, as findings.

Invariant: nothing is changed, no lock is taken, and a rollout that rests on no other file has no
finding. The files further back are verified at their borders, not read. What was set aside for
them is told of the thread's current rollout alone, because it is brought in there.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator

from protocol.errors import NotARollout, ThreadNotFound
from rollout.check import Finding, Severity
from rollout.unwritten import read_unwritten
from thread_store.chain.history import LateBytes, find_late_bytes
from thread_store.chain.late_items import find_late_items, is_current
from thread_store.chain.lineage import BaseProblem, Lineage
from thread_store.home import Home

__all__ = ["check_base"]


def check_base(path: str | os.PathLike[str], home: Home) -> Iterator[Finding]:
    """Look at what a rollout rests on: `base_…` with the code of a `BaseProblem`, `late_bytes`, `late_items`.

    Raises:
        RolloutUnreadable: the system refuses.
    """
    try:
        lineage = Lineage.resolve(path, home)
    except (NotARollout, ThreadNotFound):
        return  # without a header it rests on nothing; what it is else, `check_rollout` tells
    if lineage.problem is not None:
        yield _of_problem(lineage.problem)
    for late in find_late_bytes(lineage, home):
        yield _of_late_bytes(late)
    waiting = find_late_items(lineage, home)
    if waiting and is_current(path):
        for items in waiting:
            yield _of_late_items(items.path, path)


def _of_problem(problem: BaseProblem) -> Finding:
    return Finding(
        code=f"base_{problem.code}",
        severity=Severity.ERROR,
        message=f"the beginning of its history can't be read: {problem.message}",
    )


def _of_late_bytes(late: LateBytes) -> Finding:
    message = f"its old writer wrote on in {late.path} after the take-over; that is no part of the thread"
    return Finding(
        code="late_bytes",
        severity=Severity.WARNING,
        message=message,
        offset_bytes=late.offset_bytes,
        size_bytes=late.size_bytes,
    )


def _of_late_items(kept_path: str, path: str | os.PathLike[str]) -> Finding:
    try:
        items = read_unwritten(kept_path).header.items
    except NotARollout as error:
        return Finding(code="kept_damaged", severity=Severity.ERROR, message=str(error))
    return Finding(
        code="late_items",
        severity=Severity.ERROR,
        message=f"{items} items that its old writer accepted wait to be replayed: {kept_path}",
        fix=_replay(path),
    )


def _replay(path: str | os.PathLike[str]) -> str:
    return f"rollout repair --replay {shlex.quote(os.fspath(path))}"
