"""What this library records is listed, read, sent to the model and continued by the real Codex."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.codex.conftest import Start, meta_in, said, say, texts_in
from tests.codex.model_service import ModelService
from tests.rollout.recorded import json_lines
from thread_store.chain.fork_point import ForkPoint
from thread_store.context.model_item import ModelItem
from thread_store.forks.fork import ForkMode
from thread_store.local_store import LocalThreadStore
from thread_store.turns.compaction_draft import Compaction
from thread_store.turns.turn import Turn

pytestmark = [pytest.mark.asyncio, pytest.mark.codex]

KINDS = ["cli", "vscode", "exec", "appServer", "unknown", "subAgent", "subAgentThreadSpawn"]

Make = Callable[[LocalThreadStore, Path], Awaitable[tuple[str, list[str]]]]
"""Makes a thread; returns its id and the texts that it holds."""


async def _turns(store: LocalThreadStore, home: Path) -> tuple[str, list[str]]:
    async with await store.create_thread(meta_in(home)) as thread:
        await say(thread, 1, 2, 3)
    return thread.thread_id, said(1, 2, 3)


async def _subagent(store: LocalThreadStore, home: Path) -> tuple[str, list[str]]:
    async with (
        await store.create_thread(meta_in(home)) as parent,
        await store.create_subagent(parent, nickname="reviewer", role="review") as child,
    ):
        await say(parent, 1)
        await say(child, 7)
    return child.thread_id, said(7)


async def _parent(store: LocalThreadStore, home: Path) -> tuple[str, list[str]]:
    async with await store.create_thread(meta_in(home)) as parent, parent.turn() as turn:
        turn.user_message("question 1")
        async with await store.create_subagent(parent, nickname="reviewer") as child:
            await say(child, 7)
        turn.agent_message("answer 1")
    return parent.thread_id, said(1)


async def _fork(store: LocalThreadStore, home: Path, mode: ForkMode) -> tuple[str, list[str]]:
    source, _ = await _turns(store, home)
    async with await store.fork_thread(source, at=ForkPoint.turn(2), mode=mode) as fork:
        await say(fork, 9)
    return fork.thread_id, said(1, 2, 9)


async def _copy(store: LocalThreadStore, home: Path) -> tuple[str, list[str]]:
    return await _fork(store, home, "copy")


async def _reference(store: LocalThreadStore, home: Path) -> tuple[str, list[str]]:
    return await _fork(store, home, "reference")


async def _revert(store: LocalThreadStore, home: Path) -> tuple[str, list[str]]:
    thread_id, _ = await _turns(store, home)
    async with await store.revert_thread(thread_id, before_turn=3) as thread:
        await say(thread, 9)
    return thread_id, said(1, 2, 9)


async def _take_over(store: LocalThreadStore, home: Path) -> tuple[str, list[str]]:
    thread = await store.create_thread(meta_in(home))
    await say(thread, 1)
    await thread.sync()
    async with await store.take_over_thread(thread.thread_id) as taken:
        await say(taken, 2)
    thread.discard()
    return thread.thread_id, said(1, 2)


async def _agent(store: LocalThreadStore, home: Path) -> tuple[str, list[str]]:
    """Everything that an agent records with, each kind of call with each end."""
    async with await store.create_thread(meta_in(home)) as thread:
        async with thread.turn() as turn:
            turn.user_message("question 1")
            for kind, call in CALLS.items():
                for end, tell in ENDS.items():
                    await _call(turn, f"{kind}-{end}", call, tell)
            await (await turn.request_approval(turn.tool_call("pay", {}))).decline(by="ada")
            async with turn.check("make test") as check:
                check.passed("12 passed")
            turn.plan([("look", "completed")], explanation="as asked")
            turn.error("the model gave no answer")
            turn.agent_message("answer 1")
        await thread.set_state("waiting", reason="for the user")
    return thread.thread_id, said(1)


async def _call(turn: Turn, call_id: str, call: dict[str, Any], tell: Callable[[Any], None]) -> None:
    """One that is interrupted goes on here, as in a program that catches it."""
    try:
        async with turn.tool_call(**call, call_id=call_id) as made:
            tell(made)
    except KeyboardInterrupt:
        return


def _interrupt(call: Any) -> None:
    raise KeyboardInterrupt


CALLS: dict[str, dict[str, Any]] = {
    "shell": {"name": "shell", "arguments": {"command": ["make", "test"]}},
    "patch": {"name": "apply_patch", "arguments": "*** Begin Patch\n*** End Patch"},
    "mcp": {"name": "read", "arguments": '{"path": "a"}', "namespace": "mcp__files"},
    "custom": {"name": "lookup", "arguments": {"n": 1}},
    "text": {"name": "sql", "arguments": "SELECT 1", "free_text": True},
    "agent": {"name": "spawn_agent", "arguments": {"task": "look"}},
}
ENDS: dict[str, Callable[[Any], None]] = {
    "completed": lambda call: call.completed("ok"),
    "failed": lambda call: call.failed("exit 2", "1 failed"),
    "declined": lambda call: call.declined("not today"),
    "aborted": _interrupt,
}


async def _compacted(store: LocalThreadStore, home: Path) -> tuple[str, list[str]]:
    """By a summariser that keeps everything."""

    async def summarise(items: Sequence[ModelItem]) -> Compaction:
        return Compaction("the summary", items)

    async with await store.create_thread(meta_in(home)) as thread:
        await say(thread, 1, 2)
        await thread.compact(summarise)
        await say(thread, 3)
    return thread.thread_id, said(1, 2, 3)


MADE = pytest.mark.parametrize(
    "make", [_turns, _parent, _subagent, _copy, _reference, _revert, _take_over, _agent]
)


@MADE
async def test_codex_lists_and_reads_our_thread(
    store: LocalThreadStore, home: Path, start: Start, make: Make
) -> None:
    """With a preview, and with its own turns once it was resumed."""
    thread_id, texts = await make(store, home)
    async with start() as server:
        listed = await server.call("thread/list", limit=100, modelProviders=[], sourceKinds=KINDS)
        [found] = [each for each in listed["data"] if each["id"] == thread_id]
        assert found["preview"]
        await server.call("thread/resume", threadId=thread_id)
        read = await server.call("thread/read", threadId=thread_id, includeTurns=True)
    shown = [text for turn in read["thread"]["turns"] for item in turn["items"] for text in _texts_of(item)]
    assert shown[-2:] == texts[-2:]


def _texts_of(item: dict[str, object]) -> list[str]:
    if item["type"] == "agentMessage":
        return [str(item["text"])]
    if item["type"] == "userMessage":
        return [str(part["text"]) for part in item["content"]]  # type: ignore[attr-defined]
    return []


@MADE
async def test_codex_goes_on_with_our_thread_and_we_with_what_it_wrote(
    store: LocalThreadStore, home: Path, start: Start, model: ModelService, make: Make
) -> None:
    """It sends the model the whole history and appends behind our bytes; our next ordinals follow its own."""
    thread_id, texts = await make(store, home)
    path = store.home.find_thread(thread_id)
    before = path.read_bytes()
    async with start() as server:
        await server.call("thread/resume", threadId=thread_id)
        turn = await server.turn(thread_id, "codex asks")
        assert turn["status"] == "completed"
    sent = [*texts, "codex asks"]
    assert [text for text in model.texts() if text in sent] == sent
    assert path.read_bytes().startswith(before)
    async with await store.open_thread(thread_id) as thread:
        await say(thread, 11)
    assert Path(thread.path) == path
    history = await store.read_thread(thread_id)
    assert texts_in(history) == [*texts, "codex asks", "reply 1", *said(11)]
    assert (history.warnings, history.problem, history.late) == ([], None, ())
    # A copy holds the meta of its source, too.
    numbered = [each for each in json_lines(path)[1:] if "ordinal" in each and each["type"] != "session_meta"]
    ordinals = [each["ordinal"] for each in numbered]
    assert ordinals == list(range(ordinals[0], ordinals[0] + len(ordinals)))


async def test_codex_shows_how_our_calls_ended(store: LocalThreadStore, home: Path, start: Start) -> None:
    """Each kind, in its own words; one that was cut short is never shown as completed."""
    thread_id, _ = await _agent(store, home)
    async with start() as server:
        await server.call("thread/resume", threadId=thread_id)
        read = await server.call("thread/read", threadId=thread_id, includeTurns=True)
    items = {item["id"]: item for turn in read["thread"]["turns"] for item in turn["items"]}
    shown = {
        f"{kind}-{end}": items[f"{kind}-{end}"]["status"]
        for kind in CALLS
        for end in ENDS
        if f"{kind}-{end}" in items
    }
    expected = {
        **{f"{kind}-completed": "completed" for kind in CALLS},
        **{f"{kind}-failed": "failed" for kind in CALLS},
        **{f"{kind}-declined": "failed" for kind in CALLS},
        **{f"{kind}-aborted": "failed" for kind in CALLS},
        "shell-declined": "declined",
        "patch-declined": "declined",
        "mcp-aborted": "inProgress",
    }
    del expected["patch-aborted"]  # nothing is shown of it
    assert shown == expected


async def test_codex_sends_the_output_of_each_of_our_calls_to_the_model(
    store: LocalThreadStore, home: Path, start: Start, model: ModelService
) -> None:
    """And none of its own in their place."""
    thread_id, _ = await _agent(store, home)
    async with start() as server:
        await server.call("thread/resume", threadId=thread_id)
        await server.turn(thread_id, "codex asks")
    outputs = {
        each["call_id"]: each["output"]
        for each in model.requests[-1]["input"]
        if each["type"].endswith("_call_output")
    }
    for kind in CALLS:
        assert outputs[f"{kind}-completed"] == "ok"
        assert outputs[f"{kind}-failed"] == "1 failed"
        assert outputs[f"{kind}-declined"] == "not today"
        assert outputs[f"{kind}-aborted"].startswith("outcome unknown")


async def test_codex_goes_on_from_our_checkpoint(
    store: LocalThreadStore, home: Path, start: Start, model: ModelService
) -> None:
    """With what the summariser kept, and what came behind it."""
    thread_id, texts = await _compacted(store, home)
    async with start() as server:
        await server.call("thread/resume", threadId=thread_id)
        await server.turn(thread_id, "codex asks")
    sent = [*texts, "codex asks"]
    assert [text for text in model.texts() if text in sent] == sent
