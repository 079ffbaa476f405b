"""The tail of a rollout as a list reads it: when it was written last, how many items it has, how it ends.

Invariant: what stands before the tail is left open, never guessed.
"""

from __future__ import annotations

from typing import Any

from protocol.errors import InvalidLine
from protocol.line import RolloutLine, decode_line
from protocol.timestamps import milliseconds_of
from protocol.validity import is_blank
from thread_store.listing.rollout_facts import RolloutFacts, TurnState

__all__ = ["TailScan"]

_TURNS = {
    "task_started": TurnState.OPEN,
    "turn_started": TurnState.OPEN,
    "task_complete": TurnState.ENDED,
    "turn_complete": TurnState.ENDED,
    "turn_aborted": TurnState.ENDED,
}
_ENDED_CALLS = frozenset({"completed", "failed", "declined", "resolved", "superseded"})
_CALLS = frozenset({"function_call", "custom_tool_call", "local_shell_call", "tool_search_call"})
_OUTPUTS = frozenset({f"{each}_output" for each in _CALLS} | {"tool_search_output"})


class TailScan:
    """Takes the lines of a tail in their order."""

    def __init__(self) -> None:
        self._stamp: str | None = None
        self._ordinal: int | None = None
        self._turn: str = TurnState.UNKNOWN
        self._closed: bool | None = None
        self._open_calls: set[str] = set()
        self._torn = False

    def take(self, data: bytes, *, terminated: bool) -> None:
        """Look at a line."""
        if is_blank(data):
            return
        try:
            line = decode_line(data)
        except (InvalidLine, RecursionError):
            self._torn = self._torn or not terminated
            return
        self.take_line(line)

    def take_line(self, line: RolloutLine) -> None:
        """Look at a line that was decoded."""
        self._stamp = line.timestamp or self._stamp
        if line.ordinal is not None:
            self._ordinal = max(line.ordinal, -1 if self._ordinal is None else self._ordinal)
        if line.type == "x_import":
            self._turn = TurnState.UNKNOWN  # whoever recorded it first may have said no end; nobody died here
        if line.type in ("event_msg", "response_item", "x_writer", "x_call"):
            payload = line.payload_object()
            if isinstance(payload, dict):
                self._take_payload(line.type, payload)

    def _take_payload(self, kind: str, payload: dict[str, Any]) -> None:
        variant, call_id = payload.get("type"), payload.get("call_id")
        if kind == "event_msg":
            if isinstance(variant, str):
                self._turn = _TURNS.get(variant, self._turn)
        elif kind == "x_writer":
            event = payload.get("event")
            if event in ("opened", "closed"):
                self._closed = event == "closed"
        elif not isinstance(call_id, str):
            return
        elif variant in _CALLS or payload.get("state") == "started":
            self._open_calls.add(call_id)
        elif variant in _OUTPUTS or payload.get("state") in _ENDED_CALLS:
            self._open_calls.discard(call_id)

    def fill(self, facts: RolloutFacts) -> None:
        """Write down what was found."""
        facts.updated_ms = milliseconds_of(self._stamp)
        facts.items = None if self._ordinal is None else self._ordinal + 1
        facts.turn, facts.closed, facts.torn = self._turn, self._closed, self._torn
        facts.open_calls = len(self._open_calls)
