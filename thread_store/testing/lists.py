"""Checks of lists: every thread once, in an order that stays, under what it is called."""

from __future__ import annotations

import asyncio

from protocol import tracks
from protocol.errors import ThreadNotFound
from protocol.ids import ThreadId
from protocol.meta import SessionMeta
from protocol.timestamps import now_ms
from thread_store.errors import InvalidCursor
from thread_store.listing.thread_entry import ThreadEntry
from thread_store.store import ThreadStore
from thread_store.testing.check import Check, begin, collector, expect_equal, expect_raises, said

__all__ = ["CHECKS"]

CHECKS: list[Check] = []

_check = collector(CHECKS)


async def _typed(store: ThreadStore, text: str, cwd: str = "/srv", source: object = "cli") -> str:
    async with await store.create_thread(SessionMeta(cwd=cwd, source=source)) as thread:
        thread.record_nowait(tracks.user_message(text))
    return str(thread.thread_id)


def _previews(entries: tuple[ThreadEntry, ...]) -> list[str | None]:
    return [each.preview for each in entries]


@_check
async def _threads_are_listed_newest_first_in_pages(store: ThreadStore) -> None:
    """Each once, though threads are made, written and named between the pages."""
    ids = [await _typed(store, str(number)) for number in range(7)]
    found, cursor = [], None
    while True:
        page = await store.list_threads(limit=2, cursor=cursor)
        found += [each.thread_id for each in page.threads]
        cursor = page.cursor
        if cursor is None:
            break
        async with await store.open_thread(ids[0]) as thread:
            thread.record_nowait(said("more"))
        await _typed(store, "new")
        await store.rename_thread(ids[1], f"name {len(found)}")
    expect_equal(found, ids[::-1], "the threads of all pages")


@_check
async def _entry_tells_what_a_thread_is(store: ThreadStore) -> None:
    """What was typed first, where, how it was started, and whether somebody writes it."""
    thread = await store.create_thread(SessionMeta(cwd="/srv/a", source="exec"))
    thread.record_nowait(tracks.user_message("fix the\nbug"))
    await thread.sync()
    (live,) = (await store.list_threads()).threads
    told = (live.thread_id, live.title, live.cwd, live.source, live.state)
    expect_equal(told, (str(thread.thread_id), "fix the bug", "/srv/a", "exec", "live"), "the entry")
    await thread.aclose()
    (ended,) = (await store.list_threads(live=False)).threads
    expect_equal((ended.state, ended.writer), ("ended", None), "the entry of a thread that was closed")


@_check
async def _filters_hold_together(store: ThreadStore) -> None:
    """By folder, by what it is called, by how it was started."""
    await _typed(store, "one", "/srv/a")
    await _typed(store, "two", "/srv/a/b", "exec")
    await _typed(store, "three", "/srv/ab")
    for options, wanted in (
        ({"cwd": "/srv/a"}, ["one"]),
        ({"under": "/srv/a"}, ["two", "one"]),
        ({"under": "/srv", "source": "cli"}, ["three", "one"]),
        ({"title": "TWO"}, ["two"]),
        ({"archived": True}, []),
    ):
        page = await store.list_threads(**options)
        expect_equal(_previews(page.threads), wanted, f"the threads with {options}")


@_check
async def _order_by_update_follows_the_last_record(store: ThreadStore) -> None:
    """A thread that was gone on with stands first."""
    first = await _typed(store, "first")
    await _typed(store, "second")
    written = now_ms()
    while now_ms() <= written:  # noqa: ASYNC110  # records of one millisecond are equally new
        await asyncio.sleep(0)
    async with await store.open_thread(first) as thread:
        thread.record_nowait(said("more"))
    page = await store.list_threads(sort="updated")
    expect_equal(_previews(page.threads), ["first", "second"], "the threads")


@_check
async def _name_is_the_title(store: ThreadStore) -> None:
    """On one line, the last one counts, and a thread that is open can be named."""
    thread = await begin(store, "x")
    expect_equal(await store.rename_thread(thread.thread_id, " a \n b "), "a b", "the name")
    await store.rename_thread(thread.thread_id, "c")
    (entry,) = (await store.list_threads(title="c")).threads
    expect_equal((entry.name, entry.title), ("c", "c"), "the name and the title")
    await thread.aclose()


@_check
async def _what_can_not_be_is_refused(store: ThreadStore) -> None:
    """A cursor that is none, a thread that there isn't, a name that is blank."""
    thread_id = await _typed(store, "x")
    await expect_raises(InvalidCursor, store.list_threads(cursor="nonsense"), "a text that is no cursor")
    await expect_raises(ThreadNotFound, store.rename_thread(ThreadId.new(), "x"), "naming no thread")
    await expect_raises(ValueError, store.rename_thread(thread_id, " "), "a blank name")
