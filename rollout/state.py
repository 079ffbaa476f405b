"""The states of a writer, and the moves between them. No I/O.

Invariant: a move that the table doesn't have raises and changes nothing.

    deferred ──▶ open ⇄ recovering
        │          │        │
        └──────────┴────────┴──▶ closed | fenced ──▶ closed
"""

from __future__ import annotations

import enum

__all__ = ["WriterState", "move"]


class WriterState(enum.StrEnum):
    """`DEFERRED`: no file yet. `OPEN`: writing. `RECOVERING`: an error, items kept, trying again.
    `FENCED`: another writer owns the thread. `CLOSED`: takes nothing more."""

    DEFERRED = "deferred"
    OPEN = "open"
    RECOVERING = "recovering"
    FENCED = "fenced"
    CLOSED = "closed"


_S = WriterState
_MOVES: dict[WriterState, frozenset[WriterState]] = {
    _S.DEFERRED: frozenset({_S.OPEN, _S.RECOVERING, _S.FENCED, _S.CLOSED}),
    _S.OPEN: frozenset({_S.RECOVERING, _S.FENCED, _S.CLOSED}),
    _S.RECOVERING: frozenset({_S.OPEN, _S.FENCED, _S.CLOSED}),
    _S.FENCED: frozenset({_S.CLOSED}),
    _S.CLOSED: frozenset(),
}


def move(current: WriterState, target: WriterState) -> WriterState:
    """The new state. Staying is always possible; an impossible move is a bug and raises ValueError."""
    if target is not current and target not in _MOVES[current]:
        raise ValueError(f"a writer can't go from {current} to {target}")
    return target
