"""Rollouts as bytes, for the tests: written by hand here, so that no code under test makes its own proof."""

from __future__ import annotations

import json
from typing import Any

from msgspec.structs import replace

from rollout.record import RolloutRecord

THREAD_ID = "01960000-0000-7000-8000-000000000100"
STAMP = "2026-11-29T10:11:12.345Z"

META_PAYLOAD: dict[str, Any] = {
    "id": THREAD_ID,
    "timestamp": STAMP,
    "cwd": "/srv/demo",
    "originator": "tests",
    "cli_version": "0.0.1",
    "source": "cli",
    "history_mode": "paginated",
}


def dump(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def line(record_type: str, payload: object, ordinal: int | None = None, stamp: str | None = STAMP) -> bytes:
    """One line with its newline."""
    envelope: dict[str, object] = {} if stamp is None else {"timestamp": stamp}
    if ordinal is not None:
        envelope["ordinal"] = ordinal
    return dump({**envelope, "type": record_type, "payload": payload}) + b"\n"


def meta(ordinal: int | None = 0, **changes: object) -> bytes:
    return line("session_meta", {**META_PAYLOAD, **changes}, ordinal)


def message(text: str, ordinal: int | None = None) -> bytes:
    content = [{"type": "output_text", "text": text}]
    return line("response_item", {"type": "message", "role": "assistant", "content": content}, ordinal)


def rollout(*texts: str) -> bytes:
    """A whole one: a meta line, and a message for each text, numbered."""
    return meta() + b"".join(message(text, number) for number, text in enumerate(texts, 1))


def texts(records: list[RolloutRecord]) -> list[str]:
    """The texts of the messages among the valid records."""
    found = []
    for record in records:
        payload = record.line.payload_object() if record.line is not None else None
        if isinstance(payload, dict) and payload.get("type") == "message":
            found.append(payload["content"][0]["text"])
    return found


def reasons(records: list[RolloutRecord]) -> list[str]:
    return [record.warning.reason for record in records if record.warning is not None]


def unnumbered(records: list[RolloutRecord]) -> list[RolloutRecord]:
    """The records as a reverse scan gives them: newest first, without line numbers."""
    return [
        replace(record, line_no=None, warning=record.warning and replace(record.warning, line_no=None))
        for record in reversed(records)
    ]
