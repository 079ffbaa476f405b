"""A checkpoint: a `compacted` record, and the history that the model sees from there on.

Invariant: a checkpoint is valid by Codex's measure (FORMAT.md, Resuming): `message` is a text,
`replacement_history` absent or a list of objects that each name their type, its metadata as long as it,
and messages in it hold their content as a list. The payloads keep their bytes.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, Struct

from protocol.line import RolloutLine
from protocol.places import Places

__all__ = ["Checkpoint", "InvalidCheckpoint", "decode_checkpoint"]


class InvalidCheckpoint(ValueError):
    """A `compacted` record can't be taken; its text says why."""


class Checkpoint(Struct, frozen=True, kw_only=True):
    """What a `compacted` record says. `history` is None where only the message was recorded."""

    message: str
    history: list[Raw] | None
    dynamic_tools: list[Any] | None = None
    """The tools at that time, where the record names them."""


class _Payload(Struct):
    message: Any = None
    replacement_history: list[Raw] | None = None
    replacement_history_metadata: list[Raw] | None = None
    resume_metadata: Any = None


_decode = msgspec.json.Decoder(_Payload).decode


def decode_checkpoint(line: RolloutLine) -> Checkpoint:
    """Read a `compacted` record.

    Raises:
        InvalidCheckpoint: Codex would pass over it, and so do we.
    """
    payload = _payload(line.payload)
    history = payload.replacement_history
    if not isinstance(payload.message, str):
        raise InvalidCheckpoint("its message is no text")
    for number, each in enumerate(history or ()):
        _require_item(each, number)
    metadata = payload.replacement_history_metadata
    if metadata is not None and len(metadata) != len(history or ()):
        raise InvalidCheckpoint("its metadata and its replacement_history differ in length")
    known = payload.resume_metadata
    tools = known.get("dynamic_tools") if isinstance(known, dict) else None
    return Checkpoint(
        message=payload.message,
        history=history,
        dynamic_tools=tools if isinstance(tools, list) else None,
    )


def _payload(data: Raw) -> _Payload:
    try:
        return _decode(data)
    except msgspec.ValidationError as error:
        raise InvalidCheckpoint(str(error)) from None
    except (msgspec.DecodeError, RecursionError):
        return _payload_by_places(bytes(data))


def _payload_by_places(data: bytes) -> _Payload:
    """What msgspec can't read and the rule of lines takes (a lone surrogate, say)."""
    value = RolloutLine(payload=Raw(data)).payload_object()
    if not isinstance(value, dict):
        raise InvalidCheckpoint("its payload is no object")
    places = Places(data.decode())
    return _Payload(
        value.get("message"),
        _elements(places, value, "replacement_history"),
        _elements(places, value, "replacement_history_metadata"),
        value.get("resume_metadata"),
    )


def _elements(places: Places, value: dict[str, Any], key: str) -> list[Raw] | None:
    found = value.get(key)
    if found is None:
        return None
    if not isinstance(found, list):
        raise InvalidCheckpoint(f"its {key} is no list")
    begin, _ = places.member(key)
    return [Raw(places.text[start:end].encode()) for start, end in places.elements(begin)]


def _require_item(payload: Raw, number: int) -> None:
    value = RolloutLine(payload=payload).payload_object()
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        raise InvalidCheckpoint(f"item {number} of its replacement_history names no type")
    if value["type"] == "message" and not (
        isinstance(value.get("role"), str) and isinstance(value.get("content"), list)
    ):
        raise InvalidCheckpoint(f"item {number} of its replacement_history is no message")
