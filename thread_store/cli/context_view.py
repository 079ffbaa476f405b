"""A model's context on the command line.

Invariant: into a pipe or a file a payload goes byte for byte; on a terminal the same JSON is printed
with what could mislead written as escapes.
"""

from __future__ import annotations

import sys
from typing import Any

from msgspec import Raw

from thread_store.chain.lineage import Lineage, Place
from thread_store.cli.piped_file import ReadableFile
from thread_store.cli.safe_text import safe_json
from thread_store.cli.terminal import Terminal
from thread_store.context.model_context import ModelContext
from thread_store.context.model_item import ModelItem

__all__ = ["item_object", "print_payload", "summary_object"]


def print_payload(terminal: Terminal, payload: Raw | bytes) -> None:
    """Print one item."""
    data = bytes(payload)
    buffer = getattr(sys.stdout, "buffer", None)
    if terminal.is_tty or buffer is None:
        terminal.print(safe_json(data.decode("utf-8", "replace"), ascii_only=terminal.ascii))
    else:
        buffer.write(data + b"\n")


def item_object(item: ModelItem, lineage: Lineage, file: ReadableFile) -> dict[str, Any]:
    """The members of `{"kind":"context_item"}` beside its payload: where the record stands that it came with
    (several come with a checkpoint)."""
    return {
        "thread": lineage.own.thread_id,
        "type": item.kind,
        "role": item.role,
        "call_id": item.call_id,
        **_place_object(item.place, lineage, file),
    }


def summary_object(found: ModelContext, lineage: Lineage, file: ReadableFile) -> dict[str, Any]:
    """The members of `{"kind":"context"}`: settings, and what is known of how it came about."""
    instructions = found.base_instructions
    return {
        "thread": lineage.own.thread_id,
        "items": len(found.items),
        "bytes": sum(each.size_bytes for each in found.items),
        "checkpoint": None if found.base is None else _place_object(found.base, lineage, file),
        "rolled_back_turns": sum(each.turns for each in found.dropped),
        "base_instructions": getattr(instructions, "text", instructions),
        "dynamic_tools": found.dynamic_tools,
        "turn_context": found.settings,
        "usage": found.token_usage,
        "examined_from": _place_object(found.examined_from, lineage, file),
        "whole": found.whole,
        "problems": found.problem_count,
    }


def _place_object(place: Place | None, lineage: Lineage, file: ReadableFile) -> dict[str, Any]:
    if place is None:
        return {"path": None, "offset": None}
    return {"path": file.named(lineage.segments[place.segment].path), "offset": place.offset}
