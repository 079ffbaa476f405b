"""Histories to fork, written by hand: homes, threads of some turns, and what is left of them in a child."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rollout.paths import RolloutName
from thread_store.chain.lineage import read_lineage
from thread_store.home import Home

STAMP = "2026-03-04T05:06:07.000Z"
NAME_STAMP = "2026-03-04T05-06-07"


def uuid(number: int) -> str:
    """A thread or rollout id; greater numbers sort behind."""
    return f"01960000-0000-7000-8000-{number:012x}"


def dump(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def line(record_type: str, payload: object, ordinal: int | None = None, *, stamp: str = STAMP) -> bytes:
    """One line with its newline."""
    number = {} if ordinal is None else {"ordinal": ordinal}
    return dump({"timestamp": stamp, **number, "type": record_type, "payload": payload}) + b"\n"


def meta(thread_id: str, ordinal: int | None = 0, **changes: Any) -> bytes:
    payload = {
        "id": thread_id,
        "timestamp": STAMP,
        "cwd": "/srv/demo",
        "originator": "hand",
        "cli_version": "0.0.1",
        "source": "cli",
        "model_provider": "mock",
        "history_mode": "paginated" if ordinal is not None else "legacy",
        **changes,
    }
    return line("session_meta", payload, ordinal)


class Script:
    """Writes the lines of a thread one after the other and numbers them; own types get no number."""

    def __init__(self, ordinal: int | None = 1) -> None:
        self.next_ordinal = ordinal
        self.lines: list[bytes] = []

    def add(self, record_type: str, payload: object, *, stamp: str = STAMP) -> bytes:
        number = None if record_type.startswith("x_") else self.next_ordinal
        if number is not None:
            self.next_ordinal = number + 1
        self.lines.append(line(record_type, payload, number, stamp=stamp))
        return self.lines[-1]

    def event(self, kind: str, **keys: Any) -> bytes:
        return self.add("event_msg", {"type": kind, **keys})

    def start(self, turn_id: str = "t", kind: str = "task_started") -> bytes:
        return self.event(kind, turn_id=turn_id)

    def complete(self, turn_id: str = "t") -> bytes:
        return self.event("task_complete", turn_id=turn_id, last_agent_message=None)

    def user(self, text: str) -> bytes:
        """What the user typed, as all tracks have it."""
        first = self.response("user", text)
        self.event("user_message", message=text)
        item = {"type": "UserMessage", "id": text, "content": [{"type": "text", "text": text}]}
        self.event("item_completed", thread_id="T", turn_id="t", item=item)
        return first

    def response(self, role: str, text: str) -> bytes:
        kind = "output_text" if role == "assistant" else "input_text"
        return self.add(
            "response_item", {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}
        )

    def call(self, call_id: str) -> bytes:
        payload = {"type": "function_call", "name": "shell", "arguments": "{}", "call_id": call_id}
        return self.add("response_item", payload)

    def output(self, call_id: str) -> bytes:
        return self.add("response_item", {"type": "function_call_output", "call_id": call_id, "output": "ok"})

    def compacted(self, message: str) -> bytes:
        return self.add("compacted", {"message": message, "replacement_history": []})

    def turn(self, number: int, *, calls: Iterable[str] = ()) -> bytes:
        """A whole turn; returns its first line."""
        first = self.start(f"t{number}")
        self.user(f"question {number}")
        for call_id in calls:
            self.call(call_id)
            self.add("x_call", {"call_id": call_id, "state": "started", "kind": "shell"})
            self.add("x_call", {"call_id": call_id, "state": "completed", "kind": "shell"})
            self.output(call_id)
        self.response("assistant", f"answer {number}")
        self.complete(f"t{number}")
        return first

    @property
    def bytes(self) -> bytes:
        return b"".join(self.lines)


def turns(count: int, *, first: int = 1, ordinal: int | None = 1) -> bytes:
    """The lines of some turns, each with a call."""
    script = Script(ordinal)
    for number in range(first, first + count):
        script.turn(number, calls=[f"c{number}"])
    return script.bytes


def place_of(home: Home, thread_id: str, *, rollout_id: str | None = None, archived: bool = False) -> Path:
    """Where the rollout of an id belongs; its folder is there."""
    name = RolloutName(NAME_STAMP, RolloutName.parse(f"rollout-x-{thread_id}.jsonl").thread_id)
    if rollout_id is not None:
        name = name._replace(rollout_id=RolloutName.parse(f"rollout-x-{rollout_id}.jsonl").thread_id)
    path = home.path / ("archived_sessions" if archived else name.folder) / name.text
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def write_thread(
    home: Home, thread_id: str, body: bytes, *, rollout_id: str | None = None, **keys: Any
) -> Path:
    """A rollout with a meta line and this body. `ordinal=None` makes a legacy one."""
    path = place_of(home, thread_id, rollout_id=rollout_id)
    path.write_bytes(meta(thread_id, **keys) + body)
    return path


def base_of(
    path: Path, rollout_id: str, offset: int, end_ordinal: int, *, hashed: bool = True
) -> dict[str, Any]:
    """The `history_base` of a child that goes on from a byte of this file."""
    base: dict[str, Any] = {
        "thread_id": rollout_id,
        "end_ordinal_exclusive": end_ordinal,
        "end_byte_offset": offset,
    }
    if hashed:
        last = path.read_bytes()[:offset].splitlines()[-1]
        base["x_base_sha256"] = hashlib.sha256(last).hexdigest()
    return base


def history(path: str | Path, home: Home) -> list[bytes]:
    """The lines of a thread as one history, without any meta, or what stands in a copy for one."""
    records = [each.record for each in read_lineage(path, home)]
    lines = [record.line for record in records if record.line is not None]
    return [each.source or b"" for each in lines if each.type not in ("session_meta", "x_erased")]


def body_lines(data: bytes) -> list[bytes]:
    """The lines of a file (or of a part of one) without its metas."""
    return [each for each in data.split(b"\n") if each and b'"type":"session_meta"' not in each]


def metas(path: str | Path) -> list[dict[str, Any]]:
    """The payloads of all the metas in a file."""
    lines = [json.loads(each) for each in Path(path).read_bytes().splitlines()]
    return [each["payload"] for each in lines if each["type"] == "session_meta"]
