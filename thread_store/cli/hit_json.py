"""Hits as the JSON objects of `--json`: `{"v":1,"kind":"hit",…}`."""

from __future__ import annotations

from typing import Any

from thread_store.search.search_hit import SearchHit, SkippedPlace

__all__ = ["hit_object", "skipped_object"]


def hit_object(hit: SearchHit) -> dict[str, Any]:
    """The members of a hit with `--json`. Spans are places in `text`."""
    passage = hit.passage
    return {
        "thread": hit.thread_id,
        "ordinal": hit.ordinal,
        "offset": hit.offset,
        "ts": hit.timestamp,
        "role": hit.role,
        "tool": hit.tool,
        "field": hit.field,
        "line": passage.line,
        "spans": [list(span) for span in passage.spans],
        "text": passage.text,
        "before": list(passage.before),
        "after": list(passage.after),
        "cut_before": passage.cut_before,
        "cut_after": passage.cut_after,
        "archived": hit.archived,
        "path": hit.path,
    }


def skipped_object(place: SkippedPlace) -> dict[str, Any]:
    """The members of a place that could not be searched, within a summary."""
    return {
        "id": place.thread_id,
        "path": place.path,
        "offset": place.offset,
        "reason": place.reason,
        "message": place.message,
    }
