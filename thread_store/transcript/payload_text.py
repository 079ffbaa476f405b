"""Values of any shape as text: payloads come from many programs and versions.

Invariant: nothing here raises, whatever JSON value is given.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

__all__ = ["as_integer", "as_text", "command_text", "content_text", "first_text", "milliseconds_of"]


def as_text(value: Any) -> str:
    """A string as it is, nothing as an empty text, anything else as JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def first_text(payload: Mapping[str, Any], *names: str) -> str | None:
    """The first of these members that holds something."""
    return next((as_text(payload[name]) for name in names if payload.get(name)), None)


def command_text(command: Any) -> str:
    """A command line; `sh -c` around it is left out."""
    if not isinstance(command, list):
        return as_text(command)
    words = [as_text(word) for word in command]
    if len(words) == 3 and words[1] in ("-c", "-lc") and words[0].endswith("sh"):
        return words[2]  # the shell's own wrapping says nothing
    return shlex.join(words)


def content_text(content: Any) -> str:
    """The text of a list of content parts; what is no text is named in brackets."""
    if not isinstance(content, list):
        return as_text(content)
    texts = []
    for part in content:
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            texts.append(part["text"])
        else:
            kind = as_text(part.get("type")) if isinstance(part, dict) else ""
            texts.append(f"[{kind.removeprefix('input_') or 'content'}]")
    return "\n".join(texts)


def as_integer(value: Any) -> int | None:
    """An integer, else None (True is none)."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def milliseconds_of(duration: Any) -> int | None:
    """A `{secs, nanos}` duration, or a number of seconds, in milliseconds."""
    if isinstance(duration, dict):
        seconds = _seconds(duration.get("secs", 0))
        nanos = _seconds(duration.get("nanos", 0))
        return None if seconds is None or nanos is None else int(seconds * 1000 + nanos / 1e6)
    seconds = _seconds(duration)
    return None if seconds is None else int(seconds * 1000)


def _seconds(value: Any) -> int | float | None:
    known = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e10
    return value if known else None
