"""Turns and the end of a thread, where the disk or the lock is in trouble."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from protocol.errors import PendingQueueFull, RecorderClosed
from protocol.items import RolloutItem
from protocol.meta import SessionMeta
from rollout.config import RecorderConfig
from rollout.syscalls import FileCalls
from tests.rollout.faulty import FaultyCalls, Gate, waits_before
from tests.rollout.recorded import eventually, json_lines
from thread_store.local_store import LocalThreadStore
from thread_store.locks import ThreadLocks
from thread_store.thread import Thread

pytestmark = pytest.mark.asyncio

META = SessionMeta(cwd="/srv/demo")
SMALL = RecorderConfig(pending_bytes_max=4096, sync_seconds=3600.0)


@pytest_asyncio.fixture
async def store(home: Path) -> AsyncIterator[LocalThreadStore]:
    async with LocalThreadStore(home, collect_git=False) as store:
        yield store


def events(thread: Thread) -> list[dict[str, Any]]:
    """What a person is shown."""
    return [each["payload"] for each in json_lines(Path(thread.path)) if each["type"] == "event_msg"]


def fill(thread: Thread) -> None:
    """Until the queue takes no more."""
    with pytest.raises(PendingQueueFull):
        while True:
            thread.record_nowait(RolloutItem.raw("x_check", {"pad": "x" * 50}))


async def test_turn_says_what_the_agent_said_last(store: LocalThreadStore) -> None:
    """And every item that a person sees carries the turn it belongs to."""
    async with await store.create_thread(META) as thread:
        for number in (1, 2):
            async with thread.turn(turn_id=f"turn-{number}") as turn:
                turn.user_message(f"question {number}", images=["https://example.org/a.png"])
                turn.agent_reasoning("thinking")
                turn.agent_message("working", phase="commentary")
                turn.agent_message(f"answer {number}")
    found = events(thread)
    ends = [each for each in found if each["type"] == "task_complete"]
    assert [(each["turn_id"], each["last_agent_message"]) for each in ends] == [
        ("turn-1", "answer 1"),
        ("turn-2", "answer 2"),
    ]
    shown = [each for each in found if each["type"] == "item_completed"]
    assert [each["turn_id"] for each in shown] == ["turn-1"] * 4 + ["turn-2"] * 4
    assert {each["thread_id"] for each in shown} == {thread.thread_id}


async def test_turn_ends_though_the_queue_is_full(
    store: LocalThreadStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end waits for room."""
    calls, gate = FaultyCalls(), Gate()
    monkeypatch.setattr("rollout.file_sink.FileCalls", lambda: calls)
    thread = await store.create_thread(META, config=SMALL)
    calls.arm("datasync", waits_before(gate))
    turn = thread.turn()
    await turn.__aenter__()
    fill(thread)
    ending = asyncio.create_task(turn.__aexit__(None, None, None))
    await eventually(gate.reached.is_set)
    assert not ending.done()
    gate.open()
    await ending
    await thread.aclose()
    assert events(thread)[-1]["type"] == "task_complete"


@pytest.mark.parametrize("raised", [ValueError, asyncio.CancelledError])
async def test_error_of_the_body_goes_before_that_of_its_end(
    store: LocalThreadStore, raised: type[BaseException]
) -> None:
    """Where the thread was closed meanwhile: a cancelled task is cancelled, and not failed."""
    thread = await store.create_thread(META)
    with pytest.raises(raised) as caught:
        async with thread.turn():
            await thread.aclose()
            raise raised
    assert "the end of the turn was not recorded" in caught.value.__notes__[0]
    assert events(thread)[-1]["type"] == "task_started"


async def test_turn_of_a_closed_thread_that_raised_nothing_says_so(store: LocalThreadStore) -> None:
    """Its end isn't lost without a word."""
    thread = await store.create_thread(META)
    with pytest.raises(RecorderClosed):
        async with thread.turn():
            await thread.aclose()


async def test_cancelled_turn_on_a_stuck_disk_lets_its_task_go(
    store: LocalThreadStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for room for its end for a while, and not for ever."""
    monkeypatch.setattr("thread_store.turns.turn._END_SECONDS_MAX", 0.05)
    calls, gate = FaultyCalls(), Gate()
    monkeypatch.setattr("rollout.file_sink.FileCalls", lambda: calls)
    thread = await store.create_thread(META, config=SMALL)
    calls.arm("datasync", waits_before(gate), times=None)

    async def work() -> None:
        async with thread.turn():
            fill(thread)
            await asyncio.Event().wait()

    working = asyncio.create_task(work())
    await eventually(lambda: thread.health.pending_bytes > 2000)
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    gate.open()
    await thread.aclose()


async def test_two_tasks_close_one_thread(store: LocalThreadStore) -> None:
    """Both wait for the same end, and get the same receipt."""
    thread = await store.create_thread(META)
    thread.record_nowait(RolloutItem.raw("x_check", {}))
    first, second = await asyncio.gather(thread.aclose(), thread.aclose())
    assert first == second
    assert first.items == 1


async def test_close_does_not_wait_for_a_lock_for_ever(
    store: LocalThreadStore, home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Everything is on stable storage then; the lock is free as soon as it can be had back."""
    monkeypatch.setattr("thread_store.thread.RELEASE_SECONDS_MAX", 0.02)
    thread = await store.create_thread(META)
    thread.record_nowait(RolloutItem.raw("x_check", {}))
    await thread.sync()
    lock = home / "thread-writer-locks" / f"{thread.thread_id}.lock"
    with ThreadLocks(home).coordinated(), caplog.at_level(logging.WARNING, "thread_store"):
        assert (await thread.aclose()).items == 1
        assert lock.exists()
    assert "its lock is kept" in caplog.text
    await eventually(lambda: not lock.exists())


async def test_meta_of_an_opened_thread_is_the_one_on_disk(store: LocalThreadStore) -> None:
    """With what the recorder filled in when it was begun."""
    async with await store.create_thread(SessionMeta(cwd="/srv", agent_nickname="Ada")) as thread:
        thread.record_nowait(RolloutItem.raw("x_check", {}))
    async with await store.open_thread(thread.thread_id) as again:
        assert again.meta == thread.meta
    assert again.meta.id == thread.thread_id
    assert again.meta.timestamp is not None


async def test_thread_is_closed_though_its_writer_died_of_a_bug(
    store: LocalThreadStore, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock is free when `aclose` has raised the bug."""
    thread = await store.create_thread(META)
    thread.record_nowait(RolloutItem.raw("x_check", {}))
    await thread.sync()

    def fail(*arguments: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(FileCalls, "write", fail)
    thread.record_nowait(RolloutItem.raw("x_check", {}))
    with pytest.raises(Exception, match="ZeroDivisionError"):
        await thread.aclose()
    assert not (home / "thread-writer-locks" / f"{thread.thread_id}.lock").exists()
