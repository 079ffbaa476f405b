"""What the conformance checks don't ask of the store in memory: how it ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import RolloutWriteError
from protocol.meta import SessionMeta
from protocol.response_items import ResponseItem
from tests.rollout.faulty import Gate
from tests.rollout.recorded import eventually
from thread_store.errors import StoreClosed, ThreadsUnwritten
from thread_store.in_memory.sink import MemorySink
from thread_store.in_memory.store import MemoryThreadStore

pytestmark = pytest.mark.asyncio

META = SessionMeta(cwd="/srv")

Before = Callable[[Callable[[], None]], None]


@pytest.fixture
def before_append(monkeypatch: pytest.MonkeyPatch) -> Before:
    """Has something happen before each append."""

    def patch(happens: Callable[[], None]) -> None:
        real = MemorySink.append

        def call(self: MemorySink, chunk: Any) -> None:
            happens()
            real(self, chunk)

        monkeypatch.setattr(MemorySink, "append", call)

    return patch


async def test_cancelled_close_goes_on(before_append: Before) -> None:
    """Its threads are drained, and its service ends."""
    gate = Gate()
    store = await MemoryThreadStore().__aenter__()
    thread = await store.create_thread(META)
    before_append(gate.wait)
    thread.record_nowait(ResponseItem.message("user", "a"))
    closing = asyncio.create_task(store.aclose())
    await eventually(gate.reached.is_set)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    gate.open()
    await eventually(lambda: not [each for each in threading.enumerate() if each.name == "rollout-memory"])
    assert thread.health.synced_items == 1
    with pytest.raises(StoreClosed):
        await store.list_ids()


async def test_bug_in_a_writer_is_told_when_the_store_closes(before_append: Before) -> None:
    """By the id of its thread."""

    def fail() -> None:
        raise ZeroDivisionError

    store = await MemoryThreadStore().__aenter__()
    thread = await store.create_thread(META)
    before_append(fail)
    thread.record_nowait(ResponseItem.message("user", "a"))
    with pytest.raises(ThreadsUnwritten) as caught:
        await store.aclose()
    assert list(caught.value.errors) == [thread.thread_id]
    assert isinstance(caught.value.errors[thread.thread_id], RolloutWriteError)


async def test_thread_is_written_while_it_is_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who looks into its bytes keeps its writer from nothing."""
    gate = Gate()

    def write_bytes(self: Path, data: bytes) -> int:
        with memoryview(data) as view, self.open("wb") as file:
            gate.wait()
            return file.write(view)

    async with MemoryThreadStore() as store:
        thread = await store.create_thread(META)
        thread.record_nowait(ResponseItem.message("user", "a"))
        await thread.flush()
        monkeypatch.setattr(Path, "write_bytes", write_bytes)
        forking = asyncio.create_task(store.fork_thread(thread.thread_id))
        await eventually(gate.reached.is_set)
        thread.record_nowait(ResponseItem.message("user", "b"))
        await thread.flush()
        gate.open()
        fork = await forking
        assert len(list((await store.read_thread(thread.thread_id)).items())) == 2
        assert len(list((await store.read_thread(fork.thread_id)).items())) == 1
