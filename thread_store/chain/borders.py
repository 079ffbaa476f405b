"""Borders: where a fork point is in a thread.

Invariant: a border lies between two lines of a verified segment, in the oldest file that has it,
and a chosen one parts no call from its result. Only turns, and checkpoints counted from the
oldest, read the whole history; the others look around the border, or halve the file to find it.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from msgspec import Struct

from protocol.errors import ForkPointInvalid
from rollout.record import RolloutRecord
from thread_store.chain.call_pairs import find_open_call, nearest_borders
from thread_store.chain.fork_point import ForkPoint
from thread_store.chain.landmarks import CallKey, Mark, landmark_of
from thread_store.chain.lineage import Lineage, LineageRecord, Place
from thread_store.chain.open_rollout import OpenRollout
from thread_store.chain.segments import Segment
from thread_store.chain.turn_starts import find_turns

__all__ = ["Border", "resolve_border"]

PROBE_BYTES = 16 << 10
"""How much is read at a time to find an ordinal; what is left to search when halving ends."""


class Border(Struct, frozen=True):
    """How much of a thread's history counts."""

    place: Place
    end_ordinal: int | None
    """One more than the newest ordinal before it; None in a legacy thread."""

    @property
    def offset(self) -> int:
        """How many bytes of its file count."""
        return self.place.offset


def resolve_border(point: ForkPoint, lineage: Lineage) -> Border:
    """Find the border that a point means.

    Raises:
        ForkPointInvalid: there is no such place, or a call's result stands behind it.
    """
    place = lineage.normalize(_FINDERS[point.kind](point, lineage))
    if point.kind != "end":
        _require_closed(point, lineage, place)
    segment = lineage.segments[place.segment]
    if not segment.paginated:
        return Border(place, None)
    with lineage.open(place.segment) as file:
        return Border(place, file.next_ordinal(place.offset))


def _require_closed(point: ForkPoint, lineage: Lineage, place: Place) -> None:
    call = find_open_call(lineage, place)
    if call is None:
        return
    nearest = [_as_point(each, lineage) for each in nearest_borders(lineage, place) if each is not None]
    raise _invalid(
        point,
        lineage,
        f"it is between the call {call.call_id!r} and its result",
        hint="Possible are " + " and ".join(map(str, nearest)),
        call_id=call.call_id,
        nearest=nearest,
    )


def _as_point(place: Place, lineage: Lineage) -> ForkPoint:
    named = None if place.segment == lineage.end.segment else lineage.segments[place.segment].rollout_id
    return ForkPoint.before_offset(place.offset, rollout_id=named)


def _invalid(
    point: ForkPoint,
    lineage: Lineage,
    reason: str,
    *,
    hint: str = "",
    call_id: str | None = None,
    nearest: list[ForkPoint] | None = None,
) -> ForkPointInvalid:
    return ForkPointInvalid(
        str(point), reason, hint=hint, path=lineage.own.path, call_id=call_id, nearest=nearest or ()
    )


def _at_end(point: ForkPoint, lineage: Lineage) -> Place:
    del point
    return lineage.end


def _at_turn(point: ForkPoint, lineage: Lineage) -> Place:
    """`turn(n)` ends where turn n + 1 begins."""
    if point.kind == "turn" and point.value == 0:
        return lineage.start
    turns = find_turns(lineage)
    index = point.value if point.kind == "turn" else point.value - 1
    if index < len(turns):
        return turns[index].place
    if point.kind == "turn" and index == len(turns):
        return lineage.end
    raise _invalid(point, lineage, f"the thread has {len(turns)} turns")


def _at_offset(point: ForkPoint, lineage: Lineage) -> Place:
    index = _segment_of(point, lineage)
    segment = lineage.segments[index]
    if point.value > segment.end:
        raise _invalid(point, lineage, f"its whole lines end at byte {segment.end:,}")
    with lineage.open(index) as file:
        if not file.is_border(point.value):
            raise _invalid(point, lineage, "no line begins there")
    return Place(index, point.value)


def _segment_of(point: ForkPoint, lineage: Lineage) -> int:
    if point.rollout_id is None:
        return lineage.end.segment
    for index, segment in enumerate(lineage.segments):
        if segment.rollout_id == point.rollout_id.lower():
            return index
    raise _invalid(point, lineage, "that rollout is no part of the thread's history")


def _at_ordinal(point: ForkPoint, lineage: Lineage) -> Place:
    ordinal = point.value
    for index in range(lineage.end.segment, -1, -1):
        segment = lineage.segments[index]
        if index > 0 and segment.first_ordinal is not None and ordinal < segment.first_ordinal:
            continue
        if segment.first_ordinal is not None and ordinal == segment.first_ordinal:
            return Place(index, 0)
        with lineage.open(index) as file:
            found = _find_ordinal(file, segment, ordinal)
            if found is not None:
                return Place(index, _before_call(file, found))
        break
    raise _invalid(point, lineage, "no record has that ordinal")


def _find_ordinal(file: OpenRollout, segment: Segment, ordinal: int) -> int | None:
    """Where the record of an ordinal begins; the end of the segment, if it would be the next one."""
    if file.next_ordinal(segment.end) == ordinal:
        return segment.end
    start = _halve(file, segment, ordinal)
    found = _scan_for(file, start, segment.end, ordinal, sorted_by_ordinal=True)
    if found is None:  # not in order, or not there
        found = _scan_for(file, segment.meta_end, segment.end, ordinal, sorted_by_ordinal=False)
    return found


def _before_call(file: OpenRollout, offset: int) -> int:
    """The border before the call whose request stands there: its own `x_call` comes first."""
    marked = _call_at(next(file.forward(offset, file.end), None), Mark.REQUEST)
    if marked is None:
        return offset
    for record in file.backward(file.meta_end, offset):
        before = _call_at(record, Mark.REQUEST)
        if before is None or before.track != "x_call" or before.call_id != marked.call_id:
            break
        offset = record.offset
    return offset


def _call_at(record: RolloutRecord | None, mark: Mark) -> CallKey | None:
    landmark = None if record is None or record.line is None else landmark_of(record.line)
    return landmark.call if landmark is not None and landmark.mark is mark else None


def _halve(file: OpenRollout, segment: Segment, ordinal: int) -> int:
    """A border before the record, not far from it, if the ordinals rise."""
    low, high = segment.meta_end, segment.end
    while high - low > PROBE_BYTES:
        middle = (low + high) // 2
        probe = _first_numbered(file, middle, segment.end)
        if probe is None or probe[1] >= ordinal:
            high = middle
        else:
            low = probe[0]
    return low


def _first_numbered(file: OpenRollout, offset: int, end: int) -> tuple[int, int] | None:
    """The first numbered record that begins behind an offset: `(its offset, its ordinal)`."""
    start = _line_start(file, offset, end)
    for record in file.forward(start, end, block_bytes=PROBE_BYTES):
        number = None if record.line is None else record.line.number
        if number is not None:
            return record.offset, number
    return None


def _line_start(file: OpenRollout, offset: int, end: int) -> int:
    for block in file.blocks(offset, end, block_bytes=PROBE_BYTES):
        found = block.find(b"\n")
        if found >= 0:
            return offset + found + 1
        offset += len(block)
    return end


def _scan_for(
    file: OpenRollout, start: int, end: int, ordinal: int, *, sorted_by_ordinal: bool
) -> int | None:
    for record in file.forward(start, end):
        number = None if record.line is None else record.line.number
        if number == ordinal:
            return record.offset
        if sorted_by_ordinal and number is not None and number > ordinal:
            return None
    return None


def _at_checkpoint(point: ForkPoint, lineage: Lineage) -> Place:
    newest_first = point.value < 0
    records = lineage.backward() if newest_first else lineage.forward(end=lineage.end)
    checkpoints = filter(_is_checkpoint, records)
    found = next(islice(checkpoints, abs(point.value) - 1, None), None)
    if found is None:
        raise _invalid(point, lineage, "the thread has no such checkpoint")
    return found.end


def _is_checkpoint(each: LineageRecord) -> bool:
    line = each.record.line
    landmark = None if line is None else landmark_of(line)
    return landmark is not None and landmark.mark is Mark.CHECKPOINT


_FINDERS: dict[str, Callable[[ForkPoint, Lineage], Place]] = {
    "end": _at_end,
    "turn": _at_turn,
    "before_turn": _at_turn,
    "before_offset": _at_offset,
    "before_ordinal": _at_ordinal,
    "at_checkpoint": _at_checkpoint,
}
