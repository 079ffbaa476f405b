"""The tool calls of a thread as a table: each call with its verdict, and where and when it was heard of.

Invariant: the verdicts are those of `protocol.tool_calls`, over every line of the whole chain of files;
no snapshot is believed. Memory is bounded unless every call is asked for.

The fold knows one offset for each record. In a chain of several files it is given the offset as if they
were one file, so that no two records share one; what comes out is taken back to the file that it is in.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate

from msgspec import Struct, structs

from protocol.damage import Damage
from protocol.fold_filter import matters
from protocol.line import RolloutLine
from protocol.tool_calls import CLOSED_CALLS_MAX, OPEN_CALLS_MAX, CallChange, ToolCall, ToolCallFold
from protocol.tool_safety import DEFAULT_TOOL_SAFETY, ToolSafety
from rollout.record import RolloutRecord
from thread_store.chain.lineage import Lineage, Place

__all__ = ["ENDED_CALLS_LISTED", "CallTable", "ListedCall", "ListedDamage", "list_calls"]

ENDED_CALLS_LISTED = CLOSED_CALLS_MAX
"""So many calls that ended are listed if not every one is asked for."""

_STAMPS_MAX = 4 * (OPEN_CALLS_MAX + ENDED_CALLS_LISTED)
"""Times of so many records are kept before those of calls that are no longer known are let go of."""

_EVERY = 1 << 60


class ListedCall(Struct, frozen=True, kw_only=True):
    """A call. Its offsets are those of the files at `request_path` and `last_path`.

    `requested_at` and `last_at`: when the records were written, as they say.
    """

    call: ToolCall
    request_path: str | None
    requested_at: str | None
    last_path: str | None
    last_at: str | None


class ListedDamage(Struct, frozen=True, kw_only=True):
    """A range that can't be read, in the file at `path` (None: it isn't known where)."""

    damage: Damage
    path: str | None

    @property
    def blocks(self) -> bool:
        """Whether a call may have stood there, and nobody has gone on knowing of it since."""
        return self.damage.hides_calls and not self.damage.accepted


class CallTable(Struct, kw_only=True):
    """All calls of a thread, or the open ones and the newest that ended."""

    open: list[ListedCall]
    """Those whose end is not known, in the order of their requests."""
    ended: list[ListedCall]
    """The others, in the order of their ends."""
    omitted: bool
    """Whether more calls ended than are listed."""
    damage: list[ListedDamage]
    whole: bool
    """Whether the whole history could be read; else a base of it is missing."""

    @property
    def blocking(self) -> list[ListedCall]:
        """The calls that forbid an automatic resume."""
        return [each for each in self.open if each.call.blocks_resume]


def list_calls(
    lineage: Lineage,
    *,
    every: bool = False,
    with_tail: bool = True,
    safety: ToolSafety = DEFAULT_TOOL_SAFETY,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> CallTable:
    """Fold the calls of a thread. Blocks; one streaming pass over all its bytes.

    Args:
        every: all calls that ended too, however many; else the newest `ENDED_CALLS_LISTED`.
        with_tail: a last line that was never finished is damage; say no while somebody is writing it.
        progress: told of the bytes that are done, and of all.

    Raises:
        ThreadNotFound, RolloutReplaced, RolloutUnreadable: a file of the chain went away meanwhile.
    """
    return _Listing(lineage, every=every, safety=safety).run(with_tail=with_tail, progress=progress)


class _Listing:
    """The state of one pass."""

    def __init__(self, lineage: Lineage, *, every: bool, safety: ToolSafety) -> None:
        self._lineage = lineage
        self._every = every
        self._fold = ToolCallFold(
            safety,
            open_max=_EVERY if every else OPEN_CALLS_MAX,
            closed_max=None if every else ENDED_CALLS_LISTED + 1,
        )
        sizes = [0, *accumulate(each.size for each in lineage.segments)]
        self._bases, self._total = sizes[:-1], sizes[-1]
        self._stamps: dict[int, str | None] = {}

    def run(self, *, with_tail: bool, progress: Callable[[int, int], None]) -> CallTable:
        lineage, fold = self._lineage, self._fold
        if lineage.problem is not None:
            fold.add_damage(f"base_{lineage.problem.code}")
        begun = -1
        for found in lineage.forward(end=None if with_tail else lineage.end):
            if found.segment != begun:
                begun = found.segment
                self._begin_file(begun)
            at = self._bases[begun] + found.record.offset
            self._take(found.record, at)
            progress(at, self._total)
        return self._table()

    def _begin_file(self, segment: int) -> None:
        with self._lineage.open(segment) as file:
            ordinal = file.meta_line.ordinal
        if ordinal is not None:
            self._fold.damage.pass_to(ordinal)
        if self._lineage.segments[segment].damage is not None:
            self._fold.add_damage("damaged_frame", self._bases[segment])

    def _take(self, record: RolloutRecord, at: int) -> None:
        if record.line is not None:
            if self._take_line(record.line, at) is not None:
                self._note_time(record.line.timestamp, at)
        elif record.warning is not None:
            self._fold.add_damage(record.warning.reason, at, at + record.size + 1)

    def _take_line(self, line: RolloutLine, at: int) -> CallChange | None:
        self._fold.damage.take_line(line, at)
        if line.type == "compacted" or not matters(line):
            return None
        payload = line.payload_object()
        return self._fold.take(line, payload if isinstance(payload, dict) else {}, at)

    def _note_time(self, stamp: str | None, at: int) -> None:
        self._stamps[at] = stamp
        if len(self._stamps) > _STAMPS_MAX and not self._every:
            known = {at for call in self._fold for at in (call.request_offset, call.last_offset)}
            self._stamps = {at: stamp for at, stamp in self._stamps.items() if at in known}

    # What came out

    def _table(self) -> CallTable:
        fold = self._fold
        still_open = fold.open_calls()
        if len(still_open) > OPEN_CALLS_MAX:
            fold.add_damage("too_many_calls")  # as it is for whoever resumes the thread
        ended = fold.calls()[: -len(still_open) or None]
        omitted = not self._every and len(ended) > ENDED_CALLS_LISTED
        return CallTable(
            open=[self._listed(each) for each in still_open],
            ended=[self._listed(each) for each in ended[omitted:]],
            omitted=omitted,
            damage=[self._listed_damage(each) for each in fold.damage.ranges],
            whole=self._lineage.problem is None,
        )

    def _listed(self, call: ToolCall) -> ListedCall:
        return ListedCall(
            call=structs.replace(
                call,
                request_offset=self._own_offset(call.request_offset),
                last_offset=self._own_offset(call.last_offset),
            ),
            request_path=self._path(call.request_offset),
            requested_at=self._stamp(call.request_offset),
            last_path=self._path(call.last_offset),
            last_at=self._stamp(call.last_offset),
        )

    def _listed_damage(self, damage: Damage) -> ListedDamage:
        path = self._path(damage.offset)
        if damage.offset is None:
            return ListedDamage(damage=damage, path=path)
        base = damage.offset - (self._own_offset(damage.offset) or 0)
        end = None if damage.end is None else damage.end - base
        own = structs.replace(damage, offset=damage.offset - base, end=end)
        return ListedDamage(damage=own, path=path)

    def _place(self, at: int) -> Place:
        segment = bisect_right(self._bases, at) - 1
        return Place(segment, at - self._bases[segment])

    def _own_offset(self, at: int | None) -> int | None:
        return None if at is None else self._place(at).offset

    def _path(self, at: int | None) -> str | None:
        return None if at is None else self._lineage.segments[self._place(at).segment].path

    def _stamp(self, at: int | None) -> str | None:
        return None if at is None else self._stamps.get(at)
