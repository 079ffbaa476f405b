"""Where a fork or a revert ends, as it is said on the command line.

Invariant: `THREAD#42` ends with the record #42, `THREAD@81234` with the one at that byte, `--turn 3`
with the third turn. A point that can't be taken is answered with commands that can.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import click

from protocol.errors import ForkPointInvalid
from thread_store.chain.borders import Border, resolve_border
from thread_store.chain.fork_point import ForkPoint
from thread_store.chain.lineage import Lineage
from thread_store.chain.turn_starts import find_turns
from thread_store.cli.target import Target, last_ordinal

__all__ = ["PointArguments"]


class PointArguments(NamedTuple):
    """What the arguments say about the point. Nothing: the end."""

    target: Target
    turn: int | None = None
    checkpoint: bool = False

    def require_one(self) -> None:
        """Raise a usage error if several points are named."""
        if sum((self.target.selects, self.turn is not None, self.checkpoint)) > 1:
            raise click.UsageError("two points are named; give one")
        if self.target.selects and not self.target.selects_one:
            raise click.UsageError(
                f"{self.target.address} are several items; give the last one that is to stay"
            )

    def find(self, lineage: Lineage) -> ForkPoint:
        """The point.

        Raises:
            ForkPointInvalid: no record begins at that byte.
        """
        if self.turn is not None:
            return ForkPoint.turn(self.turn)
        if self.checkpoint:
            return ForkPoint.at_checkpoint()
        if self.target.first is not None:
            return ForkPoint.before_ordinal(self.target.first + 1)
        if self.target.offset_bytes is not None:
            return _behind_record_at(self.target.offset_bytes, lineage)
        return ForkPoint.end()

    @contextmanager
    def told_in_commands(self, verb: str, lineage: Lineage) -> Iterator[None]:
        """Within it, a point that can't be taken is told as it was written, the nearest ones as commands."""
        try:
            yield
        except ForkPointInvalid as error:
            commands = [self.target.command(verb, each) for each in self._nearest(error, lineage)]
            raise ForkPointInvalid(
                self._said,
                error.reason,
                hint=f"Try: {' or: '.join(commands)}" if commands else f"See: {self.target.command('show')}",
                path=error.path,
                call_id=error.call_id,
                nearest=error.nearest,
            ) from error

    @property
    def _said(self) -> str:
        if self.turn is not None:
            return f"--turn {self.turn}"
        return "--checkpoint" if self.checkpoint else self.target.address

    def _nearest(self, error: ForkPointInvalid, lineage: Lineage) -> list[str]:
        """What to write behind the thread instead; the last possible one where it is beyond the end."""
        if error.nearest:
            return [_address_of(resolve_border(point, lineage), lineage) for point in error.nearest]
        if self.turn is not None:
            return [f" --turn {len(find_turns(lineage))}"]
        if self.target.first is not None:
            return [_address_of(resolve_border(ForkPoint.end(), lineage), lineage)]
        return []


def _behind_record_at(offset: int, lineage: Lineage) -> ForkPoint:
    own = lineage.own
    with own.open() as file:
        if not file.is_border(offset) or offset >= own.end:
            raise ForkPointInvalid(f"@{offset}", "no record begins there", path=own.path)
        record = next(file.forward(offset, own.end))
    return ForkPoint.before_offset(record.offset + record.size + 1)


def _address_of(border: Border, lineage: Lineage) -> str:
    """The address of the last record before a border, or of one near it: a point that can be taken."""
    ordinal = last_ordinal(border.end_ordinal)
    if ordinal is not None and _is_possible(ForkPoint.before_ordinal(ordinal + 1), lineage):
        return f"#{ordinal}"
    last = next(lineage.backward(border.place), None)
    return "" if last is None else f"@{last.record.offset}"


def _is_possible(point: ForkPoint, lineage: Lineage) -> bool:
    try:
        resolve_border(point, lineage)
    except ForkPointInvalid:
        return False
    return True
