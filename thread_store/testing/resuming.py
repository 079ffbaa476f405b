"""Checks of resuming: what was open is told and never run again, what a person decides is on record."""

from __future__ import annotations

import os

from protocol import tracks
from protocol.errors import ActiveWriter, CallNotResolvable, ResumeRefused, ThreadNotFound
from protocol.ids import ThreadId
from protocol.items import RolloutItem
from protocol.meta import SessionMeta
from protocol.own import ApprovalItem, CallItem, CheckItem, StateItem
from protocol.response_items import ResponseItem
from protocol.tool_verdicts import ToolVerdict
from thread_store.store import ThreadStore
from thread_store.testing.check import Check, collector, expect, expect_equal, expect_raises

__all__ = ["CHECKS"]

CHECKS: list[Check] = []

_check = collector(CHECKS)

_TURN = "turn-1"


def _began(call_id: str, state: str | None, effect: str = "unsafe") -> list[RolloutItem]:
    """A call that came so far."""
    request: list[RolloutItem] = tracks.tool_call(call_id=call_id, name="send_mail", arguments={"to": "x"})
    if state is None:
        return request
    return [*request, CallItem(call_id=call_id, turn_id=_TURN, state=state, effect=effect, name="send_mail")]


async def _left(store: ThreadStore, *items: RolloutItem) -> str:
    """A closed thread that left a turn without an end. Returns its id."""
    async with await store.create_thread(SessionMeta(cwd=os.getcwd())) as thread:
        thread.record_nowait([*tracks.turn_started(_TURN), *tracks.user_message("send it"), *items])
    return thread.thread_id


async def _records(store: ThreadStore, thread_id: str) -> int:
    return len((await store.read_thread(thread_id)).records)


async def _refused(store: ThreadStore, thread_id: str, reason: str) -> ResumeRefused:
    error = await expect_raises(
        ResumeRefused, store.resume_thread(thread_id), f"a resume in spite of {reason}"
    )
    expect(reason in error.reasons, f"{reason} is not among {error.reasons}")
    return error


@_check
async def _thread_that_left_nothing_open_is_resumed_as_it_is(store: ThreadStore) -> None:
    """Its history is there, and a resume that goes on to record nothing leaves no trace."""
    async with await store.create_thread(SessionMeta(cwd=os.getcwd())) as thread, thread.turn() as turn:
        turn.user_message("ask")
        turn.agent_message("answer")
    before = await _records(store, thread.thread_id)
    for _ in range(3):
        again, state = await store.resume_thread(thread.thread_id)
        await again.aclose()
        expect_equal([item.text for item in state.items], ["ask", "answer"], "the history")
    expect_equal(await _records(store, thread.thread_id), before, "the number of records")


@_check
async def _unsafe_call_without_an_end_forbids_a_resume(store: ThreadStore) -> None:
    """Nothing is recorded then, and nobody holds the thread."""
    thread_id = await _left(store, *_began("c1", "started"))
    before = await _records(store, thread_id)
    error = await _refused(store, thread_id, "uncertain_call")
    expect_equal([each.details["call_id"] for each in error.refusals], ["c1"], "the calls it names")
    expect_equal(await _records(store, thread_id), before, "the number of records")
    await (await store.open_thread(thread_id)).aclose()


@_check
async def _decision_lets_a_resume_go_on(store: ThreadStore) -> None:
    """It is on record who decided what, and the model is told."""
    thread_id = await _left(store, *_began("c1", "started"))
    state = await store.resolve_call(thread_id, "c1", "happened", by="ann", note="saw it arrive")
    (call,) = state.calls
    expect_equal(call.verdict, ToolVerdict.COMPLETED, "the verdict")
    decision = call.decision
    expect(decision is not None and (decision.by, decision.note) == ("ann", "saw it arrive"), "who and why")
    thread, state = await store.resume_thread(thread_id)
    await thread.aclose()
    expect("saw it arrive" in bytes(state.items[-1].payload).decode(), "the model is not told")
    again = store.resolve_call(thread_id, "c1", "not_happened", by="bob")
    await expect_raises(CallNotResolvable, again, "a decision on a call that isn't uncertain")


@_check
async def _call_that_was_decided_to_be_tried_again_may_run_once_more(store: ThreadStore) -> None:
    """As a further attempt with the same key, which takes its place."""
    thread_id = await _left(store, *_began("c1", "started"))
    (call,) = (await store.resolve_call(thread_id, "c1", "retry", by="ann")).calls
    expect(call.may_run_again and call.key is not None, "it may not run again, or has no key")
    thread, _ = await store.resume_thread(thread_id)
    async with thread.turn() as turn:
        retried = turn.tool_call("send_mail", {"to": "x"}, key=call.key, attempt=call.attempt + 1)
        async with retried as running:
            running.completed("sent")
    await thread.aclose()
    state = await store.load_resume_state(thread_id)
    expect(not any(each.may_run_again for each in state.calls), "it may run a third time")
    expect(state.can_resume, "it can't be resumed")


@_check
async def _call_that_is_not_known_is_not_decided_on(store: ThreadStore) -> None:
    """The error names those that wait for a decision; a thread that there isn't is an error too."""
    thread_id = await _left(store, *_began("c1", "started"))
    no_call = store.resolve_call(thread_id, "c9", "happened", by="ann")
    error = await expect_raises(CallNotResolvable, no_call, "a decision on an unknown call")
    expect_equal(error.candidates, ((_TURN, "c1"),), "the candidates")
    no_thread = store.resolve_call(ThreadId.new(), "c1", "happened", by="ann")
    await expect_raises(ThreadNotFound, no_thread, "a decision in an unknown thread")


@_check
async def _decision_is_taken_while_the_thread_is_open(store: ThreadStore) -> None:
    """By the same store; what was recorded before it counts."""
    thread = await store.create_thread(SessionMeta(cwd=os.getcwd()))
    thread.record_nowait([*tracks.turn_started(_TURN), *_began("c1", "started")])
    state = await store.resolve_call(thread.thread_id, "c1", "not_happened", by="ann")
    expect_equal([call.verdict for call in state.calls], [ToolVerdict.FAILED], "the verdict")
    await thread.aclose()


@_check
async def _call_that_does_no_harm_twice_forbids_nothing(store: ThreadStore) -> None:
    """The model is told that its outcome is unknown, and a second resume has nothing to add."""
    thread_id = await _left(store, *_began("c1", "started", "idempotent"))
    thread, state = await store.resume_thread(thread_id)
    await thread.aclose()
    expect("outcome unknown" in bytes(state.items[-1].payload).decode(), "the model is not told the truth")
    expect_equal(state.turn_id, None, "the turn that is open")
    expect(all(each.may_run_again for each in state.open_calls), "it may not run again")
    before = await _records(store, thread_id)
    thread, again = await store.resume_thread(thread_id)
    await thread.aclose()
    expect_equal(await _records(store, thread_id), before, "the number of records")
    expect_equal(again.items, state.items, "the history")


@_check
async def _call_that_never_began_is_told_as_not_executed(store: ThreadStore) -> None:
    """It is pending until the resume, and over then: the model may ask again."""
    thread_id = await _left(store, *_began("c1", "intended"))
    state = await store.load_resume_state(thread_id)
    expect_equal([call.verdict for call in state.open_calls], [ToolVerdict.PENDING], "the verdict")
    thread, state = await store.resume_thread(thread_id)
    await thread.aclose()
    expect("not executed" in bytes(state.items[-1].payload).decode(), "the model is not told")
    expect_equal(state.open_calls, [], "the open calls")


@_check
async def _question_without_an_answer_is_withdrawn(store: ThreadStore) -> None:
    """So that it is asked again."""
    asked = ApprovalItem(approval_id="a1", call_id="c1", turn_id=_TURN, state="requested")
    thread_id = await _left(store, *_began("c1", "intended"), asked)
    thread, state = await store.resume_thread(thread_id)
    await thread.aclose()
    expect_equal([(each.approval_id, each.state) for each in state.approvals], [("a1", "withdrawn")], "it")


@_check
async def _reason_is_waived_only_by_its_name(store: ThreadStore) -> None:
    """A name that is none, or of what makes writing impossible, is an error of the caller."""
    check = CheckItem(check_id="k1", state="started", what="make test")
    thread_id = await _left(store, StateItem(to="completed"), check)
    error = await _refused(store, thread_id, "terminal_state")
    expect_equal(set(error.reasons), {"terminal_state", "unfinished_check"}, "the reasons")
    only_one = store.resume_thread(thread_id, allow=["terminal_state"])
    await expect_raises(ResumeRefused, only_one, "a resume with one reason of two allowed")
    for name in ("everything", "live_writer"):
        wrong = store.resume_thread(thread_id, allow=[name])
        await expect_raises(ValueError, wrong, f"{name} can't be allowed")
    thread, state = await store.resume_thread(thread_id, allow=error.reasons)
    await thread.aclose()
    expect_equal({each.reason for each in state.waived}, {*error.reasons}, "what was waived")


@_check
async def _thread_that_somebody_writes_is_not_resumed(store: ThreadStore) -> None:
    """Its state can be looked at, and says so."""
    thread = await store.create_thread(SessionMeta(cwd=os.getcwd()))
    thread.record_nowait(ResponseItem.message("user", "a"))
    await thread.flush()
    state = await store.load_resume_state(thread.thread_id)
    expect_equal([each.reason for each in state.refusals], ["live_writer"], "what stands against it")
    await expect_raises(ActiveWriter, store.resume_thread(thread.thread_id), "a resume of a live thread")
    await thread.aclose()


@_check
async def _state_is_the_same_in_the_process_and_after_it(store: ThreadStore) -> None:
    """While the thread is open, once it is closed, and written as JSON."""
    thread = await store.create_thread(SessionMeta(cwd=os.getcwd(), x_task={"prompt": "send it"}))
    thread.record_nowait([*tracks.turn_started(_TURN), *_began("c1", "started", "none")])
    live = await store.load_resume_state(thread.thread_id)
    thread.discard()
    await thread.aclose()
    after = await store.load_resume_state(thread.thread_id)
    expect_equal(after.task, {"prompt": "send it"}, "the task")
    expect_equal(live.calls, after.calls, "the calls")
    expect_equal((live.items, live.memory), (after.items, after.memory), "the history and the memory")
    expect_equal(type(after).from_json(after.to_json()), after, "the state after JSON")


@_check
async def _last_thread_is_the_newest_that_nobody_writes(store: ThreadStore) -> None:
    """Those that were passed over are named; without any left there is none."""
    await expect_raises(ThreadNotFound, store.find_resumable(), "a thread in an empty store")
    older = await _left(store)
    thread = await store.create_thread(SessionMeta(cwd=os.getcwd()))
    thread.record_nowait(ResponseItem.message("user", "a"))
    await thread.flush()
    found = await store.find_resumable(cwd=os.getcwd())
    expect_equal(found.thread_id, older, "the thread")
    expect_equal([each for each, _ in found.passed_over], [thread.thread_id], "what was passed over")
    await thread.aclose()
    expect_equal((await store.find_resumable()).thread_id, thread.thread_id, "the thread")
    await expect_raises(ThreadNotFound, store.find_resumable(cwd="/no/such"), "a thread of another folder")
