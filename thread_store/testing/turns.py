"""Checks of what an agent records with: calls, approvals, verifications, states, compactions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from protocol.call_state import ToolCall
from protocol.errors import CallRefused, CompactionRefused
from protocol.thread_fold import ThreadFold
from protocol.tool_verdicts import ToolVerdict
from thread_store.context.model_item import ModelItem
from thread_store.store import ThreadStore
from thread_store.testing.check import Check, ConformanceError, begin, collector, expect, expect_equal, said
from thread_store.thread import Thread
from thread_store.turns.compaction_draft import Compaction

__all__ = ["CHECKS"]

CHECKS: list[Check] = []

_check = collector(CHECKS)


async def _fold_of(store: ThreadStore, thread: Thread) -> ThreadFold:
    await thread.flush()
    fold = ThreadFold()
    for record in (await store.read_thread(thread.thread_id)).records:
        if record.line is not None:
            fold.add(record.line, record.offset)
    return fold


async def _calls_of(store: ThreadStore, thread: Thread) -> dict[str, ToolCall]:
    return {call.call_id: call for call in (await _fold_of(store, thread)).calls.calls()}


@_check
async def _call_is_recorded_before_its_body_and_ended_behind_it(store: ThreadStore) -> None:
    """While the body runs the call is known to have started, then how it ended; with its attempt and key."""
    thread = await begin(store, "a")
    async with thread.turn() as turn:
        async with turn.tool_call("pay", {"amount": 5}, call_id="c1", key="k1") as call:
            expect_equal(thread.health.pending_items, 0, "items that are not durable")
            expect_equal((await _calls_of(store, thread))["c1"].verdict, ToolVerdict.UNCERTAIN, "the verdict")
            call.completed("paid")
        expect_equal(thread.health.pending_items, 0, "items that are not durable")
    found = (await _calls_of(store, thread))["c1"]
    expect_equal(
        (found.verdict, found.key, found.has_output), (ToolVerdict.COMPLETED, "k1", True), "the call"
    )
    await thread.aclose()


@_check
async def _call_has_an_end_however_its_body_ends(store: ThreadStore) -> None:
    """Failed with the error, uncertain when it is cancelled, declined when its body never ran."""
    thread = await begin(store, "a")
    running = asyncio.Event()

    async def work() -> None:
        async with thread.turn() as turn:
            await turn.tool_call("pay", {}, call_id="waiting").request()
            try:
                async with turn.tool_call("pay", {}, call_id="broken"):
                    raise ValueError("no money")
            except ValueError:
                pass
            async with turn.tool_call("pay", {}, call_id="running"):
                running.set()
                await asyncio.Event().wait()

    task = asyncio.ensure_future(work())
    await running.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    found = {call_id: call.verdict for call_id, call in (await _calls_of(store, thread)).items()}
    expected = {
        "waiting": ToolVerdict.DECLINED,
        "broken": ToolVerdict.FAILED,
        "running": ToolVerdict.UNCERTAIN,
    }
    expect_equal(found, expected, "the verdicts")
    await thread.aclose()


@_check
async def _call_that_is_asked_about_runs_only_if_it_is_allowed(store: ThreadStore) -> None:
    """Not while the question is open, and not if it was declined; the answers are on record."""
    thread = await begin(store, "a")
    async with thread.turn() as turn:
        for call_id, allowed in (("yes", True), ("no", False)):
            call = turn.tool_call("pay", {}, call_id=call_id)
            approval = await turn.request_approval(call, what="pay?", approval_id=call_id)
            await _expect_refused(call)
            if allowed:
                await approval.approve(by="ada", scope="session")
                async with call:
                    call.completed("paid")
            else:
                await approval.decline(by="ada", reason="too much")
                await _expect_refused(call)
    fold = await _fold_of(store, thread)
    answers = {each.approval_id: (each.state, each.scope, each.by) for each in fold.approvals.approvals}
    expected = {"yes": ("approved", "session", "ada"), "no": ("declined", None, "ada")}
    expect_equal(answers, expected, "the answers")
    found = {call.call_id: call.verdict for call in fold.calls}
    expect_equal(found, {"yes": ToolVerdict.COMPLETED, "no": ToolVerdict.DECLINED}, "the verdicts")
    await thread.aclose()


async def _expect_refused(call: object) -> None:
    try:
        async with call:  # type: ignore[attr-defined]  # a call
            pass
    except CallRefused:
        return
    raise ConformanceError("the body of a call ran that was not allowed")


@_check
async def _check_is_unfinished_until_its_end_is_told(store: ThreadStore) -> None:
    """Begun before its body, passed if that says so; and the thread's states follow each other."""
    thread = await begin(store, "a")
    async with thread.turn() as turn, turn.check("make test", check_id="k1") as check:
        fold = await _fold_of(store, thread)
        expect_equal([each.check_id for each in fold.checks.unfinished], ["k1"], "unfinished checks")
        check.passed("12 passed")
    await thread.set_state("working")
    await thread.set_state("done", reason="it works")
    fold = await _fold_of(store, thread)
    found = [(each.state, each.evidence) for each in fold.checks.checks]
    expect_equal(found, [("passed", "12 passed")], "the checks")
    texts = [each.text for each in fold.memory.transitions]
    expect_equal(texts, ["working", "working → done: it works"], "the states")
    await thread.aclose()


@_check
async def _memory_of_an_open_thread_knows_what_was_accepted(store: ThreadStore) -> None:
    """Nothing before the first record; then the goal and the state, though nobody flushed."""
    thread = await store.create_thread()
    expect_equal((await thread.memory()).render(), "", "the memory of nothing")
    async with thread.turn() as turn:
        turn.user_message("mend the roof")
        await thread.set_state("working")
        memory = await thread.memory()
        expect_equal((memory.goal, memory.state), ("mend the roof", "working"), "the goal and the state")
    await thread.aclose()


@_check
async def _thread_without_a_record_has_nothing_to_sum_up(store: ThreadStore) -> None:
    """No summariser is asked, and no error raised."""
    thread = await store.create_thread()

    async def summarise(items: Sequence[ModelItem]) -> Compaction:
        raise ConformanceError("a summary of nothing was asked for")

    expect(not await thread.compact(summarise), "there is a checkpoint")
    await thread.aclose()


@_check
async def _summary_takes_the_place_of_the_context(store: ThreadStore) -> None:
    """What is recorded meanwhile stays behind it; the next one begins with it, also after a reopening."""
    thread = await begin(store, "a", "b")
    seen: list[list[str]] = []

    async def summarise(items: Sequence[ModelItem]) -> Compaction:
        seen.append([item.text for item in items])
        thread.record_nowait(said("meanwhile"))
        return Compaction("the summary", [said("sum")])

    expect(await thread.compact(summarise), "it was not compacted")
    await thread.aclose()
    thread = await store.open_thread(thread.thread_id)
    expect(await thread.compact(summarise), "it was not compacted")
    expect_equal(seen, [["a", "b"], ["sum", "meanwhile"]], "what was summed up")
    await thread.aclose()


@_check
async def _summariser_that_gives_up_leaves_nothing(store: ThreadStore) -> None:
    """Nor does one whose summary nobody could read."""
    thread = await begin(store, "a")

    async def give_up(items: Sequence[ModelItem]) -> Compaction:
        raise asyncio.CancelledError

    async def talk_nonsense(items: Sequence[ModelItem]) -> Compaction:
        return Compaction("the summary", [{"no": "type"}])

    for summarise, error in ((give_up, asyncio.CancelledError), (talk_nonsense, CompactionRefused)):
        try:
            await thread.compact(summarise)
        except error:
            continue
        raise ConformanceError(f"{error.__name__} was not raised")
    await thread.flush()
    records = (await store.read_thread(thread.thread_id)).records
    types = [record.line.type for record in records if record.line is not None]
    expect("compacted" not in types, "there is a checkpoint")
    await thread.aclose()
