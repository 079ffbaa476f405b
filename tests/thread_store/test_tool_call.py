"""Tool calls: on record before they begin, with an end that tells the truth, however they end."""

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
from rollout import read_rollout
from rollout.syscalls import FileCalls
from tests.rollout.faulty import ForgetfulCalls, errors
from thread_store.local_store import LocalThreadStore
from thread_store.thread import Thread, Turn
from thread_store.tool_call import ToolEffect

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def thread(tmp_path: Path) -> AsyncIterator[Thread]:
    async with LocalThreadStore(tmp_path / "home", collect_git=False) as store:
        made = await store.create_thread(SessionMeta(cwd="/srv"))
        yield made
        await made.aclose()


def calls_in(thread: Thread) -> list[tuple[str, Any]]:
    """State and error of each `x_call`, and the output of each call, in the file's order."""
    found: list[tuple[str, Any]] = []
    for record in read_rollout(thread.path):
        assert record.line is not None
        payload = record.line.payload_object()
        if record.line.type == "x_call":
            found.append((payload["state"], payload.get("error")))
        elif payload.get("type") in ("function_call", "function_call_output"):
            found.append((payload["type"], payload.get("output", payload.get("arguments"))))
    return found


async def test_call_is_on_stable_storage_before_its_body_and_its_end_before_what_follows(
    thread: Thread,
) -> None:
    """So a crash at any moment leaves a call that is known to be open, or known to have ended."""
    async with thread.turn() as turn:
        async with turn.tool_call("shell", {"cmd": "make test"}, effect="unsafe", call_id="c1") as call:
            assert thread.health.pending_items == 0
            assert calls_in(thread) == [("function_call", '{"cmd":"make test"}'), ("started", None)]
            call.completed("all green")
        assert thread.health.pending_items == 0
        assert calls_in(thread)[2:] == [("function_call_output", "all green"), ("completed", None)]


async def test_record_of_a_call_says_what_it_is(thread: Thread) -> None:
    """Its turn, attempt, key, effect, and a hash of the arguments, the same at start and end."""
    async with (
        thread.turn(turn_id="t1") as turn,
        turn.tool_call("mail", '{"to": "x"}', effect=ToolEffect.IDEMPOTENT, key="m-1", attempt=2) as call,
    ):
        call.completed("sent")
    payloads = [
        r.line.payload_object() for r in read_rollout(thread.path) if r.line and r.line.type == "x_call"
    ]
    started, ended = payloads
    for name in ("call_id", "turn_id", "name", "attempt", "key", "effect", "args_sha256", "kind"):
        assert started[name] == ended[name]
    assert (started["turn_id"], started["attempt"], started["key"]) == ("t1", 2, "m-1")
    assert (started["effect"], started["name"], len(started["args_sha256"])) == ("idempotent", "mail", 64)


@pytest.mark.parametrize(
    ("end", "output", "state"),
    [
        (lambda call: call.failed("exit 2"), "exit 2", ("failed", "exit 2")),
        (lambda call: call.failed("exit 2", output="1 failed"), "1 failed", ("failed", "exit 2")),
        (lambda call: call.declined("not today"), "not today", ("declined", "not today")),
        (lambda call: None, "the tool gave no result", ("completed", None)),
    ],
    ids=["failed", "failed with output", "declined", "nothing said"],
)
async def test_end_that_the_body_tells_is_recorded(
    thread: Thread, end: Callable[[Any], None], output: str, state: tuple[str, str | None]
) -> None:
    """With what the model gets."""
    async with thread.turn() as turn, turn.tool_call("shell", {}) as call:
        end(call)
    assert calls_in(thread)[2:] == [("function_call_output", output), state]


@pytest.mark.case("B64")
async def test_body_that_raises_has_failed_and_one_that_is_cancelled_was_aborted(thread: Thread) -> None:
    """The error goes on to the caller; of a cancelled one nobody knows how far it came."""
    async with thread.turn() as turn:
        with pytest.raises(ValueError, match="no such file"):
            async with turn.tool_call("read", {}):
                raise ValueError("no such file")
    text = "ValueError: no such file"
    assert calls_in(thread)[2:] == [("function_call_output", text), ("failed", text)]
    running = asyncio.Event()

    async def endless() -> None:
        async with thread.turn() as turn, turn.tool_call("shell", {}):
            running.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(endless())
    await running.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    output, state = calls_in(thread)[-2:]
    assert "outcome unknown" in output[1]
    assert state == ("aborted", "CancelledError")


class Disk(ForgetfulCalls):
    """Its syncs fail while `broken`."""

    broken = False

    def datasync(self, descriptor: int) -> None:
        if self.broken:
            self.failed("datasync", (descriptor,))
            raise errors(errno.EIO)
        super().datasync(descriptor)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    """Under every rollout that is begun from here on."""
    made = Disk()
    monkeypatch.setattr("rollout.file_sink.FileCalls", lambda: made)
    monkeypatch.setattr("rollout.core.FileCalls", _shared(made))
    return made


def _shared(calls: FileCalls) -> Any:
    class Shared(FileCalls):
        def __new__(cls) -> FileCalls:  # type: ignore[misc]
            return calls

    return Shared


@pytest.mark.guarantee("G8")
async def test_body_does_not_run_if_its_request_cannot_be_synced(disk: Disk, thread: Thread) -> None:
    """The sync raises instead; should the request reach the file later, so does that it never began."""
    ran = False
    async with thread.turn() as turn:
        await thread.sync()
        disk.broken = True
        with pytest.raises(RolloutWriteError):
            async with turn.tool_call("pay", {}):
                ran = True
        disk.broken = False
    await thread.sync()
    assert not ran
    assert calls_in(thread)[1:] == [
        ("started", None),
        ("aborted", "it was never begun: its request could not be synced"),
    ]


async def test_end_that_cannot_be_synced_is_raised(disk: Disk, thread: Thread) -> None:
    """The model must not see a result that a crash could take back; a body's own error goes first."""
    async with thread.turn() as turn:
        with pytest.raises(RolloutWriteError):
            async with turn.tool_call("shell", {}) as call:
                call.completed("done")
                disk.broken = True
        disk.broken = False
        with pytest.raises(ValueError, match="broken") as caught:
            async with turn.tool_call("shell", {}):
                disk.broken = True
                raise ValueError("broken")
        disk.broken = False
    assert "is not on stable storage" in caught.value.__notes__[0]


async def test_unknown_effect_is_refused(thread: Thread) -> None:
    """Before anything is recorded."""
    turn = Turn(thread, "t1", None)
    with pytest.raises(ValueError, match="harmless"):
        turn.tool_call("shell", {}, effect="harmless")
