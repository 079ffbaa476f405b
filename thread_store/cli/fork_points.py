"""Where a fork or a revert ends, as it is said on the command line.

Invariant: `THREAD#42` ends with the record #42, `THREAD@81234` with the one at that byte, `--turn 3`
with the third turn. A point that can't be taken is answered with commands that can.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from protocol.errors import ForkPointInvalid
from thread_store.borders import Border, resolve_border
from thread_store.cli.target import Target
from thread_store.fork_point import ForkPoint
from thread_store.lineage import Lineage
from thread_store.turn_starts import find_turns

__all__ = ["ending_of", "named_point", "said_point", "told_in_commands"]


def named_point(target: Target, lineage: Lineage, *, turn: int | None, checkpoint: bool = False) -> ForkPoint:
    """The point that the arguments name; the end, if they name none.

    Raises:
        ForkPointInvalid: no record begins at that byte.
    """
    if sum((target.selects, turn is not None, checkpoint)) > 1:
        raise click.UsageError("two points are named; give one")
    if target.selects and not target.selects_one:
        raise click.UsageError(f"{target.address} are several items; give the last one that is to stay")
    if turn is not None:
        return ForkPoint.turn(turn)
    if checkpoint:
        return ForkPoint.at_checkpoint()
    if target.first is not None:
        return ForkPoint.before_ordinal(target.first + 1)
    if target.offset_bytes is not None:
        return _behind_record_at(target.offset_bytes, lineage)
    return ForkPoint.end()


def _behind_record_at(offset: int, lineage: Lineage) -> ForkPoint:
    point = ForkPoint.before_offset(offset)
    own = lineage.own
    with own.open() as file:
        if not file.is_border(offset) or offset >= own.end:
            raise ForkPointInvalid(str(point), "no record begins there", path=own.path)
        record = next(iter(file.forward(offset, own.end)))
    return ForkPoint.before_offset(record.offset + record.size + 1)


def said_point(target: Target, turn: int | None) -> str:
    """The point as it was written."""
    return f"--turn {turn}" if turn is not None else target.address or "--checkpoint"


def ending_of(border: Border) -> int | None:
    """The ordinal of the last record before a border: the N of `THREAD#N`."""
    return None if border.end_ordinal is None else border.end_ordinal - 1


@contextmanager
def told_in_commands(target: Target, verb: str, said: str, lineage: Lineage) -> Iterator[None]:
    """Within it, a point that can't be taken is told as it was written, and the nearest ones as commands."""
    try:
        yield
    except ForkPointInvalid as error:
        commands = [target.command(verb, address) for address in _nearest(error, lineage, said)]
        raise ForkPointInvalid(
            said,
            error.reason,
            hint=f"Try: {' or: '.join(commands)}" if commands else f"See: {target.command('show')}",
            path=error.path,
            call_id=error.call_id,
            nearest=error.nearest,
        ) from error


def _nearest(error: ForkPointInvalid, lineage: Lineage, said: str) -> list[str]:
    if error.nearest:
        return [_address_of(resolve_border(point, lineage), lineage) for point in error.nearest]
    if said.startswith("--turn"):
        return [f" --turn {len(find_turns(lineage))}"]
    if said.startswith("#"):
        return [_address_of(resolve_border(ForkPoint.end(), lineage), lineage)]
    return []


def _address_of(border: Border, lineage: Lineage) -> str:
    """What to write behind the thread to get there, or as near as that can be said."""
    ordinal = ending_of(border)
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
