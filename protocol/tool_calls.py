"""Tool calls: how far each call of a thread got, folded from its records, whoever wrote them.

Invariant: a call is known by (turn, call id). Roll-backs and compactions change nothing here:
what started did happen. Doubt is never resolved by leaving something out: a record that can't be
told apart begins a call anew, a state that is unknown is uncertain, an effect that is unknown is
unsafe. The verdict itself is drawn by the table in `protocol.tool_verdicts`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from msgspec import Struct, to_builtins

from protocol.call_facts import CallFact, Said, count_of, read_call_fact, text_of
from protocol.call_state import ARGUMENTS_CHARS_MAX, CallChange, CallState, Decision, ToolCall
from protocol.damage import Damage, DamageFold
from protocol.decoding import convert_plain
from protocol.line import RolloutLine
from protocol.tool_safety import DEFAULT_TOOL_SAFETY, Effect, ToolSafety
from protocol.tool_verdicts import ToolVerdict

__all__ = [
    "ARGUMENTS_CHARS_MAX",
    "CLOSED_CALLS_MAX",
    "OPEN_CALLS_MAX",
    "CallChange",
    "Decision",
    "ToolCall",
    "ToolCallFold",
    "ToolVerdict",
]

OPEN_CALLS_MAX = 512
"""Calls without a known end that are kept; one more is damage that blocks a resume."""
CLOSED_CALLS_MAX = 32
"""Calls with a known end that are kept, the newest, for records that come late."""


class _State(Struct, omit_defaults=True):
    open: list[CallState] = []
    closed: list[CallState] = []
    turn_id: str | None = None
    epoch: int | None = None


_UNANSWERED = frozenset({"expired", "withdrawn"})
_OF_DAMAGE = frozenset({"x_writer", "x_gap", "x_erased"})
_TURN_BEGINS = frozenset({"task_started", "turn_started"})
_TURN_ENDS = frozenset({"task_complete", "turn_complete", "turn_aborted"})


class ToolCallFold:
    """The calls of a thread, record by record, in bounded memory.

    `safety` tells the effect of calls that declare none. With `closed_max=None` every call is kept.
    """

    def __init__(
        self,
        safety: ToolSafety = DEFAULT_TOOL_SAFETY,
        *,
        open_max: int = OPEN_CALLS_MAX,
        closed_max: int | None = CLOSED_CALLS_MAX,
    ) -> None:
        self.damage = DamageFold()
        self.damage.listener = self.note_damage
        self._safety = safety
        self._open_max = open_max
        self._closed_max = closed_max
        self._open: dict[tuple[str, str], CallState] = {}
        self._closed: dict[tuple[str, str], CallState] = {}
        self._turn_id: str | None = None
        self._epoch: int | None = None

    # -- what came out

    @property
    def turn_id(self) -> str | None:
        """The turn that is open; None between turns."""
        return self._turn_id

    @property
    def epoch(self) -> int | None:
        """The greatest epoch of a writer so far."""
        return self._epoch

    @property
    def damaged_ranges(self) -> list[Damage]:
        """The ranges that may have hidden a call, and that nobody has accepted yet."""
        return self.damage.blocking

    def calls(self) -> list[ToolCall]:
        """All calls that are kept: those that ended, in the order of their ends, then the open ones."""
        return [self._view(each) for each in (*self._closed.values(), *self._open.values())]

    def open_calls(self) -> list[ToolCall]:
        """The calls whose end is not known (pending and uncertain), in the order of their requests."""
        return [self._view(each) for each in self._open.values()]

    def _view(self, call: CallState) -> ToolCall:
        return call.view(self._registered(call))

    def _registered(self, call: CallState) -> Effect:
        """The effect of a call that declares none. The name of a command is no tool's name, and a tool
        of an unknown server is nobody's."""
        if call.kind in ("shell", "patch") or (call.kind == "mcp" and call.namespace is None):
            return Effect.UNSAFE
        return self._safety.effect_of(call.name, call.namespace)

    # -- what goes in

    def add(self, line: RolloutLine, offset: int | None = None) -> CallChange | None:
        """Take the next line, which stands at `offset`; return what changed, if one call did."""
        self.damage.take_line(line, offset)
        payload = line.payload_object()
        return self.take(line, payload if isinstance(payload, dict) else {}, offset)

    def add_damage(self, reason: str, offset: int | None = None, end: int | None = None) -> None:
        """Take a range that can't be read in the place of lines."""
        self.damage.add(reason, offset, end)

    def note_damage(self, damage: Damage) -> None:
        """A range was noted in `damage`: what is pending may have begun there."""
        if damage.hides_records:
            for call in self._open.values():
                call.doubted = call.doubted or call.rule.verdict is ToolVerdict.PENDING

    def take(self, line: RolloutLine, payload: Mapping[str, Any], offset: int | None) -> CallChange | None:
        """The same as `add` for a line whose ordinal was looked at and whose payload is decoded."""
        if line.type == "x_call":
            return self._take_own(line, payload, offset)
        if line.type == "x_approval":
            return self._take_approval(line, payload, offset)
        if line.type == "x_writer":
            self._take_writer(payload)
        if line.type in _OF_DAMAGE:
            self.damage.take_own(line.type, payload, offset)
            return None
        fact = read_call_fact(line.type, payload)
        if fact is not None:
            return self._take_fact(fact, line, offset)
        self._take_turn(line.type, payload)
        return None

    def _take_turn(self, record_type: str | None, payload: Mapping[str, Any]) -> None:
        variant = text_of(payload.get("type")) if record_type == "event_msg" else None
        named = text_of(payload.get("turn_id"))
        if variant in _TURN_BEGINS or record_type == "turn_context":
            self._turn_id = named or self._turn_id
            if variant in _TURN_BEGINS:
                self._leave_outside()
        elif variant in _TURN_ENDS and named in (None, self._turn_id):
            self._turn_id = None

    def _leave_outside(self) -> None:
        """What was met outside any turn until now is of none."""
        for call in self._kept():
            call.outside = call.outside or call.turn_id is None

    def _take_writer(self, payload: Mapping[str, Any]) -> None:
        event, epoch = payload.get("event"), payload.get("epoch")
        if isinstance(epoch, int) and not isinstance(epoch, bool):
            self._epoch = max(epoch, self._epoch or epoch)
        if event in ("opened", "closed"):
            self._leave_outside()
            for call in self._open.values():
                call.epoch_end = call.epoch_end or ("closed" if event == "closed" else "lost")

    # -- Codex's records

    def _take_fact(self, fact: CallFact, line: RolloutLine, offset: int | None) -> CallChange | None:
        call = self._find(fact.call_id, fact.turn_id, request=fact.said is Said.REQUEST)
        if call is None and fact.said is Said.OUTPUT:
            return None  # an output without its call is no call
        if call is not None and fact.said is Said.REQUEST and call.requested:
            self._forget_former(call)
            call = None
        before = None if call is None else call.rule.verdict
        if call is None:
            call = self._begin(fact.call_id, fact.turn_id)
        call.apply_fact(fact)
        if fact.said is Said.REQUEST:
            call.requested = True
            call.request_ordinal, call.request_offset = line.ordinal, offset
        return self._settle(call, before, line, offset)

    def _forget_former(self, former: CallState) -> None:
        """A call id is requested again in its turn: a call of its own. Where the former had no end, one
        of the two could hide the other from here on."""
        if former.is_open:
            self.damage.add("reused_call_id", former.request_offset, former.last_offset)
        self._open.pop(former.place, None)
        self._closed.pop(former.place, None)

    def _find(self, call_id: str, turn_id: str | None, *, request: bool = False) -> CallState | None:
        """The call that a record means. A record that doesn't name its turn means the one that is open,
        and unless it is a request, else the newest call of that id. Never an older one: its end is not
        told twice, and a second record of a newer call's end would take away the doubt about it."""
        place = (turn_id or self._turn_id or "", call_id)
        exact = self._open.get(place) or self._closed.get(place)
        if turn_id is not None:
            return exact or self._adopt(call_id, turn_id)
        return exact if request or exact is not None else self._newest(call_id)

    def _adopt(self, call_id: str, turn_id: str) -> CallState | None:
        """A call that was just met outside any turn: now its turn is known. One of long ago is another."""
        for calls in (self._open, self._closed):
            call = calls.get(("", call_id))
            if call is not None and not call.outside:
                del calls["", call_id]
                call.turn_id = turn_id
                calls[call.place] = call
                return call
        return None

    def _kept(self) -> Iterator[CallState]:
        return chain(self._closed.values(), self._open.values())

    def _newest(self, call_id: str) -> CallState | None:
        named = (each for each in self._kept() if each.call_id == call_id)
        return max(named, key=lambda each: each.serial, default=None)

    def _begin(self, call_id: str, turn_id: str | None, attempt: int = 1) -> CallState:
        serial = 1 + max((each.serial for each in self._kept()), default=0)
        return CallState(call_id=call_id, turn_id=turn_id or self._turn_id, attempt=attempt, serial=serial)

    # -- our own records

    def _take_own(
        self, line: RolloutLine, payload: Mapping[str, Any], offset: int | None
    ) -> CallChange | None:
        call_id, state = text_of(payload.get("call_id")), text_of(payload.get("state"))
        if call_id is None or state is None:
            self.damage.add("unreadable_call", offset, detail="an x_call without call_id or state")
            return None
        turn_id, attempt = text_of(payload.get("turn_id")), count_of(payload.get("attempt")) or 1
        if state == "resolved" and turn_id is None:
            call = self._find_decided(call_id)
        else:
            call = self._find(call_id, turn_id, request=state in ("intended", "started"))
        before = None if call is None else call.rule.verdict
        if call is None:
            if state == "resolved" and self._newest(call_id) is not None:
                return None  # nobody knows which one is meant
            call = self._begin(call_id, turn_id, attempt)
        if not call.advance(state, attempt):
            return None
        call.apply_own(payload, state)
        call.epoch, call.epoch_end = self._epoch, None
        self._note_replaced(call)
        return self._settle(call, before, line, offset)

    def _find_decided(self, call_id: str) -> CallState | None:
        """What a decision without a turn means: of several open calls of that id the one that has no turn,
        else none. A permission to run again must not get to another call."""
        named = [each for each in self._open.values() if each.call_id == call_id]
        if len(named) > 1:
            return self._open.get(("", call_id))
        return named[0] if named else self._find(call_id, None)

    def _note_replaced(self, call: CallState) -> None:
        """Of the attempts of one intent, the latest counts; those before it never run again."""
        others = [each for each in self._kept() if each is not call]
        for each in others:
            if not each.replaced and each.gives_way_to(call):
                each.replaced = True
                self._file(each)
        call.replaced = call.replaced or any(call.gives_way_to(each) for each in others)

    def _take_approval(
        self, line: RolloutLine, payload: Mapping[str, Any], offset: int | None
    ) -> CallChange | None:
        call_id, state = text_of(payload.get("call_id")), text_of(payload.get("state"))
        call = None if call_id is None else self._find(call_id, text_of(payload.get("turn_id")))
        if call is None or state is None:
            return None
        before = call.rule.verdict
        if state not in _UNANSWERED:  # another question may have been declined
            call.approval = state
        call.approval_id = text_of(payload.get("approval_id")) or call.approval_id
        return self._settle(call, before, line, offset)

    # -- keeping

    def _settle(
        self, call: CallState, before: ToolVerdict | None, line: RolloutLine, offset: int | None
    ) -> CallChange:
        call.last_ordinal, call.last_offset = line.ordinal, offset
        self._file(call)
        decided = line.type == "x_call" and call.own == "resolved"
        return CallChange(call, self._registered(call), before=before, is_decided=decided)

    def _file(self, call: CallState) -> None:
        """Put a call where it belongs, and let go of the oldest where there are too many."""
        place = call.place
        if call.is_open:
            self._closed.pop(place, None)
            self._open[place] = call
            if len(self._open) > self._open_max:
                oldest = self._open.pop(next(iter(self._open)))
                self.damage.add("too_many_calls", oldest.request_offset, oldest.last_offset)
            return
        self._open.pop(place, None)
        call.arguments, call.arguments_cut = None, False
        self._closed[place] = call
        if self._closed_max is not None and len(self._closed) > self._closed_max:
            del self._closed[next(iter(self._closed))]

    # -- snapshots

    def to_plain(self) -> dict[str, Any]:
        """The calls as plain values, fit for JSON; the damage is apart."""
        state = _State(list(self._open.values()), list(self._closed.values()), self._turn_id, self._epoch)
        plain: dict[str, Any] = to_builtins(state)
        return plain

    @classmethod
    def from_plain(
        cls, plain: Any, damage: DamageFold, safety: ToolSafety = DEFAULT_TOOL_SAFETY
    ) -> ToolCallFold:
        """From what `to_plain` gave. Raises `msgspec.ValidationError` if it doesn't fit."""
        state = convert_plain(plain, _State)
        fold = cls(safety)
        fold.damage = damage
        fold.damage.listener = fold.note_damage
        fold._open = {each.place: each for each in state.open}
        fold._closed = {each.place: each for each in state.closed}
        fold._turn_id, fold._epoch = state.turn_id, state.epoch
        return fold

    def __iter__(self) -> Iterator[ToolCall]:
        return iter(self.calls())
