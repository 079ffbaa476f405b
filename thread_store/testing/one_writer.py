"""Checks of the one writer: nobody else gets in, and who left keeps nobody out."""

from __future__ import annotations

import asyncio

from protocol.errors import ActiveWriter, InvalidThreadId, RolloutExists, ThreadNotFound
from protocol.ids import ThreadId
from protocol.meta import SessionMeta
from thread_store.store import ThreadStore
from thread_store.testing.check import (
    Check,
    begin,
    collector,
    expect,
    expect_equal,
    expect_raises,
    said,
    texts_of,
)
from thread_store.thread import Thread

__all__ = ["CHECKS"]

CHECKS: list[Check] = []

_check = collector(CHECKS)


@_check
async def _second_writer_is_refused_until_the_first_is_gone(store: ThreadStore) -> None:
    """The error names the holder; once it closed, the thread can be opened."""
    thread = await begin(store, "a")
    error = await expect_raises(ActiveWriter, store.open_thread(thread.thread_id), "a second writer")
    expect(error.holder.pid is not None, "the error names no holder")
    await thread.aclose()
    async with await store.open_thread(thread.thread_id) as again:
        again.record_nowait(said("b"))
    expect_equal(await texts_of(store, thread.thread_id), ["a", "b"], "the texts")


@_check
async def _discarded_thread_can_be_opened_again(store: ThreadStore) -> None:
    """Giving up a handle gives up its lock too; what was flushed stays."""
    thread = await begin(store, "a")
    thread.discard()
    await thread.aclose()
    async with await store.open_thread(thread.thread_id) as again:
        again.record_nowait(said("b"))
    expect_equal(await texts_of(store, thread.thread_id), ["a", "b"], "the texts")


@_check
async def _unknown_and_malformed_ids_are_told_apart(store: ThreadStore) -> None:
    """No UUID is no id, and an id that nobody has is not found; neither leaves anything behind."""
    unknown = str(ThreadId.new())
    for text in ("", "../../etc/passwd", "0" * 36, "not-a-uuid"):
        await expect_raises(InvalidThreadId, store.open_thread(text), f"opening {text!r}")
        await expect_raises(InvalidThreadId, store.read_thread(text), f"reading {text!r}")
        await expect_raises(InvalidThreadId, store.fork_thread(text), f"forking {text!r}")
        if text:
            meta = SessionMeta(cwd="/work", id=text)
            await expect_raises(InvalidThreadId, store.create_thread(meta), f"creating {text!r}")
    await expect_raises(ThreadNotFound, store.open_thread(unknown), "opening it")
    await expect_raises(ThreadNotFound, store.read_thread(unknown), "reading it")
    await expect_raises(ThreadNotFound, store.fork_thread(unknown), "forking it")
    await expect_raises(ThreadNotFound, store.revert_thread(unknown, before_turn=1), "reverting it")


@_check
async def _id_that_is_taken_is_refused(store: ThreadStore) -> None:
    """A thread is never begun over another one."""
    thread = await begin(store, "a")
    meta = SessionMeta(cwd="/work", id=thread.thread_id)
    await expect_raises(ActiveWriter, store.create_thread(meta), "while it is written")
    await thread.aclose()
    await expect_raises(RolloutExists, store.create_thread(meta), "when it is closed")
    expect_equal(await texts_of(store, thread.thread_id), ["a"], "the texts")


@_check
async def _cancelled_open_keeps_nobody_out(store: ThreadStore) -> None:
    """A caller that gave up holds no lock."""
    thread = await begin(store, "a")
    await thread.aclose()
    for steps in range(4):
        opening = asyncio.ensure_future(store.open_thread(thread.thread_id))
        for _ in range(steps):
            await asyncio.sleep(0)
        opening.cancel()
        outcome = (await asyncio.gather(opening, return_exceptions=True))[0]
        if isinstance(outcome, Thread):
            await outcome.aclose()
        await (await _open_patiently(store, thread.thread_id)).aclose()


async def _open_patiently(store: ThreadStore, thread_id: str) -> Thread:
    """Nobody waits for the end of an opening that was given up: its lock is free soon, not at once."""
    async with asyncio.timeout(30):
        while True:
            try:
                return await store.open_thread(thread_id)
            except ActiveWriter:
                await asyncio.sleep(0.005)
