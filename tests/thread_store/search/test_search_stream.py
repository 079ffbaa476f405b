"""A search as an asynchronous iterator."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from protocol.errors import RolloutUnreadable
from tests.thread_store.search.written import message, meta, thread_id, write_thread
from thread_store import LocalThreadStore, MemoryThreadStore, StoreClosed
from thread_store.search import thread_search


def make(home: Path, number: int, text: str) -> None:
    lines = [meta(thread_id(number)), message(text, ordinal=1)]
    write_thread(home, lines, thread=thread_id(number), stamp=f"2026-03-04T05-06-{number:02d}")


@pytest.mark.asyncio
async def test_closing_the_store_ends_its_searches(tmp_path: Path) -> None:
    """A search that is under way gives nothing more, and keeps no thread."""
    make(tmp_path, 1, "needle\n" * 5000)
    async with LocalThreadStore(tmp_path) as store:
        search = store.search("needle")
        assert (await anext(search)).thread_id == thread_id(1)
    assert [hit async for hit in search] == []
    with pytest.raises(StoreClosed):
        store.search("needle")
    for worker in [each for each in threading.enumerate() if each.name.startswith("rollout-search")]:
        await asyncio.to_thread(worker.join, 60)
        assert not worker.is_alive()


@pytest.mark.asyncio
async def test_home_that_cannot_be_listed_is_told_at_the_first_step(tmp_path: Path) -> None:
    """And then the search is over."""
    (tmp_path / "home").write_text("no folder")
    async with LocalThreadStore(tmp_path / "home2") as store:
        store.home.path = tmp_path / "home"
        search = store.search("needle")
        with pytest.raises(RolloutUnreadable):
            await anext(search)
        assert [hit async for hit in search] == []


@pytest.mark.asyncio
async def test_search_of_memory_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files are there while it runs; hits name the thread and not a file that is gone."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    async with MemoryThreadStore() as store:
        async with await store.create_thread() as thread:
            from protocol import tracks

            thread.record_nowait(tracks.user_message("needle\nneedle"))
        hits = [hit async for hit in store.search("needle")]
        assert [hit.path for hit in hits] == [f"memory:{thread.thread_id}"] * 2
        assert not list(tmp_path.iterdir())
        async with store.search("needle") as search:
            await anext(search)
        assert not list(tmp_path.iterdir())


@pytest.mark.asyncio
async def test_search_may_go_on_in_another_loop(tmp_path: Path) -> None:
    """Begun in one loop it is finished in another."""
    for number in range(5):
        make(tmp_path, number, "needle")
    async with LocalThreadStore(tmp_path) as store:
        search = store.search("needle")
        first = await anext(search)

        async def rest() -> list[str]:
            return [hit.thread_id async for hit in search]

        others = await asyncio.to_thread(lambda: asyncio.run(rest()))
        assert [first.thread_id, *others] == [thread_id(at) for at in range(4, -1, -1)]


@pytest.mark.asyncio
async def test_search_works_with_one_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """How many threads look makes no difference to what is given."""
    for number in range(9):
        make(tmp_path, number, "needle")
    async with LocalThreadStore(tmp_path) as store:
        two = [hit async for hit in store.search("needle")]
        monkeypatch.setattr(thread_search, "WORKERS", 1)
        assert [hit async for hit in store.search("needle")] == two
