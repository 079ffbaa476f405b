"""Items: what an agent records. One class a payload, a `record_type` a class.

Invariant: an item knows its `type` in the envelope and encodes to its payload and nothing
else. Decoding never loses a record: what has no class of its own, or doesn't fit its class,
comes back as `RawItem` with its bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import msgspec
from msgspec import Raw, Struct

__all__ = ["CODEX_TYPES", "RawItem", "RolloutItem", "decode_item"]

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

    @staticmethod
    def raw(record_type: str, payload: Mapping[str, Any] | bytes | Any) -> RawItem:
        """An item of any type. `payload`: a dict, or JSON already encoded as bytes (validated and
        compacted when recorded; its numbers keep their text)."""
        return RawItem(record_type, payload)


class RawItem(RolloutItem):
    """A record without a class of its own: its type and payload as they are."""

    record_type: str  # type: ignore[misc]  # here a field: each instance has its own
    payload: Any


def decode_item(record_type: str, payload: Raw | bytes) -> RolloutItem:
    return RawItem(record_type, bytes(payload))
