"""Reverts: a thread goes on from an earlier point, in a new rollout of its own (FORMAT.md, Forks).

Invariant: nothing that was recorded is changed or lost: the older rollouts stay, and the new one has
the greatest rollout id of the thread, which makes it the current one. Only paginated threads are
reverted so; a legacy one drops turns by a `thread_rolled_back` record in its own file.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any

from msgspec import Struct

from protocol.errors import ForkRefused
from protocol.ids import ThreadId
from protocol.meta import HistoryBase
from rollout.paths import RolloutName
from thread_store.chain.borders import Border, resolve_border
from thread_store.chain.fork_point import ForkPoint
from thread_store.chain.lineage import Lineage
from thread_store.chain.turn_starts import find_turns
from thread_store.forks.fork import NewReference, base_at, make_reference
from thread_store.forks.fork_copy import ForkCalls
from thread_store.forks.fork_meta import MetaOrigin, revert_payload
from thread_store.home import Home

__all__ = ["Revert", "make_revert", "next_rollout_id", "turns_to_drop"]

_TAIL_BITS = 74  # rand_a (12) and rand_b (62) of RFC 9562, section 5.7
_LOW_MASK = (1 << 62) - 1


class Revert(Struct, frozen=True, kw_only=True):
    """What was made: the rollout that the thread goes on in."""

    path: str
    thread_id: str
    rollout_id: str
    border: Border
    base: HistoryBase


def make_revert(
    source_path: str | os.PathLike[str],
    *,
    home: Home,
    point: ForkPoint,
    created: datetime | None = None,
    meta_changes: Mapping[str, Any] | None = None,
    coordination: AbstractContextManager[object] | None = None,
    calls: ForkCalls | None = None,
) -> Revert:
    """Make the rollout in which a thread goes on from a point of its history.

    Blocks. The caller holds the thread's writer lock, and `source_path` is its current rollout.
    `created` is local time, by default now. Of a thread whose oldest history can't be read, what can
    be is still reverted to. On return everything is on stable storage.

    Raises:
        ForkRefused: it is a legacy thread (see `turns_to_drop`), or lies outside the home.
        ForkPointInvalid, ThreadNotFound, NotARollout, RolloutUnreadable, RolloutExists,
            RolloutWriteError: as `make_fork`.
    """
    calls = calls or ForkCalls()
    with Lineage.resolve(source_path, home) as lineage:
        if not lineage.own.paginated:
            raise ForkRefused(
                path=lineage.own.path,
                reason="a legacy thread is not reverted by a new file",
                hint="Record a thread_rolled_back, or fork it",
            )
        border = resolve_border(point, lineage)
        base = base_at(border, lineage, home)
        with lineage.open(lineage.end.segment) as file:
            origin = MetaOrigin(file)
        thread_id = ThreadId.parse(origin.thread_id or "")
        rollout_id = next_rollout_id(_rollout_ids(home, thread_id))
        name = RolloutName.make(thread_id, created=created or datetime.now(), rollout_id=rollout_id)
        target = os.path.join(home.path, name.folder, name.text)
        payload = revert_payload(
            origin,
            thread_id=thread_id,
            end_ordinal=base.end_ordinal_exclusive,
            base=base,
            changes=meta_changes or {},
        )
        reference = NewReference(target, payload, base, border, lineage, home)
        make_reference(reference, calls=calls, coordination=coordination)
    return Revert(path=target, thread_id=thread_id, rollout_id=rollout_id, border=border, base=base)


def _rollout_ids(home: Home, thread_id: ThreadId) -> list[ThreadId]:
    """Of the reverts so far: the plain name counts as the oldest whatever its id is."""
    names = [each.name for each in home.rollouts() if each.name.thread_id == thread_id]
    return [name.rollout_id for name in names if name.rollout_id is not None]


def next_rollout_id(existing: Iterable[str]) -> ThreadId:
    """A UUIDv7 greater than all of these, whatever the clocks say.

    It is a fresh one, unless a greater one exists (a clock stepped back, another host is ahead):
    then it is the one after the greatest.

    Raises:
        InvalidThreadId: one of them is no UUID, or there is none greater.
    """
    fresh = ThreadId.new()
    greatest = max((ThreadId.parse(each) for each in existing), default=None)
    return fresh if greatest is None or fresh > greatest else _successor(greatest)


def _successor(rollout_id: ThreadId) -> ThreadId:
    """The UUIDv7 after an id, which may be of another version."""
    value = int(rollout_id.replace("-", ""), 16)
    counted = (value >> 80 << _TAIL_BITS) + (value >> 64 & 0xFFF) * (1 << 62) + (value & _LOW_MASK) + 1
    following = _compose(counted)
    return following if following > rollout_id else _compose((value >> 80) + 1 << _TAIL_BITS)


def _compose(counted: int) -> ThreadId:
    """Milliseconds, and 74 bits behind them, as a UUIDv7 (RFC 9562, section 5.7)."""
    milliseconds, tail = counted >> _TAIL_BITS, counted & ((1 << _TAIL_BITS) - 1)
    digits = f"{milliseconds << 80 | 0x7 << 76 | tail >> 62 << 64 | 0b10 << 62 | tail & _LOW_MASK:032x}"
    return ThreadId("-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])))


def turns_to_drop(lineage: Lineage, point: ForkPoint) -> int:
    """How many turns of a legacy thread a `thread_rolled_back` must name to go back to a point.

    Counted are the messages that the user typed, as Codex counts them: a turn may hold several.

    Raises:
        ForkPointInvalid: as `resolve_border`.
    """
    place = resolve_border(point, lineage).place
    return sum(turn.typed for turn in find_turns(lineage) if turn.place >= place)
