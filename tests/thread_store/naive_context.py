"""The obvious way to a model's context: read every line from the start and keep a list; a turn remembers
what the list was before it, a rollback goes back to that (to the first turn, if it asks for more than
there are)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tests.thread_store.histories import dump, history
from thread_store.home import Home

__all__ = ["naive_context"]


def naive_context(path: str | Path, home: Home) -> list[bytes]:
    """The payloads, compact, that the model of a thread sees."""
    items: list[dict[str, Any]] = []
    before_turns: list[list[dict[str, Any]]] = []
    before_all: list[dict[str, Any]] | None = None
    summaries: set[str] = set()
    for line in history(path, home):
        record = json.loads(line)
        kind, payload = record["type"], record["payload"]
        if kind == "response_item" and payload["type"] not in ("ghost_snapshot", "of_the_future"):
            if is_typed(payload):
                before_turns.append(without_injected_end(items))
                before_all = before_turns[0] if before_all is None else before_all
            items = [*items, payload]
        elif kind == "compacted" and payload.get("replacement_history") is not None:
            items = list(payload["replacement_history"])
            summaries = {*summaries, payload["message"]}
        elif kind == "compacted":
            typed = [each for each in items if is_typed(each) and text_of(each) not in summaries]
            items = [*typed, user_message(payload["message"])]
            summaries = {*summaries, payload["message"]}
        elif payload.get("type") == "thread_rolled_back" and before_all is not None:
            count = payload["num_turns"]
            items = before_turns[-count] if count <= len(before_turns) else before_all
            del before_turns[-count:]
    return [dump(each) for each in items]


def is_typed(payload: dict[str, Any]) -> bool:
    return payload["type"] == "message" and payload["role"] == "user" and not is_wrapped(payload)


def is_wrapped(payload: dict[str, Any]) -> bool:
    return payload.get("role") in ("user", "developer") and bool(
        re.fullmatch(r"(?s)<(\w+)>.*</\1>", text_of(payload))
    )


def without_injected_end(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    kept = list(items)
    while any(map(is_typed, kept)) and is_wrapped(kept[-1]):
        kept.pop()
    return kept


def text_of(payload: dict[str, Any]) -> str:
    return "".join(part["text"] for part in payload.get("content", ()))


def user_message(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
