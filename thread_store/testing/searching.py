"""Checks of searching: what is found, in which order, and what a cancelled caller loses."""

from __future__ import annotations

import asyncio

from protocol import tracks
from protocol.meta import SessionMeta
from thread_store.errors import SearchInvalid
from thread_store.search.search_hit import SearchHit
from thread_store.store import ThreadStore
from thread_store.testing.check import Check, ConformanceError, begin, collector, expect, expect_equal

__all__ = ["CHECKS"]

CHECKS: list[Check] = []

_check = collector(CHECKS)


@_check
async def _search_finds_what_was_flushed(store: ThreadStore) -> None:
    """In any case, the newest thread first, each line once; in open threads and closed ones."""
    async with await begin(store, "The Cancel Scope\nis here", "nothing") as first:
        second = await begin(store, "a cancel scope", "and a CANCEL SCOPE")
        search = store.search("cancel scope")
        hits = [hit async for hit in search]
    await second.aclose()
    expect_equal([hit.thread_id for hit in hits], [second.thread_id] * 2 + [first.thread_id], "threads")
    expect_equal([hit.passage.text for hit in hits][-1], "The Cancel Scope", "the line")
    expect_equal(hits[-1].passage.spans, ((4, 16),), "spans")
    expect_equal((search.report.hits, search.report.finished), (3, True), "the report")


@_check
async def _search_shows_a_fact_once(store: ThreadStore) -> None:
    """A message that is recorded for the model and for the reader is one hit."""
    async with await store.create_thread(SessionMeta(cwd="/work")) as thread:
        thread.record_nowait(tracks.user_message("find this"))
        thread.record_nowait(tracks.agent_message("and this"))
    hits = [hit async for hit in store.search("this")]
    expect_equal(
        [(hit.role, hit.passage.text) for hit in hits],
        [("user", "find this"), ("assistant", "and this")],
        "hits",
    )


@_check
async def _search_is_narrowed_by_all_filters(store: ThreadStore) -> None:
    """A hit passes every filter that is given."""
    one = await begin(store, "needle")
    two = await begin(store, "needle", "needles")
    await one.aclose()
    await two.aclose()

    async def found(**options: object) -> int:
        return len([hit async for hit in store.search("needle", **options)])  # type: ignore[arg-type]

    expect_equal(await found(threads=[two.thread_id]), 2, "hits in one thread")
    expect_equal(await found(threads=[two.thread_id], word=True), 1, "hits as a word")
    expect_equal(await found(roles=["assistant"]), 0, "hits of another role")
    expect_equal(await found(cwd="/work"), 3, "hits in the folder")
    expect_equal(await found(cwd="/else"), 0, "hits in another folder")
    expect_equal(await found(until="2000-01-01"), 0, "hits of another time")


@_check
async def _cancelled_search_step_loses_nothing(store: ThreadStore) -> None:
    """A caller that gives up waiting and asks again gets every hit."""
    async with await begin(store, *(f"needle {number}" for number in range(200))):
        search = store.search("needle")
        hits: list[SearchHit] = []
        while True:
            step = asyncio.ensure_future(anext(search, None))
            await asyncio.sleep(0)
            step.cancel()
            try:
                hit = await step
            except asyncio.CancelledError:
                hit = await anext(search, None)
            if hit is None:
                break
            hits.append(hit)
        texts = [hit.passage.text for hit in hits]
        expect_equal(texts, [f"needle {number}" for number in range(200)], "hits")


@_check
async def _search_that_is_left_early_ends(store: ThreadStore) -> None:
    """Closed before its end it gives nothing more, and the store closes as always."""
    async with await begin(store, *(f"needle {number}" for number in range(500))):
        async with store.search("needle") as search:
            expect((await anext(search)).passage.text == "needle 0", "the first hit is missing")
        expect_equal([hit async for hit in search], [], "hits after the end")
        expect(not search.report.finished, "a search that was left says that it finished")


@_check
async def _search_for_nothing_is_refused(store: ThreadStore) -> None:
    """What can't be looked for raises at once."""
    for text, options in (("", {}), ("(", {"regex": True}), ("x", {"roles": ["nobody"]})):
        try:
            store.search(text, **options)
        except SearchInvalid:
            continue
        raise ConformanceError(f"a search for {text!r} is taken")
