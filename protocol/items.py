"""Items: what an agent records. One class a payload, a `record_type` a class.

Invariant: an item knows its `type` in the envelope and encodes to its payload and nothing
else. Decoding never loses a record: what has no class of its own, or doesn't fit its class,
comes back as `RawItem` with its bytes.

A typed item is a view: keys of the payload that its class has no field for are not in it.
They stay in the line (`RolloutLine.source`, `.payload`), so whoever copies records copies
lines, or records `RolloutItem.raw(line.type, line.payload)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, ClassVar

import msgspec
from msgspec import Raw, Struct, field

from protocol.errors import InvalidLine, ItemNotEncodable

__all__ = [
    "CODEX_TYPES",
    "RawItem",
    "RolloutItem",
    "bind",
    "decode_item",
    "require_text",
    "written",
]

CODEX_TYPES = frozenset(
    {
        "session_meta",
        "dynamic_tools_updated",
        "response_item",
        "inter_agent_communication",
        "inter_agent_communication_metadata",
        "compacted",
        "turn_context",
        "token_usage_record",
        "world_state",
        "retained_context",
        "security_risk_score",
        "event_msg",
        "realtime_item",
    }
)


class RolloutItem(Struct, omit_defaults=True):
    """The base of all items. `RolloutItem.raw(type, payload)` makes one that has no class."""

    record_type: ClassVar[str] = ""
    needs_binding: ClassVar[bool] = False
    """Whether records of this class name their thread and turn (see `bind`)."""
    checks_values: ClassVar[bool] = False
    """Whether making one checks the type of each value, so that none has to be searched for NaN."""

    @staticmethod
    def raw(record_type: str, payload: Mapping[str, Any] | bytes | Any) -> RawItem:
        """An item of any type. `payload`: a dict, or JSON already encoded as bytes (validated and
        compacted when recorded; its numbers keep their text). A `msgspec.Raw` inside a dict is
        written as it is and must be JSON."""
        return RawItem(record_type, payload)

    def bound(self, thread_id: str, turn_id: str | None) -> RolloutItem:
        """This item with its thread and turn filled in where they are unset (see `bind`)."""
        del thread_id, turn_id
        return self


class RawItem(RolloutItem):
    """A record without a class of its own: its type and payload as they are."""

    record_type: str  # type: ignore[misc]  # here a field: each instance has its own
    payload: Any


def bind(item: RolloutItem, thread_id: str, turn_id: str | None) -> RolloutItem:
    """Fill in the thread and the turn of an item that names them and leaves them unset.

    A recorder calls this for classes with `needs_binding`. Without a turn the key stays away, and
    Codex passes over such a record.
    """
    return item.bound(thread_id, turn_id) if item.needs_binding else item


# Where each type is decoded: a module and its table `DECODERS`, loaded with the first record of it.
_HOMES = {
    "session_meta": "protocol.meta",
    "response_item": "protocol.response_variants",
    "event_msg": "protocol.event_variants",
    "compacted": "protocol.context",
    "turn_context": "protocol.context",
    "world_state": "protocol.context",
    "token_usage_record": "protocol.context",
    "inter_agent_communication": "protocol.context",
    "x_approval": "protocol.own",
    "x_call": "protocol.own",
    "x_check": "protocol.own",
    "x_erased": "protocol.own",
    "x_files": "protocol.own",
    "x_gap": "protocol.own",
    "x_memory": "protocol.own",
    "x_source": "protocol.own",
    "x_state": "protocol.own",
    "x_writer": "protocol.own",
}
_decoders: dict[str, Callable[[Raw | bytes], RolloutItem]] = {}


def decode_item(record_type: str, payload: Raw | bytes) -> RolloutItem:
    """The typed item of a payload; a `RawItem` with its bytes if no class takes it.

    Never raises for what a line holds. Keys without a field are left out of a typed item.
    """
    decode = _decoders.get(record_type)
    if decode is None:
        home = _HOMES.get(record_type)
        if home is None:
            return RawItem(record_type, bytes(payload))
        _decoders.update(import_module(home).DECODERS)
        decode = _decoders[record_type]
    try:
        return decode(payload)
    except (msgspec.MsgspecError, InvalidLine):
        return RawItem(record_type, bytes(payload))


def written(value: Any) -> Any:
    """A field's default that is written all the same, though defaults are left out else."""
    # Only a factory that msgspec doesn't know makes it write the default.
    return field(default_factory=lambda: value.copy() if isinstance(value, list) else value)


def require_text(item: RolloutItem, *names: str, optional: bool = False) -> None:
    """Raise `ItemNotEncodable` for the first of these fields of `item` that holds no text."""
    for name in names:
        value = getattr(item, name)
        if not isinstance(value, str) and not (optional and value is None):
            raise ItemNotEncodable(
                f"{name} must be a text, not {type(value).__name__}", item_type=item.record_type
            )
