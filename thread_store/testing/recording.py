"""Checks of recording: what is accepted comes back, and a thread is what its caller said it is."""

from __future__ import annotations

import asyncio

from protocol.errors import ThreadNotFound
from protocol.ids import ThreadId
from protocol.meta import SessionMeta
from thread_store.store import ThreadStore
from thread_store.testing.check import (
    Check,
    begin,
    collector,
    expect_equal,
    expect_raises,
    said,
    texts,
    texts_of,
)

__all__ = ["CHECKS"]

CHECKS: list[Check] = []

_check = collector(CHECKS)


@_check
async def _records_come_back_once_and_in_order(store: ThreadStore) -> None:
    """What was recorded is read back, each item once, in its order, with the thread's own meta."""
    thread = await begin(store, *map(str, range(50)))
    await thread.aclose()
    history = await store.read_thread(thread.thread_id)
    expect_equal(texts(history), list(map(str, range(50))), "the texts")
    expect_equal((history.thread_id, history.meta.id), (thread.thread_id,) * 2, "the ids")
    expect_equal((history.meta.cwd, history.warnings), ("/work", []), "folder and warnings")


@_check
async def _flushed_items_are_seen_by_readers(store: ThreadStore) -> None:
    """A flush is enough for `read_thread`, while the thread is still open; receipts count items."""
    thread = await begin(store, "a", "b")
    expect_equal(await texts_of(store, thread.thread_id), ["a", "b"], "the texts")
    thread.record_nowait(said("c"))
    receipt = await thread.sync()
    expect_equal(receipt.items, 3, "items of the receipt")
    expect_equal(await texts_of(store, thread.thread_id), ["a", "b", "c"], "the texts")
    await thread.aclose()


@_check
async def _thread_that_never_spoke_does_not_exist(store: ThreadStore) -> None:
    """Nothing is kept of a thread without a record; its id can be used again."""
    thread = await store.create_thread(SessionMeta(cwd="/work"))
    await thread.aclose()
    await expect_raises(ThreadNotFound, store.open_thread(thread.thread_id), "opening it")
    await expect_raises(ThreadNotFound, store.read_thread(thread.thread_id), "reading it")
    expect_equal(list(await store.list_ids()), [], "the ids")
    again = await store.create_thread(SessionMeta(cwd="/work", id=thread.thread_id))
    await again.aclose()


@_check
async def _threads_are_listed_newest_first(store: ThreadStore) -> None:
    """Their ids, each once, however often they were opened."""
    ids: list[str] = []
    for number in range(3):
        thread = await begin(store, str(number))
        await thread.aclose()
        ids.insert(0, thread.thread_id)
    async with await store.open_thread(ids[1]) as thread:
        thread.record_nowait(said("again"))
    expect_equal(list(await store.list_ids()), ids, "the ids")


@_check
async def _opened_thread_goes_on_behind_what_it_holds(store: ThreadStore) -> None:
    """Ordinals rise without a gap, and the thread keeps its one meta."""
    thread = await begin(store, "a")
    await thread.aclose()
    async with await store.open_thread(thread.thread_id) as again:
        expect_equal(again.thread_id, thread.thread_id, "the id")
        expect_equal(again.meta.cwd, "/work", "the folder in its meta")
        again.record_nowait(said("b"))
    history = await store.read_thread(thread.thread_id)
    expect_equal(texts(history), ["a", "b"], "the texts")
    lines = [record.line for record in history.records if record.line is not None]
    ordinals = [line.ordinal for line in lines if line.ordinal is not None]
    expect_equal(ordinals, list(range(len(ordinals))), "the ordinals")
    expect_equal([line.type for line in lines].count("session_meta"), 1, "the number of metas")


@_check
async def _meta_of_the_caller_is_kept(store: ThreadStore) -> None:
    """Its id, its folder, its provider and its task are in the thread's first record."""
    thread_id = str(ThreadId.new())
    meta = SessionMeta(cwd="/elsewhere", id=thread_id, model_provider="acme", x_task={"prompt": "fix it"})
    thread = await store.create_thread(meta)
    expect_equal(thread.thread_id, thread_id, "the id")
    thread.record_nowait(said("a"))
    await thread.aclose()
    found = (await store.read_thread(thread_id)).meta
    expect_equal(
        (found.id, found.cwd, found.model_provider, found.x_task),
        (thread_id, "/elsewhere", "acme", {"prompt": "fix it"}),
        "the meta",
    )


@_check
async def _turn_is_ended_however_its_body_ends(store: ThreadStore) -> None:
    """Completed, failed with the error's text, or aborted when it is cancelled."""
    thread = await store.create_thread(SessionMeta(cwd="/work"))
    async with thread.turn() as turn:
        turn.user_message("hello")
        turn.agent_message("hi")
    try:
        async with thread.turn():
            raise ValueError("broken tool")
    except ValueError:
        pass
    started = asyncio.Event()

    async def endless() -> None:
        async with thread.turn():
            started.set()
            await asyncio.Event().wait()

    task = asyncio.ensure_future(endless())
    await started.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await thread.aclose()
    ends = [
        (type(item).__struct_config__.tag, getattr(item, "error", None) is not None)
        for item in (await store.read_thread(thread.thread_id)).items()
        if type(item).__struct_config__.tag in ("task_started", "task_complete", "turn_aborted")
    ]
    begun = ("task_started", False)
    expected = [begun, ("task_complete", False), begun, ("task_complete", True)]
    expected += [begun, ("turn_aborted", False)]
    expect_equal(ends, expected, "how the turns began and ended")
