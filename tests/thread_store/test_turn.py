"""What a turn records beside messages and calls: plans, errors; and the thread its states."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from protocol import SessionMeta
from rollout import read_rollout
from tests.thread_store.folded import calls_in, fold_of, lines_in, own_in
from thread_store.chain.fork_point import ForkPoint
from thread_store.in_memory.store import MemoryThreadStore
from thread_store.local_store import LocalThreadStore
from thread_store.thread import Thread

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def store(tmp_path: Path) -> AsyncIterator[LocalThreadStore]:
    async with LocalThreadStore(tmp_path / "home", collect_git=False) as made:
        yield made


@pytest_asyncio.fixture
async def thread(store: LocalThreadStore) -> AsyncIterator[Thread]:
    made = await store.create_thread(SessionMeta(cwd="/srv"))
    yield made
    await made.aclose()


async def test_plan_is_shown_and_remembered(thread: Thread) -> None:
    """With Codex's keys and no others; the session memory knows what is done."""
    async with thread.turn() as turn:
        turn.plan([("look", "completed"), ("mend", "in_progress")], explanation="as asked")
    await thread.flush()
    [shown] = [each for _, each in lines_in(thread.path) if each.get("type") == "plan_update"]
    assert shown == {
        "type": "plan_update",
        "explanation": "as asked",
        "plan": [{"step": "look", "status": "completed"}, {"step": "mend", "status": "in_progress"}],
    }
    memory = fold_of(thread.path).memory
    assert [(each.step, each.status) for each in memory.todos] == [
        ("look", "completed"),
        ("mend", "in_progress"),
    ]


async def test_error_is_remembered_as_a_failure(thread: Thread) -> None:
    """It is no end of the turn."""
    async with thread.turn() as turn:
        turn.error("the model gave no answer")
    await thread.flush()
    assert [each.text for each in fold_of(thread.path).memory.failures] == ["the model gave no answer"]
    assert lines_in(thread.path)[-1][1]["type"] == "task_complete"


async def test_state_follows_the_one_that_was_recorded_last(store: LocalThreadStore) -> None:
    """Also after the thread was opened anew; on stable storage when the call returns."""
    thread = await store.create_thread(SessionMeta(cwd="/srv"))
    await thread.set_state("working")
    assert thread.health.pending_items == 0
    await thread.set_state("waiting", reason="for the user")
    await thread.aclose()
    async with await store.open_thread(thread.thread_id) as again:
        await again.model_recovery_failed("no answer after 5 tries")
    assert [
        (each.get("from"), each["to"], each.get("reason")) for each in own_in(thread.path, "x_state")
    ] == [
        (None, "working", None),
        ("working", "waiting", "for the user"),
        ("waiting", "model_recovery_failed", "no answer after 5 tries"),
    ]
    memory = fold_of(thread.path).memory
    assert memory.state == "model_recovery_failed"
    assert [each.text for each in memory.failures] == [
        "waiting → model_recovery_failed: no answer after 5 tries"
    ]


async def test_threads_in_memory_have_states_too() -> None:
    """Found in the same way."""
    async with MemoryThreadStore() as store, await store.create_thread(SessionMeta(cwd="/srv")) as thread:
        await thread.set_state("working")
        await thread.set_state("done")
        history = await store.read_thread(thread.thread_id)
    states = [
        record.line.payload_object().get("from")
        for record in history.records
        if record.line is not None and record.line.type == "x_state"
    ]
    assert states == [None, "working"]


@pytest.mark.parametrize("asked_before", [False, True])
async def test_thread_can_be_forked_before_and_behind_each_call(
    store: LocalThreadStore, thread: Thread, asked_before: bool
) -> None:
    """What is known of a call stands before its request, and goes with it."""
    async with thread.turn() as turn:
        turn.user_message("go")
        for call_id in ("c1", "c2"):
            call = turn.tool_call("shell", {}, call_id=call_id)
            if asked_before:
                await call.request()
            async with call:
                call.completed("done")
    await thread.flush()
    lines = [record.line for record in read_rollout(thread.path) if record.line is not None]
    requests = [
        line.ordinal
        for line in lines
        if line.payload_object().get("type") == "function_call" and line.ordinal
    ]
    for count, ordinal in enumerate(requests):
        fork = await store.fork_thread(thread.thread_id, at=ForkPoint.before_ordinal(ordinal))
        await fork.aclose()
        assert [each.verdict.value for each in calls_in(fork.path).values()] == ["completed"] * count
