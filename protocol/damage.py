"""Damage: which ranges of a rollout may have hidden a record, and so a tool call.

Invariant: bounded, and what doesn't fit is counted, never forgotten. A range stands against an
automatic resume until an `x_writer` `recovered` behind it says that somebody went on knowing of
it. A torn tail under a writer of ours hides no call: that writer syncs `started` before the side
effect begins, so what it never finished writing never ran (FORMAT.md, Tool calls).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, convert, to_builtins

from protocol.line import RolloutLine

__all__ = ["RANGES_MAX", "Damage", "DamageFold"]

RANGES_MAX = 32
"""So many ranges are told one by one; further ones are counted in the last."""

_NEVER_FINISHED = ("torn_tail", "cut_tail")
_SANE_ORDINAL = 1 << 64


class Damage(Struct, omit_defaults=True, kw_only=True):
    """A range in which records are missing or can't be read. Offsets in bytes; None: not known."""

    reason: str
    """A warning's reason (FORMAT.md, Reading), or ordinal_gap, gap, cut_tail, unreadable_call,
    reused_call_id, too_many_calls, too_many_checks."""
    offset: int | None = None
    end: int | None = None
    detail: str = ""
    count: int = 1
    hides_calls: bool = True
    """Whether a tool call may have stood there."""
    accepted: bool = False
    """Whether the thread was resumed since, by somebody who knew of it."""


class _State(Struct, omit_defaults=True):
    ranges: list[Damage] = []
    max_ordinal: int | None = None
    own_writer: bool = False


class DamageFold:
    """The damage met so far. It looks at the ordinal of every line, so it must be shown each."""

    def __init__(self) -> None:
        self._state = _State()

    @property
    def ranges(self) -> list[Damage]:
        """All ranges, oldest first."""
        return list(self._state.ranges)

    @property
    def blocking(self) -> list[Damage]:
        """The ranges that may have hidden a call, and that nobody has accepted yet."""
        return [each for each in self._state.ranges if each.hides_calls and not each.accepted]

    @property
    def max_ordinal(self) -> int | None:
        """The greatest ordinal so far; None if no record had one."""
        return self._state.max_ordinal

    def take_line(self, line: RolloutLine, offset: int | None = None) -> Damage | None:
        """Look at the ordinal of the next line; return the gap before it, if there is one."""
        return None if line.ordinal is None else self.take_ordinal(line.ordinal, offset)

    def take_ordinal(self, ordinal: int, offset: int | None = None) -> Damage | None:
        """The same for a line of which only the ordinal is at hand. Repeats and steps back are no gaps."""
        greatest = self._state.max_ordinal
        if ordinal < 0 or (greatest is not None and ordinal <= greatest):
            return None
        self._state.max_ordinal = ordinal
        if greatest is None or ordinal == greatest + 1:
            return None
        detail = f"{greatest + 1} to {ordinal - 1}" if ordinal < _SANE_ORDINAL else ""
        return self.add("ordinal_gap", offset, offset, detail=detail)

    def add(
        self, reason: str, offset: int | None = None, end: int | None = None, *, detail: str = ""
    ) -> Damage:
        """Note a range that can't be read."""
        hides = not (reason in _NEVER_FINISHED and self._state.own_writer)
        damage = Damage(reason=reason, offset=offset, end=end, detail=detail, hides_calls=hides)
        ranges = self._state.ranges
        if len(ranges) < RANGES_MAX:
            ranges.append(damage)
        else:
            _join(ranges[-1], damage)
        return damage

    def take_own(
        self, record_type: str, payload: Mapping[str, Any], offset: int | None = None
    ) -> Damage | None:
        """What an `x_writer`, `x_gap` or `x_erased` says of damage; returns the range it adds."""
        if record_type == "x_gap":
            return self.add("gap", offset, offset)
        if record_type == "x_erased":
            self._take_erased(payload.get("ordinal"))
            return None
        return self._take_writer(payload, offset)

    def _take_erased(self, ordinal: Any) -> None:
        """Its line stands where it was and keeps its number: no gap."""
        if isinstance(ordinal, int) and not isinstance(ordinal, bool):
            self.take_ordinal(ordinal)

    def _take_writer(self, payload: Mapping[str, Any], offset: int | None) -> Damage | None:
        event, cut = payload.get("event"), payload.get("cut_bytes")
        damage = None
        if isinstance(cut, int) and cut > 0:
            damage = self.add("cut_tail", offset, offset)
        if event == "opened":
            self._state.own_writer = True
        elif event == "closed":
            self._state.own_writer = False
        elif event == "recovered":
            for each in self._state.ranges:
                each.accepted = True
        return damage

    def to_plain(self) -> dict[str, Any]:
        """As plain values, fit for JSON."""
        plain: dict[str, Any] = to_builtins(self._state)
        return plain

    @classmethod
    def from_plain(cls, plain: Any) -> DamageFold:
        """From what `to_plain` gave. Raises `msgspec.ValidationError` if it doesn't fit."""
        fold = cls()
        fold._state = convert(plain, _State)
        return fold


def _join(last: Damage, damage: Damage) -> None:
    """One more than fits: the last range takes it in, and what it stands for is the worse of both."""
    last.count += 1
    last.end = damage.end
    last.hides_calls = last.hides_calls or damage.hides_calls
    last.accepted = last.accepted and damage.accepted
