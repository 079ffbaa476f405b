"""Verifications: begun and ended on record; one whose result nobody knows stays unfinished."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from protocol import SessionMeta
from protocol.errors import RolloutWriteError
from tests.rollout.faulty import FaultyCalls, fails
from tests.thread_store.folded import fold_of, own_in
from thread_store.local_store import LocalThreadStore
from thread_store.thread import Thread

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def thread(tmp_path: Path) -> AsyncIterator[Thread]:
    async with LocalThreadStore(tmp_path / "home", collect_git=False) as store:
        made = await store.create_thread(SessionMeta(cwd="/srv"))
        yield made
        await made.aclose()


def checks(thread: Thread) -> list[tuple[str, str | None]]:
    return [(each["state"], each.get("evidence")) for each in own_in(thread.path, "x_check")]


async def test_check_is_on_stable_storage_before_it_runs_and_when_it_ended(thread: Thread) -> None:
    """With what is looked into, and the calls that it is made of."""
    async with thread.turn(turn_id="t1") as turn:
        async with turn.check("make test", call_ids=["c1"], check_id="k1") as check:
            assert thread.health.pending_items == 0
            assert [each.check_id for each in fold_of(thread.path).checks.unfinished] == ["k1"]
            check.passed("12 passed")
        assert thread.health.pending_items == 0
    started, ended = own_in(thread.path, "x_check")
    assert (started["state"], started["what"], started["call_ids"]) == ("started", "make test", ["c1"])
    assert (ended["state"], ended["evidence"], ended["turn_id"]) == ("passed", "12 passed", "t1")
    assert [each.state for each in fold_of(thread.path).checks.checks] == ["passed"]


@pytest.mark.parametrize(
    ("tell", "end"),
    [
        (lambda check: check.failed("exit 2"), ("failed", "exit 2")),
        (lambda check: check.skipped("no compiler"), ("skipped", "no compiler")),
        (lambda check: None, ("skipped", "its result was not told")),
    ],
    ids=["failed", "skipped", "nothing said"],
)
async def test_check_ends_as_its_body_tells(thread: Thread, tell: Callable[[Any], None], end: Any) -> None:
    """It passed only if somebody said so."""
    async with thread.turn() as turn, turn.check("make test") as check:
        tell(check)
    assert checks(thread)[1] == end


async def test_check_whose_body_raises_has_failed(thread: Thread) -> None:
    """Though it said before that it passed."""
    async with thread.turn() as turn:
        with pytest.raises(ValueError, match="no make"):
            async with turn.check("make test") as check:
                check.passed()
                raise ValueError("no make")
    assert checks(thread)[1] == ("failed", "ValueError: no make")


@pytest.mark.guarantee("G8")
async def test_check_that_is_cancelled_stays_unfinished_until_it_is_done_again(thread: Thread) -> None:
    """Nobody knows what it would have found; done again under its id it is ended."""
    running = asyncio.Event()

    async def work() -> None:
        async with thread.turn() as turn, turn.check("make test", check_id="k1"):
            running.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await running.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await thread.sync()
    assert [each.check_id for each in fold_of(thread.path).checks.unfinished] == ["k1"]
    async with thread.turn() as turn, turn.check("make test", check_id="k1") as check:
        check.passed()
    assert fold_of(thread.path).checks.unfinished == []


async def test_call_with_an_effect_makes_a_check_stale(thread: Thread) -> None:
    """One that only reads doesn't, and neither does one that was declined."""
    async with thread.turn() as turn:
        async with turn.check("make test", check_id="k1") as check:
            check.passed()
        async with turn.tool_call("read", {}, effect="none") as call:
            call.completed("text")
        await turn.tool_call("pay", {}).request()
    await thread.flush()
    assert [each.state for each in fold_of(thread.path).checks.checks] == ["passed"]
    async with thread.turn() as turn, turn.tool_call("shell", {}) as call:
        call.completed("done")
    assert [each.state for each in fold_of(thread.path).checks.checks] == ["stale"]


async def test_check_that_cannot_be_synced_is_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its body doesn't run; should its start reach the file later, so does that it was skipped."""
    calls = FaultyCalls()
    monkeypatch.setattr("rollout.file_sink.FileCalls", lambda: calls)
    async with LocalThreadStore(tmp_path / "other", collect_git=False) as store:
        thread = await store.create_thread(SessionMeta(cwd="/srv"))
        async with thread.turn() as turn:
            await thread.sync()
            calls.arm("datasync", fails(errno.EIO), times=None)
            with pytest.raises(RolloutWriteError):
                async with turn.check("make test"):
                    pytest.fail("the body ran")
            calls.lift()
        await thread.aclose()
    assert [state for state, _ in checks(thread)] == ["started", "skipped"]
