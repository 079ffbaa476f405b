"""Transcript entries as the JSON objects of `--json`: `{"v":1,"kind":"item",…}`."""

from __future__ import annotations

import hashlib
from typing import Any

from rollout.record import LineWarning
from thread_store.transcript import FactKind, TranscriptEntry

__all__ = ["damage_object", "item_object"]


def item_object(entry: TranscriptEntry, thread: str | None) -> dict[str, Any]:
    """The members of one item; nothing is folded. Readers must ignore members they don't know."""
    line = entry.record.line
    ordinal = None if line is None else line.number
    address = f"@{entry.record.offset}" if ordinal is None else f"#{ordinal}"
    result = entry.result
    item: dict[str, Any] = {
        "thread": thread,
        "ordinal": ordinal,
        "offset": entry.record.offset,
        "ts": None if line is None else line.timestamp,
        "type": _type_of(entry),
        "role": entry.name if entry.kind in _SPOKEN else None,
        "text": entry.text if entry.kind in (*_SPOKEN, FactKind.THINKING, FactKind.MARKER) else None,
        "record_type": None if line is None else line.type,
        "link": f"{thread or ''}{address}",
        "sha256": None if line is None or line.source is None else hashlib.sha256(line.source).hexdigest(),
    }
    if entry.kind is FactKind.TOOL:
        item["tool"] = {"name": entry.name, "call_id": entry.call_id, "args": entry.text}
        item["result"] = None if result is None else _result_object(entry)
    if entry.kind is FactKind.EVENT:
        item["payload"] = entry.facts[0].payload
    return item


_SPOKEN = (FactKind.USER, FactKind.ASSISTANT, FactKind.CONTEXT)


def _type_of(entry: TranscriptEntry) -> str:
    if entry.kind is FactKind.TOOL:
        return "tool_call" if entry.has_call else "tool_result"
    return str(entry.kind)


def _result_object(entry: TranscriptEntry) -> dict[str, Any]:
    result = entry.result
    assert result is not None
    output = result.output
    return {
        "status": result.status,
        "exit_code": result.exit_code,
        "ms": result.milliseconds,
        "output": output,
        "bytes": None if output is None else len(output.encode("utf-8", "surrogatepass")),
        "truncated": False,
    }


def damage_object(warning: LineWarning, thread: str | None, writer: str | None) -> dict[str, Any]:
    """The members of a damaged place. With a live `writer` a torn tail is only a line that isn't finished."""
    return {
        "thread": thread,
        "reason": warning.reason,
        "message": warning.message,
        "line": warning.line_no,
        "offset": warning.offset_bytes,
        "bytes": warning.size_bytes,
        "writer": writer,
    }
