"""What was erased the real Codex passes over; the rest it lists, reads, sends to the model and continues."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from protocol.line import RolloutLine, decode_line
from tests.codex.conftest import Start, meta_in, said, say, texts_in
from tests.codex.model_service import ModelService
from thread_store.chain.fork_point import ForkPoint
from thread_store.erasing.erase import ErasureReport
from thread_store.erasing.needle import Needle
from thread_store.local_store import LocalThreadStore

pytestmark = [pytest.mark.asyncio, pytest.mark.codex]


async def erase(store: LocalThreadStore, text: str, *threads: str) -> ErasureReport:
    """As someone does who pasted it."""
    return await store.erase(threads or None, needle=Needle.text(text), reason="pasted")


def lines(path: Path) -> list[RolloutLine]:
    return [decode_line(each) for each in path.read_bytes().splitlines()]


@pytest.mark.parametrize("gone", ["question 2", "answer 2", "question 1", "answer 3"])
async def test_codex_goes_on_with_what_was_left(
    store: LocalThreadStore, home: Path, start: Start, model: ModelService, gone: str
) -> None:
    """It sends all but that to the model, and our numbers follow its own. Where the last records were erased
    Codex takes their numbers again; nothing is lost by that."""
    async with await store.create_thread(meta_in(home)) as thread:
        await say(thread, 1, 2, 3)
    path = store.home.find_thread(thread.thread_id)
    assert (await erase(store, gone)).left == []
    before = path.read_bytes()
    left = [each for each in said(1, 2, 3) if each != gone]
    async with start() as server:
        await server.call("thread/resume", threadId=thread.thread_id)
        assert (await server.turn(thread.thread_id, "codex asks"))["status"] == "completed"
    sent = [*left, "codex asks"]
    assert [text for text in model.texts() if text in (*sent, gone)] == sent
    assert path.read_bytes().startswith(before)
    async with await store.open_thread(thread.thread_id) as thread:
        await say(thread, 11)
    history = await store.read_thread(thread.thread_id)
    assert texts_in(history) == [*left, "codex asks", "reply 1", *said(11)]
    assert (history.warnings, history.problem) == ([], None)
    kept = [each for each in lines(path) if each.ordinal is not None]
    assert [each.ordinal for each in kept] == sorted({each.ordinal or 0 for each in kept})
    erased = {each.number for each in lines(path) if each.type == "x_erased"}
    assert bool(erased & {each.ordinal for each in kept}) == (gone == "answer 3")


async def test_codex_follows_a_fork_that_rests_on_an_erased_line(
    store: LocalThreadStore, home: Path, start: Start, model: ModelService
) -> None:
    """Both programs still find what the history was taken up to."""
    async with await store.create_thread(meta_in(home)) as source:
        await say(source, 1, 2)
    async with await store.fork_thread(source.thread_id, at=ForkPoint.end(), mode="reference") as fork:
        await say(fork, 9)
    await erase(store, "answer 2")
    assert texts_in(await store.read_thread(fork.thread_id)) == [*said(1), "question 2", *said(9)]
    async with start() as server:
        await server.call("thread/resume", threadId=fork.thread_id)
        await server.turn(fork.thread_id, "codex asks")
    sent = [*said(1), "question 2", *said(9), "codex asks"]
    assert [text for text in model.texts() if text in (*sent, "answer 2")] == sent


async def test_erased_instructions_leave_a_thread_that_codex_lists_and_resumes(
    store: LocalThreadStore, home: Path, start: Start
) -> None:
    """The first line keeps its form."""
    meta = meta_in(home)
    meta.base_instructions = {"text": "the key is sk-very-secret, use it"}
    async with await store.create_thread(meta) as thread:
        await say(thread, 1)
    await erase(store, "sk-very-secret")
    path = store.home.find_thread(thread.thread_id)
    assert b"sk-very-secret" not in path.read_bytes()
    assert (
        "the key is ***"
        in json.loads(path.read_bytes().splitlines()[0])["payload"]["base_instructions"]["text"]
    )
    async with start() as server:
        listed = await server.call("thread/list", limit=100, modelProviders=[], sourceKinds=["cli"])
        assert thread.thread_id in [each["id"] for each in listed["data"]]
        await server.call("thread/resume", threadId=thread.thread_id)


async def test_thread_of_codex_is_erased_and_what_only_codex_knows_is_named(
    store: LocalThreadStore, home: Path, start: Start, model: ModelService
) -> None:
    """No rollout, title or prompt holds it then; files that are Codex's alone (its database) are named."""
    async with start() as server:
        started = await server.call("thread/start", cwd=str(home.parent))
        thread_id = started["thread"]["id"]
        await server.turn(thread_id, "my password is hunter2-hunter2")
        await server.turn(thread_id, "and now?")
    report = await erase(store, "hunter2-hunter2")
    needle = Needle.text("hunter2-hunter2")
    assert report.left == []
    held = [str(each) for each in home.rglob("*") if each.is_file() and needle.is_in(each.read_bytes())]
    assert sorted(held) == sorted(report.plan.elsewhere)
    async with start() as server:
        await server.call("thread/resume", threadId=thread_id)
        assert (await server.turn(thread_id, "go on"))["status"] == "completed"
    assert "hunter2" not in json.dumps(model.requests[-1]["input"])
