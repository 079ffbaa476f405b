"""A fact: what one record says to a reader, as data."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Fact", "FactKind", "Form", "ToolResult"]


class FactKind(enum.StrEnum):
    """What a fact is to a reader."""

    USER = "user"
    ASSISTANT = "assistant"
    CONTEXT = "context"
    """What a program put before the model: instructions, the environment."""
    THINKING = "thinking"
    TOOL = "tool"
    MARKER = "marker"
    """Something a reader must see that nobody said: an abort, a compaction, a repair."""
    EVENT = "event"


class Form(enum.IntEnum):
    """Which record of a fact; the least one gives the fact its address."""

    RESPONSE = 0
    """What the model saw."""
    ITEM = 1
    EVENT = 2
    OWN = 3


@dataclass(slots=True)
class ToolResult:
    """How a call ended, as far as one record tells: each field None where it doesn't."""

    output: str | None = None
    status: str | None = None
    """`completed`, `failed`, `declined` or what else the record says."""
    exit_code: int | None = None
    milliseconds: int | None = None


@dataclass(slots=True)
class Fact:
    """One record's share of a fact."""

    kind: FactKind
    form: Form
    keys: tuple[str, ...] = ()
    name: str = ""
    """The tool, the role, or the type of the event."""
    text: str = ""
    """What was said; a call's arguments."""
    is_call: bool = False
    result: ToolResult | None = None
    repeats: bool = False
    """Several records of this form may belong to one fact: thinking told in parts, states of a call."""
    payload: Any = field(default=None, repr=False)
