"""What a reader makes of a rollout that is being written: its fold, the verdicts on its calls, its lines."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from protocol import ThreadFold, ToolCall, ToolCallFold
from protocol.line import RolloutLine
from rollout import read_rollout

__all__ = ["calls_in", "fold_of", "lines_in", "own_in", "shown_in"]


def lines_in(path: str | os.PathLike[str]) -> list[tuple[str, dict[str, Any]]]:
    """Type and payload of each line."""
    found = []
    for line, _ in _lines(path):
        found.append((line.type or "", line.payload_object()))
    return found


def _lines(path: str | os.PathLike[str]) -> Iterator[tuple[RolloutLine, int]]:
    """Whole lines and their offsets. The last one may be in flight; all others are to be whole."""
    for record in read_rollout(path):
        if record.line is not None:
            yield record.line, record.offset
        else:
            assert record.warning is not None
            assert record.warning.reason == "torn_tail"


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
    for line, offset in _lines(path):
        fold.add(line, offset)
    return fold


def calls_in(path: str | os.PathLike[str]) -> dict[str, ToolCall]:
    """All calls by their id; nothing is let go."""
    fold = ToolCallFold(closed_max=None)
    for line, offset in _lines(path):
        fold.add(line, offset)
    return {call.call_id: call for call in fold.calls()}
