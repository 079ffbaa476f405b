"""What a revert would take out of a thread, told before it is done.

Invariant: nothing is changed and no lock is taken; what a writer adds meanwhile isn't counted.
"""

from __future__ import annotations

from msgspec import Struct

from thread_store.chain.borders import Border, resolve_border
from thread_store.chain.fork_point import ForkPoint
from thread_store.chain.lineage import Lineage
from thread_store.chain.turn_starts import find_turns

__all__ = ["RevertPlan", "plan_revert"]


class RevertPlan(Struct, frozen=True, kw_only=True):
    """Where a thread would end, and what stands behind that."""

    border: Border
    turns: int
    """Turns that begin behind it."""
    records: int
    """Records behind it, those that writers note of themselves among them."""


def plan_revert(lineage: Lineage, point: ForkPoint) -> RevertPlan:
    """Count what a revert to the point takes out. Reads what stands behind it, and for the turns all.

    Raises:
        ForkPointInvalid: as `resolve_border`.
    """
    border = resolve_border(point, lineage)
    return RevertPlan(
        border=border,
        turns=sum(turn.place >= border.place for turn in find_turns(lineage)),
        records=sum(1 for _ in lineage.forward(border.place, lineage.end)),
    )
