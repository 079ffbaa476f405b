"""The fold's filter: which lines say something to it, told without decoding them.

Invariant: it errs on one side only. A line that the fold would learn from is never passed over,
whatever order its keys have (if it repeats none); a line that matters by this test may say nothing
all the same. Most lines of a rollout (messages, what the model thought) are passed over by their
first bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

from protocol.approvals import APPROVAL_EVENTS
from protocol.call_facts import EVENT_READERS, ITEM_READERS, RESPONSE_READERS
from protocol.items import RawItem, RolloutItem
from protocol.line import RolloutLine

__all__ = ["EVENTS", "ITEMS", "RESPONSES", "TYPES", "item_matters", "matters", "payload_matters"]

TYPES = frozenset(
    {"turn_context", "token_usage_record", "compacted", "x_approval", "x_call", "x_check"}
    | {"x_erased", "x_files", "x_gap", "x_state", "x_writer"}
)
"""Types that matter whatever their payload says."""

RESPONSES = frozenset({*RESPONSE_READERS})
"""Variants of `response_item` that matter, beside messages of the user."""

EVENTS = frozenset(
    {*EVENT_READERS, *APPROVAL_EVENTS}
    | {"error", "plan_update", "sub_agent_activity", "task_complete", "task_started", "thread_rolled_back"}
    | {"thread_settings_applied", "token_count", "turn_aborted", "turn_complete", "turn_started"}
    | {"user_message", "warning"}
)
"""Variants of `event_msg` that matter; `item_completed` only with one of `ITEMS`."""

ITEMS = frozenset({*ITEM_READERS, "SubAgentActivity", "UserMessage"})

_TAGGED = ("response_item", "event_msg")

# A tag that stands first, as all writers known put it, is all that is looked at.
_TAG = re.compile(rb'\{"type":"(\w+)"[,}]')
_ROLE = re.compile(rb'"role":"(\w+)"')
_ITEM = re.compile(rb'(?:"(?:thread_id|turn_id)":(?:"[^"\\]*"|null),)*"item":\{"type":"(\w+)"')


class _Tag(Struct):
    type: str = ""
    role: str = ""


_decode_tag = msgspec.json.Decoder(_Tag).decode


def matters(line: RolloutLine) -> bool:
    """Whether the fold would learn something from this line, its ordinal aside."""
    return payload_matters(line.type, line.payload)


def payload_matters(record_type: str | None, payload: Raw | bytes) -> bool:
    """The same for a payload and its type."""
    if record_type in TYPES:
        return True
    if record_type not in _TAGGED:
        return False
    data = bytes(payload)
    found = _TAG.match(data)
    if found is None:
        return _matters_by_decoding(record_type, data)
    variant = found[1].decode()
    if record_type == "event_msg":
        return variant in EVENTS and (variant not in _WITH_ITEM or _item_matters(data, found.end()))
    return variant in RESPONSES or (variant == "message" and _message_matters(data, found.end()))


_WITH_ITEM = ("item_completed", "item_started")


def _item_matters(data: bytes, start: int) -> bool:
    found = _ITEM.match(data, start)
    return found is None or found[1].decode() in ITEMS


def _message_matters(data: bytes, start: int) -> bool:
    found = _ROLE.match(data, start)
    return found is None or found[1] == b"user"


def _matters_by_decoding(record_type: str, data: bytes) -> bool:
    """Keys in another order, or spaced: the tag is read. What can't be read so is left to the fold."""
    try:
        tag = _decode_tag(data)
    except (msgspec.MsgspecError, RecursionError):
        return True
    if record_type == "event_msg":
        return tag.type in EVENTS
    return tag.type in RESPONSES or (tag.type == "message" and tag.role in ("user", ""))


def item_matters(item: RolloutItem) -> bool:
    """The same for an item before it is written: a look at its class, for most."""
    cls = item.__class__
    known = _classes.get(cls)
    if known is None:
        known = _classes[cls] = _judge_class(cls)
    return known if isinstance(known, bool) else known(item)


_classes: dict[type[RolloutItem], bool | Callable[[Any], bool]] = {}


def _judge_class(cls: type[RolloutItem]) -> bool | Callable[[Any], bool]:
    if cls is RawItem:
        return _raw_matters
    if cls.record_type not in _TAGGED:
        return cls.record_type in TYPES
    tag = cls.__struct_config__.tag
    if tag == "message":
        return lambda item: item.role == "user"
    if tag in _WITH_ITEM:
        return lambda item: item.item.__struct_config__.tag in ITEMS
    return tag in (RESPONSES if cls.record_type == "response_item" else EVENTS)


def _raw_matters(item: RawItem) -> bool:
    """Encoded payloads may be spaced, so their tag is read; values of any other kind say it themselves."""
    payload = item.payload
    if item.record_type not in _TAGGED or not isinstance(payload, Mapping):
        encoded = isinstance(payload, bytes | bytearray | Raw)
        return payload_matters(item.record_type, bytes(payload) if encoded else b"")
    tag = payload.get("type")
    if tag == "message":
        return payload.get("role") == "user"
    known = RESPONSES if item.record_type == "response_item" else EVENTS
    return not isinstance(tag, str) or tag in known
