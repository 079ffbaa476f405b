"""What the tests of resuming share: rollouts written by hand, and the state that they are resumed from."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

from protocol.codec import encode_item
from protocol.items import RolloutItem
from protocol.tool_calls import ToolCall
from tests.protocol.histories import random_history
from tests.thread_store.histories import STAMP, Script, uuid, write_thread
from thread_store.home import Home
from thread_store.resume.recovery import recovery_items
from thread_store.resume.resume_state import ResumeState, read_resume_state

__all__ = [
    "THREAD",
    "TURN",
    "call_of",
    "next_ordinal",
    "own_call",
    "random_rollout",
    "recover",
    "state_of",
    "state_of_file",
    "write",
]

THREAD, TURN = uuid(0x2E5), "t1"


def write(script: Script, home: Home, **keys: Any) -> Path:
    """A rollout of these lines; its thread works in the home's own folder."""
    home.path.mkdir(parents=True, exist_ok=True)
    return write_thread(home, THREAD, script.bytes, **{"cwd": os.fspath(home.path), **keys})


def state_of_file(path: Path, home: Home, *, deep: bool = False) -> ResumeState:
    return read_resume_state(path, home, deep=deep)


def state_of(script: Script, home: Home, **keys: Any) -> ResumeState:
    return state_of_file(write(script, home, **keys), home)


def own_call(script: Script, call_id: str, state: str, **keys: Any) -> bytes:
    return script.add("x_call", {"call_id": call_id, "turn_id": TURN, "state": state, **keys})


def call_of(state: ResumeState, call_id: str = "c1") -> ToolCall:
    (call,) = [each for each in state.calls if each.call_id == call_id]
    return call


def next_ordinal(path: Path) -> int:
    numbered = [each for each in path.read_bytes().splitlines() if b'"ordinal":' in each[:60]]
    return int(numbered[-1].partition(b'"ordinal":')[2].partition(b",")[0]) + 1


def random_rollout(seed: int, home: Home) -> tuple[Path, list[bytes]]:
    """A rollout of random records, and its lines. No `x_erased`: it would speak of a line that is gone."""
    lines: list[bytes] = []
    ordinal = 0
    for each in random_history(random.Random(seed), aside=True, lines_max=40):
        if each.type != "x_erased":
            own = str(each.type).startswith("x_")
            ordinal += not own
            payload = each.payload_object()
            item = RolloutItem.raw(str(each.type), payload)
            lines.append(encode_item(item, timestamp=STAMP, ordinal=None if own else ordinal))
    return write_thread(home, THREAD, b"".join(lines)), lines


def recover(path: Path, home: Home, *, epoch: int = 2) -> ResumeState:
    """Append what a recovery has to say, and read again."""
    ordinal = next_ordinal(path)
    with path.open("ab") as file:
        for item in recovery_items(state_of_file(path, home), epoch=epoch):
            own = item.record_type.startswith("x_")
            file.write(encode_item(item, timestamp=STAMP, ordinal=None if own else ordinal))
            ordinal += not own
    return state_of_file(path, home)
