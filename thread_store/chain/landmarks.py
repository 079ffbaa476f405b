"""Landmarks: the records that decide where a thread may be cut, and what they mark.

Invariant: `landmark_of` is a pure function of the line and never fails; a record of another kind,
or of a shape it doesn't know, is no landmark. Only what is needed is decoded.

A call is known by its track and its id, because each track pairs its own records: the model's
request with its output, and an `x_call` that is intended or started with its end.
"""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from protocol.line import RolloutLine

__all__ = ["CallKey", "Landmark", "Mark", "landmark_of"]


class Mark(enum.Enum):
    """What a record marks."""

    TURN_START = enum.auto()
    TURN_END = enum.auto()
    USER_EVENT = enum.auto()
    """What the user typed, as a legacy display takes it."""
    USER_ITEM = enum.auto()
    """The same, as a paginated display takes it."""
    USER_RESPONSE = enum.auto()
    """What the model got in the user's name: typed, or put there by a program."""
    ROLLBACK = enum.auto()
    CHECKPOINT = enum.auto()
    REQUEST = enum.auto()
    RESULT = enum.auto()


class CallKey(NamedTuple):
    """A call on one track: `response_item` or `x_call`."""

    track: str
    call_id: str


class Landmark(NamedTuple):
    """`call` belongs to a request or a result, `turns` to a rollback."""

    mark: Mark
    call: CallKey | None = None
    turns: int = 0


class _Item(Struct):
    type: Any = None


class _Payload(Struct):
    type: Any = None
    call_id: Any = None
    role: Any = None
    state: Any = None
    num_turns: Any = None
    item: Any = None


class _FastPayload(_Payload):
    item: _Item | None = None


_decode = msgspec.json.Decoder(_FastPayload).decode

_EVENTS = {
    "task_started": Landmark(Mark.TURN_START),
    "turn_started": Landmark(Mark.TURN_START),
    "task_complete": Landmark(Mark.TURN_END),
    "turn_complete": Landmark(Mark.TURN_END),
    "turn_aborted": Landmark(Mark.TURN_END),
    "user_message": Landmark(Mark.USER_EVENT),
}
_STATES = {
    **dict.fromkeys(("intended", "started"), Mark.REQUEST),
    **dict.fromkeys(("completed", "failed", "declined", "aborted"), Mark.RESULT),
}
_CHECKPOINT = Landmark(Mark.CHECKPOINT)


def landmark_of(line: RolloutLine) -> Landmark | None:
    """What the record marks; None for most."""
    if line.type == "compacted":
        return _CHECKPOINT
    says = _BY_TYPE.get(line.type or "")
    return None if says is None else says(_payload(line))


def _payload(line: RolloutLine) -> _Payload:
    try:
        return _decode(line.payload)
    except (msgspec.DecodeError, RecursionError):
        value = line.payload_object()
    if not isinstance(value, dict):
        return _Payload()
    found = _Payload(**{name: value.get(name) for name in _Payload.__struct_fields__})
    item = found.item
    found.item = _Item(item.get("type")) if isinstance(item, dict) else None
    return found


def _event(payload: _Payload) -> Landmark | None:
    kind = payload.type
    if kind == "item_completed":
        return Landmark(Mark.USER_ITEM) if payload.item and payload.item.type == "UserMessage" else None
    if kind == "thread_rolled_back":
        turns = payload.num_turns
        return Landmark(Mark.ROLLBACK, turns=turns) if isinstance(turns, int) and turns > 0 else None
    return _EVENTS.get(kind) if isinstance(kind, str) else None


def _response(payload: _Payload) -> Landmark | None:
    kind = payload.type
    if kind == "message":
        return Landmark(Mark.USER_RESPONSE) if payload.role == "user" else None
    if not isinstance(kind, str) or not isinstance(payload.call_id, str):
        return None
    key = CallKey("response_item", payload.call_id)
    if kind.endswith("_call"):
        return Landmark(Mark.REQUEST, key)
    return Landmark(Mark.RESULT, key) if kind.endswith("_output") else None


def _own_call(payload: _Payload) -> Landmark | None:
    mark = _STATES.get(payload.state) if isinstance(payload.state, str) else None
    if mark is None or not isinstance(payload.call_id, str):
        return None
    return Landmark(mark, CallKey("x_call", payload.call_id))


_BY_TYPE = {"event_msg": _event, "response_item": _response, "x_call": _own_call}
