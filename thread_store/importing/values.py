"""Values in records of other programs, which may be of any type whatever their names say.

Invariant: these never raise: a reader asks for what it expects, and gets nothing where that isn't there.
"""

from __future__ import annotations

import json
from typing import Any

from protocol.timestamps import milliseconds_of

__all__ = ["as_json", "as_list", "as_mapping", "as_moment", "as_text"]


def as_text(value: Any) -> str | None:
    """A text that says something."""
    return value if isinstance(value, str) and value else None


def as_mapping(value: Any) -> dict[str, Any]:
    """An object, or an empty one."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """A list, or an empty one."""
    return value if isinstance(value, list) else []


def as_moment(value: Any) -> int | None:
    """A time, in milliseconds since the epoch."""
    return milliseconds_of(as_text(value))


def as_json(value: Any) -> str:
    """As JSON text; a text stays what it is."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
