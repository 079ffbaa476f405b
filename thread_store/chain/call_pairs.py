"""Calls and their results, as pairs that no chosen border may part.

Invariant: a call is open at a border if its last request stands before it and the result behind it,
with no more than the turn that begins right there between; or, in a turn that is still under way,
if it has no result yet. So whether one is open is decided by what stands near the border: forward
to the next turn, backward only to the request of a result that was met, or to the start of the
turn under way. Naming the nearest borders that are possible reads everything, which only an
error costs.
"""

from __future__ import annotations

from typing import NamedTuple

from thread_store.chain.landmarks import CallKey, Landmark, Mark, landmark_of
from thread_store.chain.lineage import Lineage, LineageRecord, Place

__all__ = ["find_open_call", "nearest_borders"]

_ENDLESS = Place(1 << 62, 0)


def find_open_call(lineage: Lineage, place: Place) -> CallKey | None:
    """A call that is open at a border; None if there is none."""
    requested: set[CallKey] = set()
    orphans: set[CallKey] = set()
    under_way = True
    for each in lineage.forward(place, lineage.end):
        landmark = _landmark(each)
        if landmark is None:
            continue
        if landmark.mark in (Mark.TURN_START, Mark.TURN_END):
            if landmark.mark is Mark.TURN_START and each.place != place:
                return None
            under_way = False
        key = landmark.call
        if key is None or key in requested or key in orphans:
            continue
        if landmark.mark is Mark.REQUEST:
            requested.add(key)
        elif _is_requested(lineage, place, key):
            return key
        else:
            orphans.add(key)
    return _find_unanswered(lineage, place, requested) if under_way else None


def _landmark(each: LineageRecord) -> Landmark | None:
    return None if each.record.line is None else landmark_of(each.record.line)


def _is_requested(lineage: Lineage, place: Place, key: CallKey) -> bool:
    """Whether the last that stands before the border of a call is its request."""
    for each in lineage.backward(place):
        landmark = _landmark(each)
        if landmark is not None and landmark.call == key:
            return landmark.mark is Mark.REQUEST
    return False


def _find_unanswered(lineage: Lineage, place: Place, requested_again: set[CallKey]) -> CallKey | None:
    """A call without result in the turn under way; behind the border stands neither one nor its end."""
    answered = set(requested_again)
    unanswered: CallKey | None = None
    for each in lineage.backward(place):
        landmark = _landmark(each)
        if landmark is None:
            continue
        if landmark.mark is Mark.TURN_START:
            return unanswered
        if landmark.mark is Mark.TURN_END:
            return None
        if landmark.mark is Mark.RESULT and landmark.call is not None:
            answered.add(landmark.call)
        elif landmark.mark is Mark.REQUEST and landmark.call not in answered:
            unanswered = landmark.call
    return None


class _Span(NamedTuple):
    """No border strictly between the two is possible."""

    begin: Place
    end: Place


def nearest_borders(lineage: Lineage, place: Place) -> tuple[Place | None, Place | None]:
    """The nearest borders before and behind one at which no call is open."""
    spans = _find_spans(lineage)
    before = after = place
    while parted := [each for each in spans if each.begin < before < each.end]:
        before = min(each.begin for each in parted)
    while parted := [each for each in spans if each.begin < after < each.end]:
        after = max(each.end for each in parted)
    return before, None if after == _ENDLESS else after


def _find_spans(lineage: Lineage) -> list[_Span]:
    spans: list[_Span] = []
    requests: dict[CallKey, Place] = {}
    turn_start: Place | None = None
    previous = lineage.start
    for each in lineage.forward(end=lineage.end):
        landmark = _landmark(each)
        if landmark is not None:
            if landmark.mark is Mark.TURN_START:
                turn_start = each.place
                # A result in this turn parts no border before it, but the one where it begins.
                requests = dict.fromkeys(requests, previous)
            elif landmark.mark is Mark.TURN_END:
                turn_start = None
            elif landmark.call is not None and landmark.mark is Mark.REQUEST:
                requests[landmark.call] = each.place
            elif landmark.call is not None and landmark.call in requests:
                spans.append(_Span(requests.pop(landmark.call), each.end))
        previous = each.place
    if turn_start is not None:
        spans += [_Span(begin, _ENDLESS) for begin in requests.values() if begin > turn_start]
    return spans
