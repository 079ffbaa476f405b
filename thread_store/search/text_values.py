"""Strings in JSON values of any shape: which of them are text that somebody reads.

Invariant: nothing here raises, whatever value is given.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

__all__ = ["NO_TEXT", "SIGNED", "all_strings", "read_strings", "unpacked"]

_DEPTH_MAX = 128

_READ = frozenset(
    {"answer", "answers", "body", "cause", "content", "delta", "description", "details", "error", "evidence"}
    | {"explanation", "findings", "goal", "header", "info", "item", "items", "label", "message", "messages"}
    | {"note", "objective", "options", "output", "overall_explanation", "plan", "prompt", "queries", "query"}
    | {"question", "questions", "reason", "record", "review_output", "step", "summary", "text", "thread_name"}
    | {"title", "transcript", "user_facing_hint", "what"}
)
"""Members of events and own records whose strings somebody reads."""

NO_TEXT = frozenset(
    {"at", "at_ms", "audio", "blob", "call_id", "data", "encrypted_content", "file_data", "id", "image_url"}
    | {"item_id", "mimeType", "mime_type", "phase", "process_id", "role", "sha256", "signature", "status"}
    | {"thought_signature", "thread_id", "timestamp", "turn_id", "type", "url_signature"}
)
"""Members whose strings are no text, wherever they stand."""

SIGNED = frozenset({"encrypted_content", "signature", "thought_signature"})
"""What is passed over where the names of members are a model's own."""

_NO_TEXT_TYPES = ("image", "input_image", "audio", "input_audio", "encrypted_content")


def read_strings(value: Any, field: str, depth: int = 0) -> Iterator[tuple[str, str]]:
    """The strings under members that somebody reads."""
    if depth > _DEPTH_MAX:
        return
    if isinstance(value, str):
        if field:
            yield field, value
    elif isinstance(value, list):
        for each in value:
            yield from read_strings(each, field, depth + 1)
    elif isinstance(value, dict):
        for name, each in value.items():
            if name in _READ:
                yield from read_strings(each, f"{field}.{name}" if field else name, depth + 1)


def unpacked(value: Any) -> Any:
    """Arguments are JSON in a string, mostly; else they are the text that they are."""
    if not isinstance(value, str) or not value.lstrip().startswith(("{", "[")):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def all_strings(
    value: Any, field: str, *, passed_over: frozenset[str] = NO_TEXT, depth: int = 0
) -> Iterator[tuple[str, str]]:
    """All strings below a value but those of members that are passed over."""
    if isinstance(value, str):
        yield field, value
    elif depth > _DEPTH_MAX:
        return
    elif isinstance(value, list):
        for each in value:
            yield from all_strings(each, field, passed_over=passed_over, depth=depth + 1)
    elif isinstance(value, dict):
        plain = value.get("type") not in _NO_TEXT_TYPES
        for name, each in value.items() if plain else ():
            if name not in passed_over:
                simple = name in ("text", "content") and field in ("output", "content")
                below = field if simple else f"{field}.{name}"
                yield from all_strings(each, below, passed_over=passed_over, depth=depth + 1)
