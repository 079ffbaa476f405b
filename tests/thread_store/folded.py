"""What a reader makes of a rollout that is being written: its fold, the verdicts on its calls, its lines."""

from __future__ import annotations

import os
from typing import Any

from protocol import ThreadFold, ToolCall, ToolCallFold
from rollout import read_rollout

__all__ = ["calls_in", "fold_of", "lines_in", "own_in", "shown_in"]


def lines_in(path: str | os.PathLike[str]) -> list[tuple[str, dict[str, Any]]]:
    """Type and payload of each line."""
    found = []
    for record in read_rollout(path):
        assert record.line is not None
        found.append((record.line.type or "", record.line.payload_object()))
    return found


def own_in(path: str | os.PathLike[str], kind: str) -> list[dict[str, Any]]:
    """The payloads of one own type."""
    return [payload for record_type, payload in lines_in(path) if record_type == kind]


def shown_in(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The items that a person is shown."""
    return [
        payload["item"]
        for record_type, payload in lines_in(path)
        if record_type == "event_msg" and payload["type"] == "item_completed"
    ]


def fold_of(path: str | os.PathLike[str]) -> ThreadFold:
    """The fold of all lines."""
    fold = ThreadFold()
    for record in read_rollout(path):
        assert record.line is not None
        fold.add(record.line, record.offset)
    return fold


def calls_in(path: str | os.PathLike[str]) -> dict[str, ToolCall]:
    """All calls by their id; nothing is let go."""
    fold = ToolCallFold(closed_max=None)
    for record in read_rollout(path):
        assert record.line is not None
        fold.add(record.line, record.offset)
    return {call.call_id: call for call in fold.calls()}
