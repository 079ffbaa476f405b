"""Checks of what is done to threads that nobody writes: set aside, taken back, deleted."""

from __future__ import annotations

from protocol.errors import ActiveWriter, NotARollout, ResumeRefused, ThreadNotFound
from protocol.ids import ThreadId
from thread_store.store import ThreadStore
from thread_store.testing.check import (
    MODES,
    Check,
    begin,
    collector,
    expect,
    expect_equal,
    expect_raises,
    said,
    talk,
    texts_of,
    turn_texts,
)

__all__ = ["CHECKS"]

CHECKS: list[Check] = []

_check = collector(CHECKS)


@_check
async def _archived_thread_is_read_and_not_opened(store: ThreadStore) -> None:
    """It is listed and read as before, neither opened nor resumed, and goes on once it was taken back."""
    thread_id = await talk(store, 2)
    for _ in range(2):
        await store.archive_thread(thread_id)
    expect_equal(list(await store.list_ids()), [thread_id], "the ids")
    expect_equal(await texts_of(store, thread_id), turn_texts(2), "the texts")
    await expect_raises(NotARollout, store.open_thread(thread_id), "opening it")
    refused = await expect_raises(ResumeRefused, store.resume_thread(thread_id), "resuming it")
    expect("archived" in refused.reasons, f"resuming it is refused for {refused.reasons}")
    await expect_raises(ThreadNotFound, store.find_resumable(), "looking for something to resume")
    for _ in range(2):
        await store.unarchive_thread(thread_id)
    async with await store.open_thread(thread_id) as thread:
        thread.record_nowait(said("more"))
    expect_equal(await texts_of(store, thread_id), [*turn_texts(2), "more"], "the texts")


@_check
async def _archived_thread_is_listed_and_searched_where_that_is_asked_for(store: ThreadStore) -> None:
    """By default it is neither; deleted, it is gone from both."""
    thread_id = await talk(store, 1)
    await store.archive_thread(thread_id)

    async def found(archived: bool) -> tuple[list[str], list[str]]:
        page = await store.list_threads(archived=archived)
        hits = [hit.thread_id async for hit in store.search(turn_texts(1)[0], archived=archived)]
        return [each.thread_id for each in page.threads], hits

    expect_equal(await found(archived=False), ([], []), "what is found of live threads")
    expect_equal(await found(archived=True), ([thread_id], [thread_id]), "what is found in the archive")
    await store.delete_thread(thread_id)
    expect_equal(await found(archived=True), ([], []), "what is found of a deleted thread")


@_check
async def _live_thread_is_neither_archived_nor_deleted(store: ThreadStore) -> None:
    """The error names who writes it, and nothing has changed."""
    thread = await begin(store, "a")
    for call in (store.archive_thread, store.unarchive_thread, store.delete_thread):
        error = await expect_raises(ActiveWriter, call(thread.thread_id), call.__name__)
        expect(error.holder.pid is not None, "the error names no holder")
    thread.record_nowait(said("b"))
    await thread.aclose()
    expect_equal(await texts_of(store, thread.thread_id), ["a", "b"], "the texts")


@_check
async def _deleted_thread_is_gone(store: ThreadStore) -> None:
    """It is neither listed nor found, its neighbours are, and it can't be deleted again."""
    gone, stays = await talk(store, 1), await talk(store, 2)
    await store.archive_thread(gone)
    await store.delete_thread(gone)
    expect_equal(list(await store.list_ids()), [stays], "the ids")
    for call in (store.delete_thread, store.archive_thread, store.read_thread, store.open_thread):
        await expect_raises(ThreadNotFound, call(gone), call.__name__)
    expect_equal(await texts_of(store, stays), turn_texts(2), "the texts")
    await expect_raises(ThreadNotFound, store.delete_thread(ThreadId.new()), "deleting what never was")


@_check
async def _forks_outlive_their_source(store: ThreadStore) -> None:
    """In either mode a fork keeps its whole history when its source is deleted with `cascade`."""
    for mode in MODES:
        source = await talk(store, 2)
        async with await store.fork_thread(source, mode=mode) as fork:
            fork.record_nowait(said("own"))
        await store.delete_thread(source, cascade=True)
        expect_equal(await texts_of(store, fork.thread_id), [*turn_texts(2), "own"], "the texts")
        async with await store.open_thread(fork.thread_id) as again:
            again.record_nowait(said("more"))
        expect_equal(await texts_of(store, fork.thread_id), [*turn_texts(2), "own", "more"], "the texts")
