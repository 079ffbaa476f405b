"""What we archive, compress and make self-contained the real Codex goes on with, and the other way."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.codex.app_server import CodexError
from tests.codex.conftest import Start, meta_in, said, say, texts_in
from tests.codex.model_service import ModelService
from thread_store.home import Home
from thread_store.local_store import LocalThreadStore
from thread_store.upkeep import zstd_form

pytestmark = [pytest.mark.asyncio, pytest.mark.codex]

KINDS = ["cli", "vscode", "exec", "appServer", "unknown", "subAgent", "subAgentThreadSpawn"]


async def begin(store: LocalThreadStore, home: Path, *, reverted: bool = False) -> str:
    async with await store.create_thread(meta_in(home)) as thread:
        await say(thread, 1, 2, 3)
    if reverted:
        async with await store.revert_thread(thread.thread_id, before_turn=3) as again:
            await say(again, 9)
    return thread.thread_id


def files(home: Path, thread_id: str) -> list[str]:
    return sorted(
        f"{each.path.relative_to(home).parts[0]} {each.path.suffix}"
        for each in Home(home).rollouts()
        if each.name.thread_id == thread_id
    )


@pytest.mark.case("B109")
async def test_codex_unarchives_what_we_archived(
    store: LocalThreadStore, home: Path, start: Start, model: ModelService
) -> None:
    """It lists it as archived, takes it out with all its rollouts, and goes on with its history."""
    thread_id = await begin(store, home, reverted=True)
    await store.archive_thread(thread_id)
    async with start() as server:
        listed = await server.call(
            "thread/list", limit=9, modelProviders=[], sourceKinds=KINDS, archived=True
        )
        assert [each["id"] for each in listed["data"]] == [thread_id]
        await server.call("thread/unarchive", threadId=thread_id)
        assert files(home, thread_id) == ["sessions .jsonl"] * 2
        await server.call("thread/resume", threadId=thread_id)
        await server.turn(thread_id, "question 10")
    assert [each for each in model.texts() if each in said(1, 2, 9)] == said(1, 2, 9)


@pytest.mark.case("B109")
async def test_we_take_out_what_codex_archived(store: LocalThreadStore, home: Path, start: Start) -> None:
    """All its rollouts; and archiving it once more changes nothing."""
    thread_id = await begin(store, home, reverted=True)
    async with start() as server:
        await server.call("thread/archive", threadId=thread_id)
    await store.archive_thread(thread_id)
    assert files(home, thread_id) == ["archived_sessions .jsonl"] * 2
    assert texts_in(await store.read_thread(thread_id)) == said(1, 2, 9)
    await store.unarchive_thread(thread_id)
    assert files(home, thread_id) == ["sessions .jsonl"] * 2
    async with await store.open_thread(thread_id) as thread:
        await say(thread, 10)
    assert texts_in(await store.read_thread(thread_id)) == said(1, 2, 9, 10)


@pytest.mark.parametrize("frame_bytes", [zstd_form.FRAME_BYTES, 700])
async def test_codex_goes_on_with_what_we_compressed(
    store: LocalThreadStore,
    home: Path,
    start: Start,
    model: ModelService,
    monkeypatch: pytest.MonkeyPatch,
    frame_bytes: int,
) -> None:
    """In however many frames: it lists it, expands it, and then we read both parts."""
    monkeypatch.setattr(zstd_form, "FRAME_BYTES", frame_bytes)
    thread_id = await begin(store, home)
    await store.compress_thread(thread_id, older_than_seconds=0)
    assert files(home, thread_id) == ["sessions .zst"]
    async with start() as server:
        listed = await server.call("thread/list", limit=9, modelProviders=[], sourceKinds=KINDS)
        assert [each["id"] for each in listed["data"]] == [thread_id]
        await server.call("thread/resume", threadId=thread_id)
        await server.turn(thread_id, "question 10")
    assert [each for each in model.texts() if each in said(1, 2, 3)] == said(1, 2, 3)
    assert files(home, thread_id) == ["sessions .jsonl"]
    assert texts_in(await store.read_thread(thread_id))[:6] == said(1, 2, 3)


async def test_codex_reads_a_fork_whose_base_we_archived_and_compressed(
    store: LocalThreadStore, home: Path, start: Start, model: ModelService
) -> None:
    """The base stays what the fork means, wherever it lies and in whatever form."""
    source = await begin(store, home)
    async with await store.fork_thread(source, mode="reference") as fork:
        await say(fork, 7)
    await store.compress_thread(source, older_than_seconds=0)
    await store.archive_thread(source)
    assert files(home, source) == ["archived_sessions .zst"]
    async with start() as server:
        await server.call("thread/resume", threadId=fork.thread_id)
        await server.turn(fork.thread_id, "question 10")
        with pytest.raises(CodexError, match="references"):
            await server.call("thread/delete", threadId=source)
    assert [each for each in model.texts() if each in said(1, 2, 3, 7)] == said(1, 2, 3, 7)


async def test_codex_goes_on_with_a_fork_that_outlived_its_source(
    store: LocalThreadStore, home: Path, start: Start, model: ModelService
) -> None:
    """Made self-contained it is a thread like any other."""
    source = await begin(store, home)
    async with await store.fork_thread(source, mode="reference") as fork:
        await say(fork, 7)
    await store.delete_thread(source, cascade=True)
    async with start() as server:
        listed = await server.call("thread/list", limit=9, modelProviders=[], sourceKinds=KINDS)
        assert [each["id"] for each in listed["data"]] == [fork.thread_id]
        await server.call("thread/resume", threadId=fork.thread_id)
        await server.turn(fork.thread_id, "question 10")
    assert [each for each in model.texts() if each in said(1, 2, 3, 7)] == said(1, 2, 3, 7)


async def test_deleting_takes_the_name_that_codex_gave(
    store: LocalThreadStore, home: Path, start: Start
) -> None:
    """The other names stay, and Codex finds them."""
    gone, stays = await begin(store, home), await begin(store, home)
    async with start() as server:
        for thread_id in (gone, stays):
            await server.call("thread/name/set", threadId=thread_id, name=f"name of {thread_id}")
    await store.delete_thread(gone)
    index = (home / "session_index.jsonl").read_text()
    assert gone not in index
    assert f"name of {stays}" in index
