"""What is recorded: messages whose lines have about 550 bytes, as agents write them.

The same texts for us, for the limits and for the peers.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from protocol import ResponseItem, RolloutItem, SessionMeta

__all__ = [
    "SAMPLE_LINES",
    "STAMP",
    "TEXTS",
    "TEXT_BYTES",
    "Line",
    "build_item",
    "build_meta",
    "build_text",
    "encode",
    "fresh_path",
    "make_line",
]

STAMP = "2026-11-29T10:11:12.345Z"
TEXT_BYTES = 420


class Line(msgspec.Struct):
    """The whole line as msgspec alone would write it: the limit for our encoder."""

    timestamp: str
    ordinal: int
    type: str
    payload: RolloutItem


encode = msgspec.json.Encoder().encode


def build_text(number: int, size_bytes: int) -> str:
    """Text such as a model's answer: words, line breaks, some quotes."""
    sentence = (
        f'Step {number}: open "src/module_{number % 97}.py", change the retry loop, and run the tests.\n'
    )
    return (sentence * (size_bytes // len(sentence) + 1))[:size_bytes]


TEXTS = [build_text(number, TEXT_BYTES) for number in range(64)]


def build_item(number: int) -> RolloutItem:
    """A new item each time, as a producer makes it."""
    return ResponseItem.message("assistant", TEXTS[number & 63])


def build_meta() -> SessionMeta:
    """The meta line of a rollout that a bench writes."""
    return SessionMeta(cwd=os.getcwd())


def make_line(number: int, item: RolloutItem | None = None) -> Line:
    """The line of an item, with an envelope as the recorder makes it."""
    return Line(STAMP, number, "response_item", item if item is not None else build_item(number))


def _sample_payloads() -> list[tuple[str, object]]:
    """One payload of each shape that agents write most, with as many keys as such records have."""
    turn, call = "01a2281c-d14a-79e0-a76e-139e47a2d2f2", "call_8f3a2c"
    arguments = encode({"cmd": "make test", "cwd": "/srv/demo", "env": {"CI": "1"}}).decode()
    tags = {"turn_id": turn, "sequence": 6, "order": 3, "state": "unused", "note": "n" * 150}
    usage = {"input_tokens": 5906, "cached_input_tokens": 4096, "output_tokens": 77, "total_tokens": 5983}
    limits = {"primary": None, "secondary": None, "credits": None, "plan_type": None, "limit_id": "default"}
    info = {"total_token_usage": usage, "last_token_usage": usage, "model_context_window": 258400}
    origin = {"turn_id": turn, "trigger": "exec", "parent": None, "root": turn, "path": None}
    policy = {"approval_policy": "never", "sandbox_policy": {"type": "read-only"}, "model": "some-model"}
    place = {"turn_id": turn, "root_turn_id": turn, "cwd": "/srv/demo", "roots": ["/srv/demo"]}
    mode = {"name": "default", "settings": policy}
    return [
        ("response_item", {"type": "message", "role": "assistant", "content": [_text(TEXT_BYTES)]}),
        (
            "response_item",
            {"type": "function_call", "name": "shell", "arguments": arguments, "metadata": tags},
        ),
        ("response_item", {"type": "function_call_output", "call_id": call, "output": build_text(3, 380)}),
        ("event_msg", {"type": "token_count", "info": info, "rate_limits": limits}),
        ("event_msg", {"type": "task_started", **place, "started_at": 1795969306, "attribution": origin}),
        ("turn_context", {**place, **policy, "effort": None, "summary": "none", "mode": mode}),
    ]


def _text(size_bytes: int) -> dict[str, str]:
    return {"type": "output_text", "text": build_text(5, size_bytes)}


SAMPLE_LINES = [
    encode({"timestamp": STAMP, "ordinal": 40 + number, "type": record_type, "payload": payload})
    for number, (record_type, payload) in enumerate(_sample_payloads())
]
"""Lines of the shapes in a real rollout, about 500 bytes each: what decoding is measured on."""


@contextmanager
def fresh_path(folder: Path) -> Iterator[Path]:
    """A path in a folder of its own, which is removed with all that lies in it."""
    with tempfile.TemporaryDirectory(dir=folder, prefix="bench-") as name:
        yield Path(name) / "rollout.jsonl"
