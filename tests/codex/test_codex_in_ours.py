"""What the real Codex writes is continued, forked and reverted by this library, and Codex takes it back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.codex.conftest import Start, said, say, texts_in
from tests.codex.model_service import ModelService
from tests.rollout.recorded import json_lines
from thread_store.forks.fork import ForkMode
from thread_store.local_store import LocalThreadStore

pytestmark = [pytest.mark.asyncio, pytest.mark.codex]


def forget_files(home: Path) -> None:
    """Remove the database of Codex: where it knows a thread it goes on in the file that it knows, and looks
    for no newer one."""
    for each in home.glob("*.sqlite*"):
        each.unlink()


async def codex_thread(start: Start, home: Path) -> str:
    """Two turns, said to Codex."""
    async with start() as server:
        begun = await server.call("thread/start", cwd=str(home.parent))
        thread_id = str(begun["thread"]["id"])
        for number in (1, 2):
            await server.turn(thread_id, f"question {number}")
    return thread_id


THEIRS = ["question 1", "reply 1", "question 2", "reply 2"]


async def test_thread_of_codex_is_read(store: LocalThreadStore, home: Path, start: Start) -> None:
    """Every record, with no warning, and nothing is written."""
    thread_id = await codex_thread(start, home)
    before = store.home.find_thread(thread_id).read_bytes()
    history = await store.read_thread(thread_id)
    assert (history.warnings, history.problem) == ([], None)
    assert texts_in(history) == THEIRS
    assert history.meta.id == thread_id
    assert await store.list_ids() == [thread_id]
    assert store.home.find_thread(thread_id).read_bytes() == before


async def test_thread_of_codex_goes_on_with_us_and_then_with_codex(
    store: LocalThreadStore, home: Path, start: Start, model: ModelService
) -> None:
    """Our ordinals follow its own and its follow ours; its bytes stay, and the model is sent everything."""
    thread_id = await codex_thread(start, home)
    path = store.home.find_thread(thread_id)
    before = path.read_bytes()
    async with await store.open_thread(thread_id) as thread:
        await say(thread, 3)
    async with start() as server:
        await server.call("thread/resume", threadId=thread_id)
        await server.turn(thread_id, "question 4")
    sent = [*THEIRS, *said(3), "question 4"]
    assert [text for text in model.texts() if text in sent] == sent
    assert path.read_bytes().startswith(before)
    ordinals = [each["ordinal"] for each in json_lines(path) if "ordinal" in each]
    assert ordinals == list(range(len(ordinals)))


@pytest.mark.parametrize("mode", ["copy", "reference"])
async def test_fork_of_a_thread_of_codex_goes_on_in_codex(
    store: LocalThreadStore, home: Path, start: Start, model: ModelService, mode: ForkMode
) -> None:
    """With its whole history; the source's bytes stay as they were."""
    thread_id = await codex_thread(start, home)
    before = store.home.find_thread(thread_id).read_bytes()
    async with await store.fork_thread(thread_id, mode=mode) as fork:
        await say(fork, 3)
    async with start() as server:
        await server.call("thread/resume", threadId=fork.thread_id)
        await server.turn(fork.thread_id, "question 4")
    sent = [*THEIRS, *said(3), "question 4"]
    assert [text for text in model.texts() if text in sent] == sent
    assert store.home.find_thread(thread_id).read_bytes() == before


async def test_revert_of_a_thread_of_codex_goes_on_in_codex(
    store: LocalThreadStore, home: Path, start: Start, model: ModelService
) -> None:
    """Without the turns that were taken back, if Codex finds the thread by its files."""
    thread_id = await codex_thread(start, home)
    async with await store.revert_thread(thread_id, before_turn=2) as thread:
        await say(thread, 3)
    forget_files(home)
    async with start() as server:
        resumed = await server.call("thread/resume", threadId=thread_id)
        assert resumed["thread"]["path"] == thread.path
        await server.turn(thread_id, "question 4")
    sent = ["question 1", "reply 1", *said(3), "question 4"]
    assert [text for text in model.texts() if text in {*sent, *THEIRS}] == sent
    assert texts_in(await store.read_thread(thread_id)) == [*sent, "reply 3"]
