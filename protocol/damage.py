"""Damage: which ranges of a rollout may have hidden a record, and so a tool call.

Invariant: bounded, and what doesn't fit is counted, never forgotten. A range stands against an
automatic resume until an `x_writer` `recovered` behind it says that somebody went on knowing of
it. A torn tail under a writer of ours hides no call: that writer syncs `started` before the side
effect begins, so what it never finished writing never ran (FORMAT.md, Tool calls).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct, to_builtins

from protocol.decoding import convert_plain
from protocol.line import RolloutLine

__all__ = ["RANGES_MAX", "Damage", "DamageFold"]

RANGES_MAX = 32
"""So many ranges are told one by one; further ones are counted in the last."""

_NEVER_FINISHED = ("torn_tail", "cut_tail")
_ALL_READ = ("reused_call_id", "too_many_calls", "too_many_checks", "unreadable_check")
_SANE_ORDINAL = 1 << 64


class Damage(Struct, omit_defaults=True, kw_only=True):
    """A range in which records are missing or can't be read. Offsets in bytes; None: not known."""

    reason: str
    """A warning's reason (FORMAT.md, Reading), or ordinal_gap, gap, cut_tail, unreadable_call,
    unreadable_check, reused_call_id, too_many_calls, too_many_checks."""
    offset: int | None = None
    end: int | None = None
    detail: str = ""
    count: int = 1
    hides_calls: bool = True
    """Whether a tool call may have stood there."""
    accepted: bool = False
    """Whether the thread was resumed since, by somebody who knew of it."""

    @property
    def hides_records(self) -> bool:
        """Whether a record of a call that is known may have stood there."""
        return self.hides_calls and self.reason not in _ALL_READ


class _State(Struct, omit_defaults=True):
    ranges: list[Damage] = []
    own_writer: bool = False


class DamageFold:
    """The damage met so far. It looks at the ordinal of every line, so it must be shown each."""

    def __init__(self, *, max_ordinal: int | None = None) -> None:
        self.listener: Callable[[Damage], None] | None = None
        """Told of each range as it is met."""
        self._state = _State()
        self._max_ordinal = max_ordinal

    @property
    def ranges(self) -> list[Damage]:
        """All ranges, oldest first."""
        return list(self._state.ranges)

    @property
    def blocking(self) -> list[Damage]:
        """The ranges that may have hidden a call, and that nobody has accepted yet."""
        return [each for each in self._state.ranges if each.hides_calls and not each.accepted]

    @property
    def own_writer(self) -> bool:
        """Whether a writer of ours has opened the rollout and not closed it: what it tears hides no call."""
        return self._state.own_writer

    @property
    def max_ordinal(self) -> int | None:
        """The greatest ordinal so far; None if no record had one."""
        return self._max_ordinal

    def take_line(self, line: RolloutLine, offset: int | None = None) -> None:
        """Look at the ordinal of the next line: a gap before it is damage."""
        if line.ordinal is not None:
            self.take_ordinal(line.ordinal, offset)

    def pass_to(self, ordinal: int) -> None:
        """Take lines that are known to be numbered without a gap, the last of them so."""
        if self._max_ordinal is None or ordinal > self._max_ordinal:
            self._max_ordinal = ordinal

    def take_ordinal(self, ordinal: int, offset: int | None = None) -> None:
        """The same for a line of which only the ordinal is at hand. Repeats and steps back are no gaps."""
        greatest = self._max_ordinal
        if ordinal < 0 or (greatest is not None and ordinal <= greatest):
            return
        self._max_ordinal = ordinal
        if greatest is not None and ordinal > greatest + 1:
            detail = f"{greatest + 1} to {ordinal - 1}" if ordinal < _SANE_ORDINAL else ""
            self.add("ordinal_gap", offset, offset, detail=detail)

    def add(
        self, reason: str, offset: int | None = None, end: int | None = None, *, detail: str = ""
    ) -> None:
        """Note a range that can't be read."""
        hides = not (reason in _NEVER_FINISHED and self._state.own_writer)
        damage = Damage(reason=reason, offset=offset, end=end, detail=detail, hides_calls=hides)
        ranges = self._state.ranges
        if len(ranges) < RANGES_MAX:
            ranges.append(damage)
        else:
            _join(ranges[-1], damage)
        if self.listener is not None:
            self.listener(damage)

    def take_own(self, record_type: str, payload: Mapping[str, Any], offset: int | None = None) -> None:
        """What an `x_writer`, `x_gap` or `x_erased` says of damage."""
        if record_type == "x_gap":
            self.add("gap", offset, offset)
        elif record_type == "x_erased":
            self._take_erased(payload.get("ordinal"))
        else:
            self._take_writer(payload, offset)

    def _take_erased(self, ordinal: Any) -> None:
        """Its line stands where it was and keeps its number: no gap."""
        if isinstance(ordinal, int) and not isinstance(ordinal, bool):
            self.take_ordinal(ordinal)

    def _take_writer(self, payload: Mapping[str, Any], offset: int | None) -> None:
        event, cut = payload.get("event"), payload.get("cut_bytes")
        if isinstance(cut, int) and cut > 0:
            self.add("cut_tail", offset, offset)
        if event == "opened":
            self._state.own_writer = True
        elif event == "closed":
            self._state.own_writer = False
        elif event == "recovered":
            for each in self._state.ranges:
                each.accepted = True

    def to_plain(self) -> dict[str, Any]:
        """As plain values, fit for JSON; the greatest ordinal is apart."""
        plain: dict[str, Any] = to_builtins(self._state)
        return plain

    @classmethod
    def from_plain(cls, plain: Any, max_ordinal: int | None) -> DamageFold:
        """From what `to_plain` gave. Raises `msgspec.ValidationError` if it doesn't fit."""
        fold = cls(max_ordinal=max_ordinal)
        fold._state = convert_plain(plain, _State)
        return fold


def _join(last: Damage, damage: Damage) -> None:
    """One more than fits: the last range takes it in, and what it stands for is the worse of both."""
    last.count += 1
    last.end = damage.end
    last.hides_calls = last.hides_calls or damage.hides_calls
    last.accepted = last.accepted and damage.accepted
