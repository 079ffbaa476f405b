"""Fork points: where in a thread a fork or a revert takes its history up to.

Invariant: a point is a value; it says what is meant, and `thread_store.chain.borders` finds where that is
in a thread. Every point but `end` is a choice, and a choice never falls inside a call and
its result.
"""

from __future__ import annotations

from msgspec import Struct

from protocol.errors import ForkPointInvalid

__all__ = ["ForkPoint"]


class ForkPoint(Struct, frozen=True, kw_only=True):
    """Made by its class methods: `ForkPoint.end()`, `ForkPoint.turn(2)`, …"""

    kind: str
    value: int = 0
    rollout_id: str | None = None

    @classmethod
    def end(cls) -> ForkPoint:
        """Everything up to the last whole line. A call may be open there: it is uncertain in the fork."""
        return cls(kind="end")

    @classmethod
    def turn(cls, count: int) -> ForkPoint:
        """The first `count` turns; 0: nothing but the meta."""
        return cls(kind="turn", value=_at_least(0, count, "turn"))

    @classmethod
    def before_turn(cls, number: int) -> ForkPoint:
        """Everything before a turn, counted from 1."""
        return cls(kind="before_turn", value=_at_least(1, number, "before_turn"))

    @classmethod
    def before_offset(cls, offset_bytes: int, *, rollout_id: str | None = None) -> ForkPoint:
        """Everything before a byte of the (decompressed) rollout, where a line must begin.

        `rollout_id` means another file of the thread's history than the newest one.
        """
        value = _at_least(0, offset_bytes, "before_offset")
        return cls(kind="before_offset", value=value, rollout_id=rollout_id)

    @classmethod
    def before_ordinal(cls, ordinal: int) -> ForkPoint:
        """Everything before the record of that ordinal; one more than the last one: everything."""
        return cls(kind="before_ordinal", value=_at_least(0, ordinal, "before_ordinal"))

    @classmethod
    def at_checkpoint(cls, number: int = -1) -> ForkPoint:
        """Right behind a `compacted` record: -1 is the newest, -2 the one before; 1 is the oldest."""
        if number == 0:
            raise ForkPointInvalid("at_checkpoint(0)", "checkpoints are counted from 1, or from -1 backward")
        return cls(kind="at_checkpoint", value=number)

    def __str__(self) -> str:
        if self.kind == "end":
            return "end()"
        where = "" if self.rollout_id is None else f" of {self.rollout_id}"
        return f"{self.kind}({self.value}{where})"


def _at_least(minimum: int, value: int, kind: str) -> int:
    if value < minimum:
        raise ForkPointInvalid(f"{kind}({value})", f"the least is {minimum}")
    return value
