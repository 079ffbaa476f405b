"""What is wrong with the history that a rollout rests on, as findings.

Invariant: nothing is changed, no lock is taken, and a rollout that rests on no other file has no
finding. The files further back are verified at their borders, not read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from protocol.errors import NotARollout, ThreadNotFound
from rollout.check import Finding, Severity
from thread_store.history import LateBytes, find_late_bytes
from thread_store.home import Home
from thread_store.lineage import BaseProblem, Lineage

__all__ = ["check_base"]


def check_base(path: str | os.PathLike[str], home: Home) -> Iterator[Finding]:
    """Look at what a rollout rests on: `base_…` with the code of a `BaseProblem`, and `late_bytes`.

    Raises:
        RolloutUnreadable: the system refuses.
    """
    try:
        lineage = Lineage.resolve(path, home)
    except (NotARollout, ThreadNotFound):
        return  # without a header it rests on nothing; what it is else, `check_rollout` tells
    if lineage.problem is not None:
        yield _of_problem(lineage.problem)
    for late in find_late_bytes(lineage):
        yield _of_late_bytes(late)


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
