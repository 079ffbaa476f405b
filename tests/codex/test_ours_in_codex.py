"""What this library records is listed, read, sent to the model and continued by the real Codex."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.codex.conftest import Start, meta_in, said, say, texts_in
from tests.codex.model_service import ModelService
from tests.rollout.recorded import json_lines
from thread_store.fork import ForkMode
from thread_store.fork_point import ForkPoint
from thread_store.local_store import LocalThreadStore

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


MADE = pytest.mark.parametrize("make", [_turns, _parent, _subagent, _copy, _reference, _revert, _take_over])


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
