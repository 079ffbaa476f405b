"""The files that a rollout's history begins in, for commands that read a thread as one conversation.

Invariant: a rollout that rests on no other file costs nothing more; one whose base can't be
read is still read from where it begins, and what is wrong is said once.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rollout.kept import find_home
from rollout.record import RolloutRecord
from thread_store.cli.safe_text import safe_line
from thread_store.cli.target import Target
from thread_store.cli.terminal import Terminal
from thread_store.home import Home

if TYPE_CHECKING:
    from thread_store.chain.lineage import Lineage

__all__ = ["chain_records", "find_chain", "home_of"]


def home_of(terminal: Terminal, path: str | Path) -> Home:
    """The home that a file lies in; else the one that was asked for."""
    home = find_home(path)
    return Home.resolve(terminal.home, terminal.environ) if home is None else Home(home)


def find_chain(terminal: Terminal, target: Target, meta: dict[str, Any] | None) -> Lineage | None:
    """The chain of files that the rollout rests on; None if it stands by itself.

    Raises:
        ThreadNotFound, NotARollout, RolloutUnreadable: the rollout itself can't be read.
    """
    if meta is None or meta.get("history_base") is None:
        return None
    from thread_store.chain.lineage import Lineage

    lineage = Lineage.resolve(target.source, home_of(terminal, target.source))
    if lineage.problem is not None:
        terminal.warn(
            f"the beginning of its history can't be read: {safe_line(lineage.problem.message)}",
            code=f"base_{lineage.problem.code}",
            path=lineage.problem.path,
        )
    return lineage


def chain_records(lineage: Lineage, *, newest_first: bool) -> Iterator[RolloutRecord]:
    """The records of the whole chain, an unfinished tail included, with the rollout's own meta in front."""
    from thread_store.chain.lineage import Place

    with lineage.own.open() as file:
        meta = file.meta_record
    if not newest_first:
        yield meta
        yield from (each.record for each in lineage.forward())
        return
    tail = Place(len(lineage.segments) - 1, lineage.own.size)
    yield from (each.record for each in lineage.backward(tail))
    yield meta
