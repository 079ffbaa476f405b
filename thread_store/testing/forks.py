"""Checks of forks and reverts: the whole history, nothing of what came later, and no half of a pair."""

from __future__ import annotations

from protocol.context import Compacted
from protocol.errors import ActiveWriter, ForkPointInvalid
from protocol.meta import SessionMeta
from protocol.response_items import ResponseItem
from thread_store.chain.fork_point import ForkPoint
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
async def _fork_has_the_history_and_neither_sees_the_others(store: ThreadStore) -> None:
    """At the end, in both modes; then source and fork go on apart."""
    for mode in MODES:
        source = await begin(store, "a", "b")
        async with await store.fork_thread(source.thread_id, mode=mode) as child:
            expect(child.thread_id != source.thread_id, "a fork has an id of its own")
            expect_equal(child.meta.forked_from_id, source.thread_id, "forked_from_id")
            source.record_nowait(said("of the source"))
            child.record_nowait(said("of the child"))
            await source.aclose()
        expect_equal(await texts_of(store, source.thread_id), ["a", "b", "of the source"], "the source")
        expect_equal(await texts_of(store, child.thread_id), ["a", "b", "of the child"], "the child")


@_check
async def _fork_exists_before_it_is_written_to(store: ThreadStore) -> None:
    """It has a history already."""
    thread_id = await talk(store, 1)
    for mode in MODES:
        child = await store.fork_thread(thread_id, mode=mode)
        expect_equal(await texts_of(store, child.thread_id), turn_texts(1), "the texts")
        await child.aclose()
        expect(child.thread_id in await store.list_ids(), "the fork is not listed")


@_check
async def _fork_takes_the_first_turns(store: ThreadStore) -> None:
    """So many as are asked for, none at all included."""
    thread_id = await talk(store, 3)
    for mode in MODES:
        for count in range(4):
            child = await store.fork_thread(thread_id, at=ForkPoint.turn(count), mode=mode)
            await child.aclose()
            expect_equal(await texts_of(store, child.thread_id), turn_texts(count), f"{count} turns")


@_check
async def _forks_of_forks_have_the_whole_history(store: ThreadStore) -> None:
    """In any mixture of modes, at the end and before it."""
    thread_id = await talk(store, 1)
    expected = turn_texts(1)
    for depth, mode in enumerate((*MODES, *reversed(MODES))):
        async with await store.fork_thread(thread_id, mode=mode) as child:
            child.record_nowait(said(f"depth {depth}"))
        expected.append(f"depth {depth}")
        thread_id = child.thread_id
        expect_equal(await texts_of(store, thread_id), expected, f"the texts at depth {depth}")
    for mode in MODES:
        child = await store.fork_thread(thread_id, at=ForkPoint.turn(0), mode=mode)
        await child.aclose()
        expect_equal(await texts_of(store, child.thread_id), [], "a fork of no turns")


@_check
async def _fork_of_a_thread_that_never_spoke_begins_empty(store: ThreadStore) -> None:
    """Right after it was created, while it is open."""
    source = await store.create_thread(SessionMeta(cwd="/work"))
    for mode in MODES:
        async with await store.fork_thread(source.thread_id, mode=mode) as child:
            expect_equal(child.meta.forked_from_id, source.thread_id, "forked_from_id")
            expect_equal(child.meta.cwd, "/work", "the folder")
            child.record_nowait(said("a"))
        expect_equal(await texts_of(store, child.thread_id), ["a"], "the texts")
    await source.aclose()


@_check
async def _fork_holds_what_its_source_accepted(store: ThreadStore) -> None:
    """Of a thread that is open in the same store, without a flush before."""
    source = await begin(store)
    source.record_nowait([said(str(number)) for number in range(100)])
    for mode in MODES:
        child = await store.fork_thread(source.thread_id, mode=mode)
        await child.aclose()
        expect_equal(await texts_of(store, child.thread_id), list(map(str, range(100))), "the texts")
    await source.aclose()


@_check
async def _fork_point_is_never_between_a_call_and_its_result(store: ThreadStore) -> None:
    """And a point that the thread doesn't have is refused too; a fork at the end may hold an open call."""
    thread = await begin(store, "before")
    thread.record_nowait(ResponseItem.function_call(name="make", arguments={}, call_id="c1"))
    thread.record_nowait(ResponseItem.function_call_output(call_id="c1", output="done"))
    thread.record_nowait(said("behind"))
    thread.record_nowait(ResponseItem.function_call(name="make", arguments={}, call_id="c2"))
    await thread.aclose()
    lines = [record.line for record in (await store.read_thread(thread.thread_id)).records]
    ordinals = [line.ordinal for line in lines if line is not None and line.ordinal is not None]
    inside = ordinals[-3]
    for point in (ForkPoint.before_ordinal(inside), ForkPoint.before_ordinal(10**9), ForkPoint.turn(99)):
        forking = store.fork_thread(thread.thread_id, at=point)
        await expect_raises(ForkPointInvalid, forking, f"a fork at {point}")
    child = await store.fork_thread(thread.thread_id, at=ForkPoint.before_ordinal(inside - 1))
    await child.aclose()
    expect_equal(await texts_of(store, child.thread_id), ["before"], "the texts before the call")
    child = await store.fork_thread(thread.thread_id)
    await child.aclose()
    expect_equal(await texts_of(store, child.thread_id), ["before", "behind"], "the texts at the end")


@_check
async def _fork_at_a_checkpoint_ends_behind_it(store: ThreadStore) -> None:
    """The newest one by default."""
    thread = await begin(store, "a")
    thread.record_nowait(Compacted(message="summary", replacement_history=[]))
    thread.record_nowait(said("b"))
    await thread.aclose()
    for mode in MODES:
        child = await store.fork_thread(thread.thread_id, at=ForkPoint.at_checkpoint(), mode=mode)
        await child.aclose()
        items = list((await store.read_thread(child.thread_id)).items())
        expect_equal(items[-1].record_type, "compacted", "the last item")


@_check
async def _reverted_thread_keeps_its_id_and_loses_the_turns(store: ThreadStore) -> None:
    """Its history ends before the turn, and it goes on from there; again and again."""
    thread_id = await talk(store, 3)
    async with await store.revert_thread(thread_id, before_turn=3) as thread:
        expect_equal(thread.thread_id, thread_id, "the id")
        thread.record_nowait(said("instead"))
    expect_equal(await texts_of(store, thread_id), [*turn_texts(2), "instead"], "the texts")
    async with await store.revert_thread(thread_id, before_turn=1) as thread:
        thread.record_nowait(said("anew"))
    expect_equal(await texts_of(store, thread_id), ["anew"], "the texts")
    expect_equal(list(await store.list_ids()), [thread_id], "the ids")
    reverting = store.revert_thread(thread_id, before_turn=9)
    await expect_raises(ForkPointInvalid, reverting, "a turn that there isn't")


@_check
async def _revert_needs_the_lock(store: ThreadStore) -> None:
    """A thread isn't taken back under its writer."""
    thread = await begin(store, "a")
    reverting = store.revert_thread(thread.thread_id, before_turn=1)
    await expect_raises(ActiveWriter, reverting, "a revert while it is written")
    await thread.aclose()
    expect_equal(await texts_of(store, thread.thread_id), ["a"], "the texts")


@_check
async def _fork_of_a_reverted_thread_has_what_is_left(store: ThreadStore) -> None:
    """What was taken back is in no fork."""
    thread_id = await talk(store, 2)
    async with await store.revert_thread(thread_id, before_turn=2) as thread:
        thread.record_nowait(said("instead"))
    for mode in MODES:
        child = await store.fork_thread(thread_id, mode=mode)
        await child.aclose()
        expect_equal(await texts_of(store, child.thread_id), [*turn_texts(1), "instead"], "the texts")
