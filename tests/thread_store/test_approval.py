"""Approvals: a call that was asked about runs only if it was allowed, and the answer is on record."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from protocol import ResponseItem, SessionMeta, ToolVerdict
from protocol.errors import ApprovalAnswered, CallRefused
from tests.thread_store.folded import calls_in, fold_of, lines_in, own_in
from thread_store.local_store import LocalThreadStore
from thread_store.thread import Thread

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def thread(tmp_path: Path) -> AsyncIterator[Thread]:
    async with LocalThreadStore(tmp_path / "home", collect_git=False) as store:
        made = await store.create_thread(SessionMeta(cwd="/srv"))
        yield made
        await made.aclose()


def outputs(thread: Thread) -> list[str]:
    """What the model got."""
    return [str(each["output"]) for _, each in lines_in(thread.path) if "output" in each]


async def test_call_waits_for_its_answer_and_names_it(thread: Thread) -> None:
    """Question and answer are on stable storage when they return; until then the call is pending."""
    async with thread.turn(turn_id="t1") as turn:
        call = turn.tool_call("pay", {"amount": 5}, call_id="c1")
        approval = await turn.request_approval(call, what="pay 5 €?", approval_id="a1")
        assert thread.health.pending_items == 0
        assert calls_in(thread.path)["c1"].verdict is ToolVerdict.PENDING
        assert [each.approval_id for each in fold_of(thread.path).approvals.pending] == ["a1"]
        with pytest.raises(CallRefused, match="its approval is requested"):
            async with call:
                pytest.fail("the body ran")
        await approval.approve(by="ada", scope="session", reason="small")
        assert thread.health.pending_items == 0
        async with call:
            call.completed("paid")
    asked, answered = own_in(thread.path, "x_approval")
    assert (asked["state"], asked["reason"], asked["call_id"], asked["turn_id"]) == (
        "requested",
        "pay 5 €?",
        "c1",
        "t1",
    )
    assert (answered["state"], answered["scope"], answered["by"], answered["reason"]) == (
        "approved",
        "session",
        "ada",
        "small",
    )
    assert [each.get("approval_id") for each in own_in(thread.path, "x_call")] == [None, "a1", "a1"]
    assert [each.approval_id for each in fold_of(thread.path).approvals.standing] == ["a1"]


@pytest.mark.parametrize(
    ("answer", "state", "output"),
    [
        (
            lambda approval: approval.decline(by="ada", reason="too much"),
            "declined",
            "it was declined: too much",
        ),
        (lambda approval: approval.expire(), "expired", "nobody allowed it in time"),
    ],
    ids=["declined", "expired"],
)
async def test_call_that_is_not_allowed_ends_as_declined(
    thread: Thread, answer: Any, state: str, output: str
) -> None:
    """The model's output says that it was not run; it can't be entered any more."""
    async with thread.turn() as turn:
        call = turn.tool_call("pay", {}, call_id="c1")
        approval = await turn.request_approval(call)
        await answer(approval)
        assert thread.health.pending_items == 0
        assert (approval.state, approval.is_approved) == (state, False)
        with pytest.raises(CallRefused):
            async with call:
                pytest.fail("the body ran")
    assert outputs(thread) == [f"not run: {output}"]
    found = calls_in(thread.path)["c1"]
    assert (found.verdict, found.blocks_resume) == (ToolVerdict.DECLINED, False)


async def test_withdrawn_question_can_be_asked_again(thread: Thread) -> None:
    """The call waits on."""
    async with thread.turn() as turn:
        call = turn.tool_call("pay", {}, call_id="c1")
        first = await turn.request_approval(call)
        await first.withdraw(reason="the amount changed")
        with pytest.raises(CallRefused, match="withdrawn"):
            async with call:
                pytest.fail("the body ran")
        assert calls_in(thread.path)["c1"].verdict is ToolVerdict.PENDING
        await (await turn.request_approval(call)).approve(by="ada")
        async with call:
            call.completed("paid")
    assert calls_in(thread.path)["c1"].verdict is ToolVerdict.COMPLETED


async def test_question_is_answered_once(thread: Thread) -> None:
    """A second answer is refused and changes nothing, and so is one of an unknown scope."""
    async with thread.turn() as turn:
        approval = await turn.request_approval(turn.tool_call("pay", {}))
        with pytest.raises(ValueError, match="for ever"):
            await approval.approve(by="ada", scope="for ever")
        await approval.approve(by="ada")
        with pytest.raises(ApprovalAnswered, match="approved"):
            await approval.decline(by="bob")
    assert [each["state"] for each in own_in(thread.path, "x_approval")] == ["requested", "approved"]


@pytest.mark.case("B64")
async def test_question_that_is_open_when_its_turn_is_cancelled_is_withdrawn(thread: Thread) -> None:
    """And its call declined: nothing is left that a resume would have to ask about."""
    asked = asyncio.Event()

    async def work() -> None:
        async with thread.turn() as turn:
            await turn.request_approval(turn.tool_call("pay", {}, call_id="c1"))
            asked.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await asked.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await thread.sync()
    assert [each["state"] for each in own_in(thread.path, "x_approval")] == ["requested", "withdrawn"]
    assert calls_in(thread.path)["c1"].verdict is ToolVerdict.DECLINED
    assert outputs(thread) == ["not run: the turn ended before it began"]
    assert fold_of(thread.path).approvals.pending == []


async def test_call_that_the_agent_recorded_itself_is_asked_about_by_its_id(thread: Thread) -> None:
    """Its output is the agent's to record; that it was not run is on record."""
    async with thread.turn() as turn:
        thread.record_nowait(ResponseItem.function_call(name="pay", arguments="{}", call_id="mine"))
        approval = await turn.request_approval("mine")
        await approval.decline(by="ada")
    assert [each["call_id"] for each in own_in(thread.path, "x_approval")] == ["mine", "mine"]
    assert outputs(thread) == []
    found = calls_in(thread.path)["mine"]
    assert (found.verdict, found.error) == (ToolVerdict.DECLINED, "not run: it was declined")
    assert found.output_missing


async def test_call_that_ended_is_not_asked_about(thread: Thread) -> None:
    """And no question is left behind."""
    async with thread.turn() as turn:
        async with turn.tool_call("read", {}, call_id="c1") as call:
            call.completed("text")
        with pytest.raises(CallRefused, match="it has ended"):
            await turn.request_approval(call)
        with pytest.raises(CallRefused, match="it has ended"):
            await turn.request_approval("c1")
    assert own_in(thread.path, "x_approval") == []
