"""What a reader of another program's files tells: whose conversation it is, and one step after the other.

Invariant: a step is what one record of the source says, in the order of the source. It has the items of both
tracks, or none of them and only the record itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from msgspec import Struct

from protocol.items import RolloutItem
from protocol.meta import GitInfo

__all__ = ["MAIN", "SourceDamage", "SourceReader", "SourceThread", "Step"]

MAIN = ""
"""The thread of a source that is no sub-agent's."""


class SourceThread(Struct, frozen=True, kw_only=True):
    """A conversation as its source names it. `id`: its own; `sub`: which sub-agent's, or `MAIN`."""

    format: str
    id: str
    path: str
    created_ms: int
    sub: str = MAIN
    cwd: str = "/"
    git: GitInfo | None = None
    originator: str
    version: str = ""
    parent: str | None = None
    """The id of the conversation that it was started by, or forked from."""
    title: str | None = None
    branches: bool = False
    """Whether it may go back to an earlier turn: Codex knows that of legacy rollouts only."""


class Step(NamedTuple):
    """What one record of the source says. `at_ms`: its own time, or None."""

    at_ms: int | None
    items: list[RolloutItem]
    sub: str = MAIN
    kept: str | None = None
    """What kind of record was kept as it was; None: it has a counterpart."""
    title: str | None = None


class SourceDamage(Struct, frozen=True, kw_only=True):
    """A place in the source that could not be read; what stands behind it was."""

    path: str
    line: int | None
    offset: int
    bytes: int
    reason: str


class SourceReader(Protocol):
    """One source. Its `damaged` grows while `steps` is read."""

    damaged: list[SourceDamage]

    def threads(self) -> list[SourceThread]:
        """The conversations that are known from its beginning; the main one first."""

    def steps(self) -> Iterator[Step]:
        """All of it, from the start. Raises RolloutUnreadable."""

    def sub_thread(self, sub: str) -> SourceThread:
        """A conversation that a step named first."""
