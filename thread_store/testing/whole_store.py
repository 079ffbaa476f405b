"""Checks of the store as a whole: many threads, many loops, and its end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable

from protocol.errors import RecorderClosed, RolloutError
from protocol.meta import SessionMeta
from thread_store.errors import StoreClosed
from thread_store.store import ThreadStore
from thread_store.testing.check import (
    Check,
    ConformanceError,
    begin,
    collector,
    expect,
    expect_equal,
    expect_raises,
    said,
    texts_of,
)

__all__ = ["CHECKS"]

CHECKS: list[Check] = []

_check = collector(CHECKS)


@_check
async def _many_threads_are_open_at_once(store: ThreadStore) -> None:
    """Each gets its own items and nobody else's."""
    threads = await asyncio.gather(*(begin(store, str(number)) for number in range(40)))
    for _ in range(3):
        for thread in threads:
            thread.record_nowait(said(thread.thread_id))
    await asyncio.gather(*(thread.aclose() for thread in threads))
    for number, thread in enumerate(threads):
        expected = [str(number), *[thread.thread_id] * 3]
        expect_equal(await texts_of(store, thread.thread_id), expected, "the texts")


@_check
async def _store_works_from_any_loop(store: ThreadStore) -> None:
    """A thread of the program with a loop of its own uses the same store, and the same thread."""
    thread = await begin(store, "a")
    outcome: list[object] = []

    async def elsewhere() -> None:
        thread.record_nowait(said("b"))
        await thread.sync()
        async with await store.create_thread(SessionMeta(cwd="/work")) as other:
            other.record_nowait(said("c"))
        outcome.append(await texts_of(store, other.thread_id))

    def run() -> None:
        try:
            asyncio.run(elsewhere())
        except BaseException as error:  # noqa: BLE001  # told below
            outcome.append(error)

    worker = threading.Thread(target=run)
    worker.start()
    await asyncio.to_thread(worker.join)
    await thread.aclose()
    expect_equal(outcome, [["c"]], "what came of it there")
    expect_equal(await texts_of(store, thread.thread_id), ["a", "b"], "the texts")


@_check
async def _closing_the_store_drains_its_threads(store: ThreadStore) -> None:
    """What was accepted is written; then neither the threads nor the store take any more."""
    threads = [await store.create_thread(SessionMeta(cwd="/work")) for _ in range(5)]
    for thread in threads:
        thread.record_nowait([said(str(number)) for number in range(20)])
    await store.aclose()
    await store.aclose()
    for thread in threads:
        expect_equal((thread.health.synced_items, thread.health.pending_items), (20, 0), "items")
        try:
            thread.record_nowait(said("too late"))
        except RecorderClosed:
            continue
        raise ConformanceError("a thread of a closed store takes items")
    closed: list[Awaitable[object]] = [
        store.create_thread(SessionMeta(cwd="/work")),
        store.open_thread(threads[0].thread_id),
        store.read_thread(threads[0].thread_id),
        store.fork_thread(threads[0].thread_id),
        store.list_ids(),
    ]
    for call in closed:
        error = await expect_raises(RolloutError, call, "a call on a closed store")
        expect(isinstance(error, StoreClosed), f"a closed store raises {error!r}")
