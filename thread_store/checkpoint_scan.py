"""The way back from the end of a thread to where its context begins.

Invariant: one pass, newest first, over the whole chain of files; it reads no more than it needs, and
says from where on it has read. What it keeps is what the model's context is made of, and nothing else.

Theory of operation. A rollback takes back so many of the newest turns before it, and everything recorded
since the oldest of them began, a checkpoint too. Read backward that is a count: a rollback adds its
turns to what is owed, each thing that somebody typed (`ModelItem.begins_turn`) pays one. A record met
while something is owed was rolled back. So the first valid checkpoint that is met with nothing owed is
the one that counts; and all rollbacks behind it concern turns behind it.

What outlives a checkpoint (open calls, approvals, session memory) is in the newest `x_memory`, and one
follows each checkpoint and each 1,000 records. A range of `MEMORY_REACH_RECORDS` without one was written
by a program that makes none: then the scan ends, unless it is to be `deep`, and what is older is
unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from msgspec import Struct, field

from protocol.context import TokenUsageRecord
from protocol.events import TokenCount
from protocol.line import RolloutLine
from protocol.own import MemoryItem
from thread_store.checkpoint import Checkpoint, InvalidCheckpoint, decode_checkpoint
from thread_store.landmarks import Mark, landmark_of
from thread_store.lineage import Lineage, LineageRecord, Place
from thread_store.model_item import model_item_of

__all__ = [
    "MEMORY_REACH_RECORDS",
    "PROBLEMS_MAX",
    "CheckpointScan",
    "FoundCheckpoint",
    "Problem",
    "scan_back",
]

MEMORY_REACH_RECORDS = 1_500
"""How many records are read, if need be, to find an `x_memory`."""

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


class FoundCheckpoint(NamedTuple):
    """A checkpoint and where it stands."""

    each: LineageRecord
    checkpoint: Checkpoint


class CheckpointScan(Struct, kw_only=True):
    """What was found; `tail` is oldest first.

    `base` is the checkpoint that counts, None if there is none: then `tail` holds everything. `tail` are the
    records behind it that the context is made of: items, rollbacks, and checkpoints that are a message only.
    """

    base: FoundCheckpoint | None = None
    tail: list[LineageRecord] = field(default_factory=list)
    memory: LineageRecord | None = None
    """The newest valid `x_memory` that is not rolled back."""
    turn_context: RolloutLine | None = None
    usage: RolloutLine | None = None
    """The newest record that says how many tokens were used; rolled back or not, they were."""
    tools_update: RolloutLine | None = None
    rolled_back: list[Place] = field(default_factory=list)
    """Checkpoints that were taken back, newest first."""
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
    end = Place(lineage.end.segment, lineage.own.size)  # a valid last line without newline counts
    for each in lineage.backward(end):
        scan.take(each)
        if scan.is_done:
            break
    else:
        scan.found.examined_from = Place(0, 0)
        scan.found.whole = lineage.problem is None
    return scan.finish()


class _Scan:
    """The state of one pass."""

    def __init__(self, lineage: Lineage, *, deep: bool) -> None:
        self.found = CheckpointScan(examined_from=lineage.end)
        self.is_done = False
        self._lineage = lineage
        self._deep = deep
        self._count = 0
        self._owed = 0
        self._in_dropped_turn = False
        """The thing typed that a rollback goes back to has come, the start of its turn has not."""
        self._messages_only = False
        """A checkpoint without history was met: of what is older only what was typed counts."""

    def take(self, each: LineageRecord) -> None:
        """One record more, older than all before."""
        line = each.record.line
        self._count += 1
        if line is None:
            self._note_damage(each)
        elif line.type == "response_item":
            self._take_item(each, line)
        elif line.type == "event_msg":
            self._take_event(each, line)
        else:
            takes = _TAKES.get(line.type or "")
            if takes is not None:
                takes(self, each, line)
        if self.found.base is not None and self._has_enough():
            self._stop(each.place)

    def finish(self) -> CheckpointScan:
        """What was found, once no record is left or needed."""
        found = self.found
        found.tail.reverse()
        for index in range(found.examined_from.segment, len(self._lineage.segments)):
            damage = self._lineage.segments[index].damage
            if damage is not None:
                self._note(Problem(Place(index, 0), "damaged_frame", damage))
        return found

    def _has_enough(self) -> bool:
        if self._deep:
            return False
        return self.found.memory is not None or self._count >= MEMORY_REACH_RECORDS

    def _stop(self, place: Place) -> None:
        self.is_done = True
        self.found.examined_from = place
        self.found.whole = self.found.memory is not None

    # What the context is made of

    def _take_item(self, each: LineageRecord, line: RolloutLine) -> None:
        if not (self._owed or self._in_dropped_turn or self._messages_only):
            self._keep(each)
            return
        item = model_item_of(line, each.place)
        if item is None:
            return
        typed = item.begins_turn
        # Of what was rolled back only what a cut is found by is kept.
        needed = typed or item.is_injected if self._owed else typed or not self._messages_only
        if self._owed:
            self._owed -= typed
            self._in_dropped_turn = not self._owed
        elif typed or item.role not in ("user", "developer"):
            self._in_dropped_turn = False
        if needed:
            self._keep(each)

    def _keep(self, each: LineageRecord) -> None:
        if self.found.base is None:
            self.found.tail.append(each)

    def _take_event(self, each: LineageRecord, line: RolloutLine) -> None:
        landmark = landmark_of(line)
        if landmark is None:
            if self.found.usage is None and b"token_count" in (line.source or b""):
                self._take_token_count(line)
        elif landmark.mark is Mark.ROLLBACK:
            self._owed += landmark.turns
            self._keep(each)
        elif landmark.mark is Mark.TURN_START:
            self._in_dropped_turn = False

    def _take_checkpoint(self, each: LineageRecord, line: RolloutLine) -> None:
        if self.found.base is not None:
            return
        try:
            checkpoint = decode_checkpoint(line)
        except InvalidCheckpoint as error:
            self._note(Problem(each.place, "invalid_checkpoint", str(error), checkpoint=True))
            return
        if self._owed:
            self.found.rolled_back.append(each.place)
        elif checkpoint.history is None:
            self._keep(each)
            self._messages_only = True
        else:
            self.found.base = FoundCheckpoint(each, checkpoint)

    # What is known besides

    def _take_token_count(self, line: RolloutLine) -> None:
        item = line.item()
        if isinstance(item, TokenCount) and item.info is not None:
            self.found.usage = line

    def _take_usage(self, each: LineageRecord, line: RolloutLine) -> None:
        del each
        if self.found.usage is None and isinstance(line.item(), TokenUsageRecord):
            self.found.usage = line

    def _take_turn_context(self, each: LineageRecord, line: RolloutLine) -> None:
        del each
        if self.found.turn_context is None and not (self._owed or self._in_dropped_turn):
            self.found.turn_context = line

    def _take_tools(self, each: LineageRecord, line: RolloutLine) -> None:
        del each
        base = self.found.base
        if self.found.tools_update is None and (base is None or base.checkpoint.dynamic_tools is None):
            self.found.tools_update = line

    def _take_memory(self, each: LineageRecord, line: RolloutLine) -> None:
        if self.found.memory is not None or self._owed:
            return
        if isinstance(line.item(), MemoryItem):
            self.found.memory = each
        else:
            self._note(Problem(each.place, "invalid_memory", "its payload can't be read"))

    def _note_damage(self, each: LineageRecord) -> None:
        warning = each.record.warning
        assert warning is not None
        checkpoint = self.found.base is None and self._names_checkpoint(each)
        self._note(Problem(each.place, warning.reason, warning.message, checkpoint))

    def _names_checkpoint(self, each: LineageRecord) -> bool:
        if self.found.problem_count >= PROBLEMS_MAX:
            return False
        with self._lineage.open(each.segment) as file:
            return b'"compacted"' in file.read_at(min(each.record.size, _HEAD_BYTES), each.record.offset)

    def _note(self, problem: Problem) -> None:
        self.found.problem_count += 1
        if len(self.found.problems) < PROBLEMS_MAX:
            self.found.problems.append(problem)


_TAKES: dict[str, Callable[[_Scan, LineageRecord, RolloutLine], None]] = {
    "compacted": _Scan._take_checkpoint,
    "dynamic_tools_updated": _Scan._take_tools,
    "inter_agent_communication": _Scan._take_item,
    "token_usage_record": _Scan._take_usage,
    "turn_context": _Scan._take_turn_context,
    "x_memory": _Scan._take_memory,
}
