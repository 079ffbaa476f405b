"""User texts: what a person typed, told from what programs put into the user's mouth.

Invariant: one message gives one text a track; a text that a program injected gives none, wherever
in the rollout it stands.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from protocol.call_facts import text_of

__all__ = ["INJECTED_PREFIXES", "Track", "typed_text"]

INJECTED_PREFIXES = (
    "<environment_context>",
    "<user_instructions>",
    "<user_shell_command>",
    "<turn_aborted>",
    "<turn_context>",
    "<skill>",
    "<subagent_notification>",
    "<system-reminder>",
    "# AGENTS.md instructions",
    "<INSTRUCTIONS>",
)
"""How texts begin that agents add in the role of the user."""

_INJECTED_KINDS = frozenset({"environment_context", "user_instructions"})


class Track(StrEnum):
    """Where a message of the user is recorded; one message may stand on each of them."""

    MODEL = "model"
    EVENT = "event"
    ITEM = "item"


def typed_text(record_type: str | None, payload: Mapping[str, Any]) -> tuple[Track, str] | None:
    """The text that a person typed, if this record holds one, and its track."""
    found = _text(record_type, payload)
    if found is None or not found[1].strip() or found[1].lstrip().startswith(INJECTED_PREFIXES):
        return None
    return found


def _text(record_type: str | None, payload: Mapping[str, Any]) -> tuple[Track, str] | None:
    variant = text_of(payload.get("type"))
    if record_type == "response_item":
        if variant == "message" and payload.get("role") == "user":
            return Track.MODEL, _joined(payload.get("content"))
    elif record_type == "event_msg":
        if variant == "user_message":
            injected = text_of(payload.get("kind")) in _INJECTED_KINDS
            return None if injected else (Track.EVENT, text_of(payload.get("message")) or "")
        item = payload.get("item")
        if variant == "item_completed" and isinstance(item, Mapping) and item.get("type") == "UserMessage":
            return Track.ITEM, _joined(item.get("content"))
    return None


def _joined(content: Any) -> str:
    """The texts of a message's parts, joined by newlines."""
    if not isinstance(content, list):
        return text_of(content) or ""
    parts = [each.get("text") for each in content if isinstance(each, Mapping)]
    return "\n".join(each for each in parts if isinstance(each, str))
