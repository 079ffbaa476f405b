"""Rollouts as other programs may write them: lines by hand, escaped in every way that JSON allows."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rollout.paths import RolloutName

THREAD = "01960000-0000-7000-8000-00000000f00d"
STAMP = "2026-03-04T05:06:07.000Z"

Line = dict[str, Any] | bytes


def thread_id(number: int) -> str:
    return f"01960000-0000-7000-8000-{number:012d}"


def meta(thread: str = THREAD, **changes: Any) -> dict[str, Any]:
    known = {"id": thread, "timestamp": STAMP, "cwd": "/srv/demo", "originator": "test", "cli_version": "1"}
    return line("session_meta", {**known, "history_mode": "paginated", **changes}, ordinal=0)


def line(
    record_type: str, payload: dict[str, Any], *, ordinal: int | None = None, stamp: str = STAMP
) -> dict[str, Any]:
    made: dict[str, Any] = {"timestamp": stamp}
    if ordinal is not None:
        made["ordinal"] = ordinal
    return {**made, "type": record_type, "payload": payload}


def message(text: str, *, role: str = "assistant", ordinal: int | None = None, stamp: str = STAMP) -> Line:
    kind = "input_text" if role == "user" else "output_text"
    payload = {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}
    return line("response_item", payload, ordinal=ordinal, stamp=stamp)


def event(text: str, *, role: str = "assistant", ordinal: int | None = None) -> Line:
    kind = "user_message" if role == "user" else "agent_message"
    return line("event_msg", {"type": kind, "message": text}, ordinal=ordinal)


def call(arguments: str, *, call_id: str = "call_1", name: str = "shell", ordinal: int | None = None) -> Line:
    payload = {"type": "function_call", "name": name, "arguments": arguments, "call_id": call_id}
    return line("response_item", payload, ordinal=ordinal)


def output(text: Any, *, call_id: str = "call_1", ordinal: int | None = None, stamp: str = STAMP) -> Line:
    payload = {"type": "function_call_output", "call_id": call_id, "output": text}
    return line("response_item", payload, ordinal=ordinal, stamp=stamp)


def encoded(lines: Iterable[Line]) -> bytes:
    parts = (each if isinstance(each, bytes) else plain_json(each) for each in lines)
    return b"".join(part + b"\n" for part in parts)


def plain_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def write_thread(
    home: Path,
    lines: Iterable[Line],
    *,
    thread: str = THREAD,
    stamp: str = "2026-03-04T05-06-07",
    folder: str | None = None,
) -> Path:
    name = RolloutName(stamp, RolloutName.match(f"rollout-{stamp}-{thread}.jsonl").thread_id)
    path = home / (folder or name.folder) / name.text
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encoded(lines))
    return path


def escaped(text: str, chance: random.Random, share: float) -> str:
    """A JSON string of the text in which each character may be written in any way that is allowed."""
    parts = ['"']
    for character in text:
        plain = json.dumps(character, ensure_ascii=False)[1:-1]
        lone = "\ud800" <= character <= "\udfff"
        if lone or chance.random() < share:
            ways = [_units(character, chance)]
            if character == "/":
                ways.append("\\/")
            parts.append(chance.choice(ways))
        else:
            parts.append(plain)
    return "".join([*parts, '"'])


def _units(character: str, chance: random.Random) -> str:
    data = character.encode("utf-16-be", "surrogatepass")
    units = [int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2)]
    digits = (f"{unit:04x}" for unit in units)
    return "".join("\\u" + "".join(chance.choice((each, each.upper())) for each in four) for four in digits)
