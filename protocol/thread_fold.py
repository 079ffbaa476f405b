"""Thread fold: all that must be known of a thread beside its history, folded line by line.

Invariant: a pure function of the lines, their offsets and the damage between them. Folding all is
the same as folding on from any snapshot (`x_memory`); memory and snapshots are bounded. Nothing
here is undone by roll-backs or compactions but what the session memory says it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from protocol.approvals import APPROVAL_EVENTS, ApprovalFold
from protocol.call_facts import text_of
from protocol.checks import CheckFold
from protocol.damage import Damage, DamageFold
from protocol.decoding import convert_plain
from protocol.fold_filter import matters
from protocol.line import RolloutLine
from protocol.memory_entries import Place
from protocol.own import MemoryItem
from protocol.session_memory import SessionMemory
from protocol.thread_facts import FACT_NAMES, ThreadFacts
from protocol.tool_calls import CallChange, ToolCallFold
from protocol.tool_safety import DEFAULT_TOOL_SAFETY, ToolSafety

__all__ = ["SNAPSHOT_VERSION", "ThreadFold"]

SNAPSHOT_VERSION = 1
"""Of `x_memory`. Another one is not read: the fold begins further back."""

_NO_PAYLOAD: Mapping[str, Any] = {}


class ThreadFold:
    """The fold of a thread. Give it every line in order, or say which it need not see (`pass_over`)."""

    def __init__(self, safety: ToolSafety = DEFAULT_TOOL_SAFETY) -> None:
        self.calls = ToolCallFold(safety)
        self.approvals = ApprovalFold()
        self.checks = CheckFold()
        self.facts = ThreadFacts()
        self.memory = SessionMemory()
        self._listen()

    def _listen(self) -> None:
        self._offset: int | None = None
        self.damage.listener = self._note_damage

    @property
    def damage(self) -> DamageFold:
        """The ranges that can't be read."""
        return self.calls.damage

    # -- what goes in

    def add(self, line: RolloutLine, offset: int | None = None) -> None:
        """Take the next line, which stands at `offset` (bytes)."""
        self._offset = offset
        self.damage.take_line(line, offset)
        if matters(line):
            self._take(line, offset)

    def pass_over(self, last_ordinal: int | None) -> None:
        """Take lines that don't matter (`fold_filter.matters`), numbered without a gap up to this."""
        if last_ordinal is not None:
            self.damage.pass_to(last_ordinal)

    def add_damage(self, reason: str, offset: int | None = None, end: int | None = None) -> None:
        """Take a range that can't be read in the place of lines. `reason`: that of the warning."""
        self._offset = offset
        self.damage.add(reason, offset, end)

    def _take(self, line: RolloutLine, offset: int | None) -> None:
        # What a checkpoint holds is the history's; that there is one is all that matters here.
        payload = _NO_PAYLOAD if line.type == "compacted" else line.payload_object()
        if not isinstance(payload, Mapping):
            payload = _NO_PAYLOAD
        place = Place(self.damage.max_ordinal if line.ordinal is None else line.ordinal, offset)
        change = self.calls.take(line, payload, offset)
        if change is not None:
            self._note_change(line, change, place)
        self._take_aside(line, payload, place)
        self.facts.take(line, payload, place)
        self.memory.take(line, payload, place)

    def _note_change(self, line: RolloutLine, change: CallChange, place: Place) -> None:
        self.memory.note_call(change, place)
        self.approvals.note_call(change)
        for check in self.checks.note_call(change, own=line.type == "x_call"):
            self.memory.note_check(check, place)

    def _take_aside(self, line: RolloutLine, payload: Mapping[str, Any], place: Place) -> None:
        """Approvals and checks."""
        asks = line.type == "event_msg" and text_of(payload.get("type")) in APPROVAL_EVENTS
        if line.type == "x_approval" or asks:
            approval = self.approvals.take(line, payload, place.offset)
            if approval is not None:
                self.memory.note_approval(approval, place)
        elif line.type == "x_check":
            check, lost = self.checks.take(payload, ordinal=place.ordinal, offset=place.offset)
            if check is not None:
                self.memory.note_check(check, place)
            if lost:
                self.damage.add("too_many_checks" if check else "unreadable_check", place.offset)

    def _note_damage(self, damage: Damage) -> None:
        self.calls.note_damage(damage)
        self.memory.note_damage(damage, Place(self.damage.max_ordinal, self._offset))

    # -- snapshots

    def snapshot(self, upto_offset: int) -> MemoryItem:
        """The whole fold as a record; it covers the bytes before `upto_offset`."""
        calls, facts = self.calls.to_plain(), self.facts.to_plain()
        return MemoryItem(
            version=SNAPSHOT_VERSION,
            upto_offset=upto_offset,
            max_ordinal=self.damage.max_ordinal,
            epoch=self.calls.epoch,
            turn_id=self.calls.turn_id,
            open_calls=calls.get("open", []),
            recent_calls=calls.get("closed", []),
            approvals=self.approvals.to_plain(),
            checks=self.checks.to_plain(),
            damage=self.damage.to_plain(),
            memory=self.memory.to_plain(),
            **facts,
        )

    @classmethod
    def restore(
        cls, payload: Mapping[str, Any] | MemoryItem, safety: ToolSafety = DEFAULT_TOOL_SAFETY
    ) -> ThreadFold | None:
        """Go on from a snapshot, given as an item or as the plain payload of its line.

        None if it is of another version or doesn't fit: then the one before it is to be tried.
        """
        try:
            item = payload if isinstance(payload, MemoryItem) else convert_plain(payload, MemoryItem)
            return cls._restored(item, safety) if item.version == SNAPSHOT_VERSION else None
        except (msgspec.ValidationError, TypeError):
            return None

    @classmethod
    def _restored(cls, item: MemoryItem, safety: ToolSafety) -> ThreadFold:
        fold = cls(safety)
        facts = {name: getattr(item, name) for name in FACT_NAMES}
        fold.facts = ThreadFacts.from_plain({name: told for name, told in facts.items() if told is not None})
        fold.approvals = ApprovalFold.from_plain(item.approvals)
        fold.checks = CheckFold.from_plain(item.checks)
        fold.memory = SessionMemory.from_plain(item.memory)
        damage = DamageFold.from_plain(item.damage, item.max_ordinal)
        calls = {
            "open": item.open_calls,
            "closed": item.recent_calls,
            "turn_id": item.turn_id,
            "epoch": item.epoch,
        }
        fold.calls = ToolCallFold.from_plain(calls, damage, safety)
        fold._listen()
        return fold
