"""A conversation of another program, told in the words of both tracks.

Invariant: the same facts in the same order give the same items, ids and all: nothing here asks for the time
or for chance. A call is answered once, whatever the source says twice; an answer without a call is kept as it
was. A turn begins with what somebody typed, or with the first step behind an ended one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import structs

from protocol import tracks
from protocol.context import TurnContext
from protocol.events import EventMsg, ItemCompleted
from protocol.items import RolloutItem, bind
from protocol.own import SourceItem
from protocol.response_items import ResponseItem
from thread_store.importing.source import SourceThread
from thread_store.importing.threads import derived_uuid, thread_id_of

__all__ = ["Conversation"]


class _Call:
    __slots__ = ("arguments", "name")

    def __init__(self, name: str, arguments: Any) -> None:
        self.name = name
        self.arguments = arguments


class Conversation:
    """Makes the items of one thread. Each method returns what is to be recorded, in order."""

    def __init__(self, thread: SourceThread) -> None:
        self.thread_id = thread_id_of(thread)
        self.turns = 0
        """Begun so far, those that were rolled back not counted."""
        self._format = thread.format
        self._created_ms = thread.created_ms
        self._at_ms = max(0, thread.created_ms)
        self._cwd = thread.cwd
        self._model: str | None = None
        self._turn_id: str | None = None
        self._begun = 0
        self._items = 0
        self._open: dict[str, _Call] = {}
        self._answered: set[str] = set()
        self._without_id: list[str] = []
        self._nameless = 0

    def at(self, at_ms: int | None) -> int:
        """A moment of the source; without one, that of what stands before."""
        self._at_ms = max(self._at_ms, at_ms or 0)
        return self._at_ms

    # Turns

    def _begin(self, at_ms: int) -> list[RolloutItem]:
        self._begun += 1
        self.turns += 1
        self._turn_id = derived_uuid(self._created_ms, self.thread_id, f"turn {self._begun}")
        context = TurnContext(cwd=self._cwd, model=self._model) if self._model else None
        started = EventMsg.task_started(self._turn_id, started_at=at_ms // 1000)
        return [started] if context is None else [started, structs.replace(context, turn_id=self._turn_id)]

    def _in_turn(self, at_ms: int, items: Sequence[RolloutItem]) -> list[RolloutItem]:
        begun = [] if self._turn_id is not None else self._begin(at_ms)
        return [*begun, *(self._settled(each, at_ms) for each in items)]

    def _settled(self, item: RolloutItem, at_ms: int) -> RolloutItem:
        if isinstance(item, ItemCompleted):
            item = structs.replace(item, completed_at_ms=at_ms)
        return bind(item, self.thread_id, self._turn_id)

    def _item_id(self) -> str:
        self._items += 1
        return f"item-{self._items}"

    def use_model(self, name: str | None) -> None:
        """Turns that begin from now on are the work of this model."""
        self._model = name or self._model

    def end_turn(self, at_ms: int, *, last: str | None = None, error: str | None = None) -> list[RolloutItem]:
        """The turn that goes on is over."""
        if self._turn_id is None:
            return []
        turn_id, self._turn_id = self._turn_id, None
        return [
            EventMsg.task_complete(
                turn_id, last_agent_message=last, completed_at=at_ms // 1000, duration_ms=None, error=error
            )
        ]

    def abort_turn(self, at_ms: int) -> list[RolloutItem]:
        """It was interrupted."""
        if self._turn_id is None:
            return []
        turn_id, self._turn_id = self._turn_id, None
        return [EventMsg.turn_aborted(turn_id, completed_at=at_ms // 1000)]

    def roll_back(self, turns: int) -> list[RolloutItem]:
        """The newest turns don't count any more: the conversation goes on from before them."""
        turns = min(turns, self.turns)
        if turns <= 0:
            return []
        self._turn_id = None
        self.turns -= turns
        self._open.clear()
        return [EventMsg.thread_rolled_back(turns)]

    # What was said

    def user(
        self, text: str, at_ms: int, *, images: Sequence[str] = (), sent: str | None = None
    ) -> list[RolloutItem]:
        """Somebody typed it: a turn begins, or what goes on is steered. `sent`: what the model got for it."""
        made = tracks.user_message(text, images=images, item_id=self._item_id())
        if sent is not None and sent != text:
            made[0] = tracks.user_message(sent, images=images, item_id="")[0]
        ended = self.end_turn(at_ms) if not self._open else []
        return [*ended, *self._in_turn(at_ms, made)]

    def context(self, text: str, at_ms: int, *, role: str = "user") -> list[RolloutItem]:
        """What the model was told and nobody typed."""
        return [self._settled(ResponseItem.message(role, text), at_ms)]

    def assistant(self, text: str, at_ms: int) -> list[RolloutItem]:
        """The agent said it."""
        return self._in_turn(at_ms, tracks.agent_message(text, item_id=self._item_id()))

    def thinking(self, text: str, at_ms: int, *, encrypted: str | None = None) -> list[RolloutItem]:
        """The agent thought it."""
        if not text and encrypted is None:
            return []
        made = tracks.agent_reasoning(
            [text] if text else [], encrypted_content=encrypted, item_id=self._item_id()
        )
        return self._in_turn(at_ms, made)

    # Calls

    def call(self, call_id: str | None, name: str, arguments: Any, at_ms: int) -> list[RolloutItem]:
        """The model asks for a tool. The same call again says nothing new; one without an id gets one."""
        if call_id is None:
            self._nameless += 1
            call_id = f"call-{self._nameless}"
            self._without_id.append(call_id)
        if call_id in self._open or call_id in self._answered:
            return []
        given = arguments if isinstance(arguments, str | Mapping) else {"value": arguments}
        self._open[call_id] = _Call(name, given)
        return self._in_turn(at_ms, tracks.tool_call(call_id=call_id, name=name, arguments=given))

    def result(
        self, call_id: str | None, output: Any, at_ms: int, *, failed: bool = False
    ) -> list[RolloutItem] | None:
        """It gave something back; without an id it answers the oldest call that has none. None: nobody asked
        for it, or it was answered before.
        """
        if call_id is None and self._without_id:
            call_id = self._without_id.pop(0)
        if call_id is None:
            return None
        call = self._open.pop(call_id, None)
        if call is None:
            return None
        self._answered.add(call_id)
        made = tracks.tool_result(
            call_id=call_id,
            name=call.name,
            arguments=call.arguments,
            output=output,
            error="the tool failed" if failed else None,
        )
        return self._in_turn(at_ms, made)

    @property
    def open_calls(self) -> list[str]:
        """Those that were not answered so far."""
        return [*self._open]

    # The rest

    def compaction(self, summary: str, kept: Sequence[RolloutItem], at_ms: int) -> list[RolloutItem]:
        """From here on the model sees the summary and what was kept."""
        history = [ResponseItem.message("user", summary), *kept]
        made = tracks.compaction(summary, history, item_id=self._item_id())
        return self._in_turn(at_ms, made)

    def kept(self, record: Any, *, offset: int | None = None) -> list[RolloutItem]:
        """A record without counterpart, as it was."""
        return [SourceItem(format=self._format, offset=offset, record=record)]
