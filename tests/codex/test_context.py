"""Our context of a rollout is what the real Codex sends its model after resuming it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.codex.conftest import Start
from tests.codex.model_service import ModelService
from tests.thread_store.histories import Script, uuid, write_thread
from tests.thread_store.naive_context import text_of, user_message
from thread_store.context.model_context import load_model_context
from thread_store.context.model_item import ModelItem
from thread_store.home import Home

pytestmark = [pytest.mark.asyncio, pytest.mark.codex]

THREAD = uuid(0xC0DE)
PROMPT = "codex asks"

Write = Callable[[Script], None]


def turns(script: Script, *numbers: int) -> None:
    for number in numbers:
        script.start(uuid(number))
        user(script, f"question {number}")
        script.response("assistant", f"answer {number}")
        script.complete(uuid(number))


def user(script: Script, text: str) -> None:
    script.response("user", text)
    script.event("user_message", message=text)


def compact(script: Script, *kept: str) -> None:
    script.add(
        "compacted", {"message": kept[-1], "replacement_history": [user_message(each) for each in kept]}
    )


def roll_back(script: Script, count: int) -> None:
    script.event("thread_rolled_back", num_turns=count)


def rolled_back(script: Script) -> None:
    turns(script, 1, 2, 3)
    roll_back(script, 1)
    turns(script, 4)


def rolled_back_to_the_start(script: Script) -> None:
    script.start(uuid(1))
    script.response("developer", "be brief")
    user(script, "question 1")
    turns(script, 2)
    roll_back(script, 2)


def rolled_back_behind_a_checkpoint(script: Script) -> None:
    turns(script, 1)
    compact(script, "question 1", "summary")
    turns(script, 2)
    roll_back(script, 1)


def rolled_back_before_a_checkpoint(script: Script) -> None:
    turns(script, 1, 2)
    compact(script, "question 1", "summary")
    turns(script, 3)
    roll_back(script, 2)


def checkpoint_inside_a_rolled_back_turn(script: Script) -> None:
    turns(script, 1)
    script.start(uuid(2))
    user(script, "question 2")
    compact(script, "summary")
    script.complete(uuid(2))
    roll_back(script, 1)


def two_messages_in_a_rolled_back_turn(script: Script) -> None:
    turns(script, 1)
    script.start(uuid(2))
    user(script, "first")
    script.response("assistant", "half")
    user(script, "second")
    script.complete(uuid(2))
    roll_back(script, 1)


def message_of_another_agent_rolled_back(script: Script) -> None:
    turns(script, 1)
    said = {"author": "/root", "recipient": "/root", "content": "done", "trigger_turn": True}
    script.add("inter_agent_communication", {**said, "other_recipients": []})
    script.response("assistant", "well done")
    roll_back(script, 1)


def checkpoint_without_history(script: Script) -> None:
    turns(script, 1, 2)
    script.add("compacted", {"message": "summary"})
    turns(script, 3)


def invalid_checkpoints(script: Script) -> None:
    turns(script, 1)
    compact(script, "summary")
    turns(script, 2)
    script.add("compacted", {"replacement_history": [user_message("without a message")]})
    bare = {"type": "message", "role": "user", "content": "bare"}
    script.add("compacted", {"message": "m", "replacement_history": [bare]})
    turns(script, 3)


@pytest.mark.parametrize("mode", ["paginated", "legacy"])
@pytest.mark.parametrize(
    "write",
    [
        rolled_back,
        rolled_back_to_the_start,
        rolled_back_behind_a_checkpoint,
        rolled_back_before_a_checkpoint,
        checkpoint_inside_a_rolled_back_turn,
        two_messages_in_a_rolled_back_turn,
        message_of_another_agent_rolled_back,
        checkpoint_without_history,
        invalid_checkpoints,
    ],
)
async def test_context_is_what_codex_sends_its_model(
    home: Path, start: Start, model: ModelService, write: Write, mode: str
) -> None:
    """Whatever was compacted and rolled back, in either mode."""
    keys: dict[str, Any] = {"ordinal": 0 if mode == "paginated" else None}
    script = Script(1 if mode == "paginated" else None)
    write(script)
    path = write_thread(Home(home), THREAD, script.bytes, cwd=str(home.parent), **keys)
    context = load_model_context(path, Home(home))
    async with start() as server:
        await server.call("thread/resume", threadId=THREAD)
        await server.turn(THREAD, PROMPT)
    sent = [_text_of(each) for each in model.requests[-1]["input"]]
    assert [_text_of(_payload(each)) for each in context.items] == [
        text for text in sent if _is_recorded(text)
    ]


def _payload(item: ModelItem) -> dict[str, Any]:
    payload: dict[str, Any] = json.loads(bytes(item.payload))
    return payload


def _text_of(payload: dict[str, Any]) -> str:
    return f"{payload.get('role', payload['type'])}: {text_of(payload)}"


def _is_recorded(text: str) -> bool:
    """Codex puts its own instructions and surroundings before, and the prompt behind."""
    words = text.partition(": ")[2]
    return words != PROMPT and not words.startswith(("<", "You are a coding agent"))
