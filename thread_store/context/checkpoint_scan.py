"""The way back from the end of a thread to where its context begins.

Invariant: one pass, newest first, over the whole chain of files; it reads no more than it needs, and
says from where on it has read. What it keeps is what the model's context is made of, and nothing else.

What outlives a checkpoint (open calls, approvals, session memory) is in the newest `x_memory`, and one
follows each checkpoint and each 1,000 records. A range of `MEMORY_REACH_RECORDS` without one was written
by a program that makes none: then the scan ends, unless it is to be `deep`, and what is older is
unknown.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec import Struct, field

from protocol.context import TokenUsageRecord
from protocol.events import TokenCount
from protocol.line import RolloutLine
from protocol.own import MemoryItem
from rollout.record import RolloutRecord
from thread_store.chain.landmarks import Mark, landmark_of
from thread_store.chain.lineage import Lineage, LineageRecord, Place
from thread_store.context.checkpoint import InvalidCheckpoint, decode_checkpoint
from thread_store.context.context_tail import ContextTail

__all__ = [
    "MEMORIES_MAX",
    "MEMORY_REACH_RECORDS",
    "PROBLEMS_MAX",
    "CheckpointScan",
    "Problem",
    "scan_back",
]

MEMORY_REACH_RECORDS = 1_500
"""How many records are read, if need be, to find an `x_memory`."""

MEMORIES_MAX = 8
"""So many `x_memory` records are handed on, the newest: one that fits is all that is needed."""

PROBLEMS_MAX = 1_000
"""So many are listed, the newest; the others are counted."""

_HEAD_BYTES = 256
"""So much of a damaged line tells whether it was a checkpoint."""


class Problem(Struct, frozen=True):
    """A place in the range that was read where something is wrong.

    `reason`: that of the line's warning, or `invalid_checkpoint`, `invalid_memory`. `checkpoint`: one stood
    there, as far as can be seen, so the one before it counts.
    """

    place: Place
    reason: str
    message: str
    checkpoint: bool = False


class CheckpointScan(Struct, kw_only=True):
    """What was found: the `tail` of the context with its checkpoint, and what is known besides."""

    tail: ContextTail
    memory: LineageRecord | None = None
    """The newest valid `x_memory` that is not rolled back."""
    memories: list[LineageRecord] = field(default_factory=list)
    """All of them that were met, newest first, rolled back or not: a fold goes by every line."""
    turn_context: RolloutLine | None = None
    """The newest one of a turn that is not rolled back."""
    usage: RolloutLine | None = None
    """The newest record that says how many tokens were used; rolled back or not, they were."""
    tools_update: RolloutLine | None = None
    problems: list[Problem] = field(default_factory=list)
    problem_count: int = 0
    examined_from: Place
    whole: bool = False
    """Whether everything before `examined_from` is read, or known from `memory`."""


def scan_back(lineage: Lineage, *, deep: bool = False) -> CheckpointScan:
    """Read back to the checkpoint that counts, or with `deep` to the start. Blocks; O(bytes read).

    Raises:
        ThreadNotFound, RolloutReplaced, RolloutUnreadable: a file of the chain went away meanwhile.
    """
    scan = _Scan(lineage, deep=deep)
    for index in range(lineage.end.segment, -1, -1):
        if scan.read_segment(index):
            return scan.finish()
    scan.found.examined_from = Place(0, 0)
    scan.found.whole = lineage.problem is None
    return scan.finish()


_TURN_EVENTS = frozenset({"task_started", "turn_started", "thread_rolled_back"})


class _Event(Struct, gc=False):
    type: str = ""


_decode_event = msgspec.json.Decoder(_Event).decode


def _event_kind(line: RolloutLine) -> str:
    """Of an `event_msg`; "" if it names none."""
    try:
        return _decode_event(line.payload).type
    except (msgspec.DecodeError, RecursionError):
        payload = line.payload_object()
    kind = payload.get("type") if isinstance(payload, dict) else None
    return kind if isinstance(kind, str) else ""


class _Scan:
    """The state of one pass."""

    def __init__(self, lineage: Lineage, *, deep: bool) -> None:
        self.tail = ContextTail()
        self.found = CheckpointScan(tail=self.tail, examined_from=lineage.end)
        self._lineage = lineage
        self._segment = lineage.end.segment
        self._deep = deep
        self._count = 0

    def read_segment(self, index: int) -> bool:
        """Read one file backward; True as soon as nothing older is needed."""
        segment = self._lineage.segments[index]
        self._segment = index
        # In the youngest file a valid last line without newline counts too.
        end = segment.size if index == self._lineage.end.segment else segment.end
        with self._lineage.open(index) as file:
            for record in file.backward(segment.start, end):
                if record.offset != segment.meta_offset:
                    self._take(record)
                    if self.tail.base is not None and self._has_enough():
                        self._stop(record)
                        return True
        return False

    def _take(self, record: RolloutRecord) -> None:
        line = record.line
        self._count += 1
        if line is None:
            self._note_damage(record)
        elif line.type == "response_item":
            self._take_item(record, line)
        else:
            takes = _TAKES.get(line.type or "")
            if takes is not None:
                takes(self, record, line)

    def finish(self) -> CheckpointScan:
        """What was found, once no record is left or needed."""
        found = self.found
        self.tail.finish()
        for index in range(found.examined_from.segment, len(self._lineage.segments)):
            damage = self._lineage.segments[index].damage
            if damage is not None:
                self._note(Problem(Place(index, 0), "damaged_frame", damage))
        return found

    def _has_enough(self) -> bool:
        if self._deep:
            return False
        return self.found.memory is not None or self._count >= MEMORY_REACH_RECORDS

    def _stop(self, record: RolloutRecord) -> None:
        self.found.examined_from = self._place(record)
        self.found.whole = self.found.memory is not None

    def _place(self, record: RolloutRecord) -> Place:
        return Place(self._segment, record.offset)

    # What the context is made of

    def _take_item(self, record: RolloutRecord, line: RolloutLine) -> None:
        self.tail.take_item(line, self._segment, record.offset)

    def _take_event(self, record: RolloutRecord, line: RolloutLine) -> None:
        kind = _event_kind(line)
        if kind == "token_count":
            if self.found.usage is None:
                self._take_token_count(line)
        elif kind in _TURN_EVENTS:
            landmark = landmark_of(line)
            if landmark is not None and landmark.mark is Mark.ROLLBACK:
                self.tail.take_rollback(self._place(record), landmark.turns)
            elif landmark is not None:
                self.tail.take_turn_start()

    def _take_checkpoint(self, record: RolloutRecord, line: RolloutLine) -> None:
        if self.tail.base is not None:
            return
        place = self._place(record)
        try:
            self.tail.take_checkpoint(place, decode_checkpoint(line))
        except InvalidCheckpoint as error:
            self._note(Problem(place, "invalid_checkpoint", str(error), checkpoint=True))

    # What is known besides

    def _take_token_count(self, line: RolloutLine) -> None:
        item = line.item()
        if isinstance(item, TokenCount) and item.info is not None:
            self.found.usage = line

    def _take_usage(self, record: RolloutRecord, line: RolloutLine) -> None:
        del record
        if self.found.usage is None and isinstance(line.item(), TokenUsageRecord):
            self.found.usage = line

    def _take_turn_context(self, record: RolloutRecord, line: RolloutLine) -> None:
        del record
        if self.found.turn_context is None and not self.tail.is_in_dropped_turn:
            self.found.turn_context = line

    def _take_tools(self, record: RolloutRecord, line: RolloutLine) -> None:
        del record
        base = self.tail.base
        if self.found.tools_update is None and (base is None or base.checkpoint.dynamic_tools is None):
            self.found.tools_update = line

    def _take_memory(self, record: RolloutRecord, line: RolloutLine) -> None:
        found = self.found
        if len(found.memories) == MEMORIES_MAX and found.memory is not None:
            return
        if isinstance(line.item(), MemoryItem):
            memory = LineageRecord(self._segment, record)
            if len(found.memories) < MEMORIES_MAX:
                found.memories.append(memory)
            if found.memory is None and not self.tail.is_rolled_back:
                found.memory = memory
        elif found.memory is None and not self.tail.is_rolled_back:
            self._note(Problem(self._place(record), "invalid_memory", "its payload can't be read"))

    def _note_damage(self, record: RolloutRecord) -> None:
        warning = record.warning
        assert warning is not None
        checkpoint = self.tail.base is None and self._names_checkpoint(record)
        self._note(Problem(self._place(record), warning.reason, warning.message, checkpoint))

    def _names_checkpoint(self, record: RolloutRecord) -> bool:
        if self.found.problem_count >= PROBLEMS_MAX:
            return False
        with self._lineage.open(self._segment) as file:
            return b'"compacted"' in file.read_at(min(record.size, _HEAD_BYTES), record.offset)

    def _note(self, problem: Problem) -> None:
        self.found.problem_count += 1
        if len(self.found.problems) < PROBLEMS_MAX:
            self.found.problems.append(problem)


_TAKES: dict[str, Callable[[_Scan, RolloutRecord, RolloutLine], None]] = {
    "compacted": _Scan._take_checkpoint,
    "event_msg": _Scan._take_event,
    "dynamic_tools_updated": _Scan._take_tools,
    "inter_agent_communication": _Scan._take_item,
    "token_usage_record": _Scan._take_usage,
    "turn_context": _Scan._take_turn_context,
    "x_memory": _Scan._take_memory,
}
