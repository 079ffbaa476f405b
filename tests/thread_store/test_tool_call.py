"""Tool calls: on record before they begin, with an end that tells the truth, however they end."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from protocol import DEFAULT_TOOL_SAFETY, CallItem, Effect, SessionMeta, ToolCall, ToolVerdict
from protocol.errors import CallRefused, RecordTooLarge, RolloutWriteError, WriterFenced
from rollout.config import RecorderConfig
from rollout.syscalls import FileCalls
from tests.rollout.faulty import ForgetfulCalls, Gate, errors, fails, waits_before
from tests.rollout.recorded import eventually
from tests.thread_store.folded import calls_in as verdicts
from tests.thread_store.folded import fold_of, lines_in, own_in
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


def calls_in(thread: Thread) -> list[tuple[str, Any]]:
    """State and error of each `x_call`, and the output of each call, in the file's order."""
    found: list[tuple[str, Any]] = []
    for record_type, payload in lines_in(thread.path):
        if record_type == "x_call":
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
            assert calls_in(thread) == [("started", None), ("function_call", '{"cmd":"make test"}')]
            call.completed("all green")
        assert thread.health.pending_items == 0
        assert calls_in(thread)[2:] == [("function_call_output", "all green"), ("completed", None)]


async def test_record_of_a_call_says_what_it_is(thread: Thread) -> None:
    """Its turn, attempt, key, effect, and a hash of the arguments, the same at start and end."""
    async with (
        thread.turn(turn_id="t1") as turn,
        turn.tool_call("mail", '{"to": "x"}', effect=Effect.IDEMPOTENT, key="m-1", attempt=2) as call,
    ):
        call.completed("sent")
    started, ended = own_in(thread.path, "x_call")
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
    ended = [("function_call_output", output), state]
    assert calls_in(thread)[2:] == (ended[::-1] if state[0] == "declined" else ended)


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
    state, output = calls_in(thread)[-2:]
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
@pytest.mark.parametrize("asked_before", [False, True], ids=["at once", "asked for before"])
@pytest.mark.parametrize(
    ("call_name", "number"),
    [("datasync", errno.EIO), ("write", errno.ENOSPC)],
    ids=["broken disk", "full disk"],
)
async def test_body_does_not_run_if_its_request_cannot_be_synced(
    disk: Disk, thread: Thread, asked_before: bool, call_name: str, number: int
) -> None:
    """The sync raises instead. Should the request reach the file later, so does that it never began, which
    stands against no resume."""
    ran = False
    async with thread.turn() as turn:
        await thread.sync()
        call = turn.tool_call("pay", {}, call_id="c1")
        if asked_before:
            await call.request()
        disk.arm(call_name, fails(number), times=None)
        with pytest.raises(RolloutWriteError):
            async with call:
                ran = True
        disk.lift()
    await thread.sync()
    assert not ran
    state, output = calls_in(thread)[-2:]
    assert output[1].startswith("not run: its request could not be put on stable storage")
    assert state == ("declined", output[1])
    found = verdicts(thread.path)["c1"]
    assert (found.verdict, found.blocks_resume, found.has_output) == (ToolVerdict.DECLINED, False, True)


async def test_call_that_a_full_queue_refuses_leaves_nothing(store: LocalThreadStore) -> None:
    """Its body doesn't run, and no reader meets half of it."""
    thread = await store.create_thread(SessionMeta(cwd="/srv"), config=RecorderConfig(record_bytes_max=4096))
    async with thread.turn() as turn:
        with pytest.raises(RecordTooLarge):
            async with turn.tool_call("pay", {"note": "x" * 5000}):
                pytest.fail("the body ran")
    await thread.aclose()
    assert calls_in(thread) == []


@pytest.mark.guarantee("G8")
@pytest.mark.case("B64")
async def test_call_that_is_cancelled_before_its_body_is_declined(disk: Disk, thread: Thread) -> None:
    """While its request is being synced: the body never ran, and the record says so."""
    gate = Gate()
    disk.arm("datasync", waits_before(gate))

    async def work() -> None:
        async with thread.turn() as turn, turn.tool_call("pay", {}, call_id="c1"):
            pytest.fail("the body ran")

    task = asyncio.create_task(work())
    await eventually(gate.reached.is_set)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    gate.open()
    await thread.sync()
    found = verdicts(thread.path)["c1"]
    assert (found.verdict, found.error) == (
        ToolVerdict.DECLINED,
        "not run: interrupted before it began (CancelledError)",
    )
    assert lines_in(thread.path)[-1][1]["type"] == "turn_aborted"


@pytest.mark.guarantee("G4")
async def test_writer_that_was_fenced_runs_no_body(store: LocalThreadStore) -> None:
    """The thread was taken over: a call that begins now is the new writer's affair."""
    thread = await store.create_thread(SessionMeta(cwd="/srv"))
    turn = thread.turn()
    await turn.__aenter__()
    await thread.sync()
    async with await store.take_over_thread(thread.thread_id):
        with pytest.raises(WriterFenced):
            async with turn.tool_call("pay", {}):
                pytest.fail("the body ran")
    thread.discard()


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


async def test_what_happened_stays_told_though_the_disk_was_full_at_the_end(
    disk: Disk, thread: Thread
) -> None:
    """The error says that the tool has run; once the disk works again its result is on record."""
    async with thread.turn() as turn:
        with pytest.raises(RolloutWriteError) as caught:
            async with turn.tool_call("pay", {}, call_id="c1") as call:
                call.completed("paid")
                disk.arm("write", fails(errno.ENOSPC), times=None)
        assert "its tool has run" in caught.value.__notes__[0]
        disk.lift()
    await thread.sync()
    assert calls_in(thread)[2:] == [("function_call_output", "paid"), ("completed", None)]
    assert verdicts(thread.path)["c1"].verdict is ToolVerdict.COMPLETED


async def test_unknown_effect_is_refused(thread: Thread) -> None:
    """Before anything is recorded."""
    turn = thread.turn()
    with pytest.raises(ValueError, match="harmless"):
        turn.tool_call("shell", {}, effect="harmless")
    with pytest.raises(ValueError, match="magic"):
        turn.tool_call("shell", {}, kind="magic")
    with pytest.raises(ValueError, match="mcp__<server>"):
        turn.tool_call("read", {}, kind="mcp")
    assert not Path(thread.path).exists()


# Before it begins


@pytest.mark.case("B60")
async def test_call_that_was_asked_for_and_not_begun_is_pending(thread: Thread) -> None:
    """After a crash it can be offered again; entered, it is uncertain until its end is told."""
    async with thread.turn() as turn:
        call = turn.tool_call("pay", {"amount": 5}, call_id="c1")
        await call.request()
        await thread.sync()
        assert calls_in(thread) == [("intended", None), ("function_call", '{"amount":5}')]
        found = verdicts(thread.path)["c1"]
        assert (found.verdict, found.blocks_resume) == (ToolVerdict.PENDING, False)
        async with call:
            assert calls_in(thread)[2:] == [("started", None)]
            assert verdicts(thread.path)["c1"].verdict is ToolVerdict.UNCERTAIN
            call.completed("paid")
    assert verdicts(thread.path)["c1"].verdict is ToolVerdict.COMPLETED


@pytest.mark.case("B64")
async def test_call_that_never_began_is_declined_when_its_turn_ends(thread: Thread) -> None:
    """Marker and call say the same, and the model gets an output."""
    async with thread.turn() as turn:
        await turn.tool_call("pay", {}, call_id="c1").request()
    await thread.sync()
    found = verdicts(thread.path)["c1"]
    assert (found.verdict, found.has_output) == (ToolVerdict.DECLINED, True)
    assert found.error == "not run: the turn ended before it began"


async def test_call_can_be_given_up(thread: Thread) -> None:
    """With a reason, which is what the model gets."""
    async with thread.turn() as turn:
        call = turn.tool_call("pay", {}, call_id="c1")
        await call.request()
        await call.give_up("not needed any more")
        assert thread.health.pending_items == 0
    assert calls_in(thread)[2:] == [
        ("declined", "not needed any more"),
        ("function_call_output", "not needed any more"),
    ]


async def test_call_is_entered_once(thread: Thread) -> None:
    """A second run is a call of its own."""
    async with thread.turn() as turn:
        call = turn.tool_call("shell", {})
        async with call:
            pass
        with pytest.raises(CallRefused, match="it is ended"):
            async with call:
                pytest.fail("the body ran")


# Together with others


@pytest.mark.case("B61")
async def test_results_of_parallel_calls_are_matched_by_id(thread: Thread) -> None:
    """In whatever order they come."""
    gates = [asyncio.Event() for _ in range(3)]

    async def run(turn: Any, number: int) -> None:
        async with turn.tool_call("ask", {"n": number}, call_id=f"c{number}") as call:
            await gates[number].wait()
            call.completed(f"answer {number}")
        if number:
            gates[number - 1].set()

    async with thread.turn() as turn:
        gates[2].set()
        await asyncio.gather(*(run(turn, number) for number in range(3)))
    outputs = [
        (payload["call_id"], payload["output"])
        for _, payload in lines_in(thread.path)
        if payload.get("type") == "function_call_output"
    ]
    assert outputs == [("c2", "answer 2"), ("c1", "answer 1"), ("c0", "answer 0")]
    assert {call.verdict for call in verdicts(thread.path).values()} == {ToolVerdict.COMPLETED}


@pytest.mark.case("B64")
async def test_cancelled_turn_and_its_calls_tell_the_same(thread: Thread) -> None:
    """What ran is aborted, what ended is completed, what had not begun is declined; then the marker."""
    running = asyncio.Event()

    async def work() -> None:
        async with thread.turn(turn_id="t1") as turn:
            async with turn.tool_call("read", {}, call_id="done") as call:
                call.completed("text")
            await turn.tool_call("pay", {}, call_id="waiting").request()
            async with turn.tool_call("shell", {}, call_id="running"):
                running.set()
                await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await running.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await thread.sync()
    found = verdicts(thread.path)
    assert {call_id: call.verdict.value for call_id, call in found.items()} == {
        "done": "completed",
        "waiting": "declined",
        "running": "uncertain",
    }
    assert found["running"].blocks_resume
    assert lines_in(thread.path)[-1][1]["type"] == "turn_aborted"
    assert fold_of(thread.path).calls.turn_id is None


async def test_second_cancellation_loses_no_end(disk: Disk, thread: Thread) -> None:
    """The end is accepted before anything is waited for."""
    gate, running = Gate(), asyncio.Event()

    async def work() -> None:
        async with thread.turn() as turn, turn.tool_call("shell", {}, call_id="c1"):
            disk.arm("datasync", waits_before(gate))
            running.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await running.wait()
    task.cancel()
    await eventually(gate.reached.is_set)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    gate.open()
    await thread.sync()
    assert [each["state"] for each in own_in(thread.path, "x_call")] == ["started", "aborted"]
    assert lines_in(thread.path)[-1][1]["type"] == "turn_aborted"


@pytest.mark.case("B64")
async def test_cancellation_on_the_heels_of_another_loses_no_end(thread: Thread) -> None:
    """Though it comes as soon as the first one was delivered."""
    running = asyncio.Event()

    async def work() -> None:
        async with thread.turn() as turn, turn.tool_call("shell", {}, call_id="c1"):
            running.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await running.wait()
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
    await asyncio.gather(task, return_exceptions=True)
    await thread.sync()
    assert [each["state"] for each in own_in(thread.path, "x_call")] == ["started", "aborted"]
    assert lines_in(thread.path)[-1][1]["type"] == "turn_aborted"


async def test_keyboard_interrupt_aborts_the_call(thread: Thread) -> None:
    """As a cancellation does: nobody knows how far it came."""
    with pytest.raises(KeyboardInterrupt):
        async with thread.turn() as turn, turn.tool_call("shell", {}, call_id="c1"):
            raise KeyboardInterrupt
    await thread.sync()
    assert own_in(thread.path, "x_call")[-1]["state"] == "aborted"
    assert lines_in(thread.path)[-1][1]["type"] == "turn_aborted"


async def test_result_that_was_told_stands_though_the_body_was_cancelled_then(thread: Thread) -> None:
    """It had happened."""
    with pytest.raises(asyncio.CancelledError):
        async with thread.turn() as turn, turn.tool_call("pay", {}, call_id="c1") as call:
            call.completed("paid")
            raise asyncio.CancelledError
    assert verdicts(thread.path)["c1"].verdict is ToolVerdict.COMPLETED


# Effects


async def test_effect_is_looked_up_where_the_call_declares_none(tmp_path: Path) -> None:
    """What the registry knows is recorded as declared; of what it doesn't nothing is, and that is unsafe."""
    safety = DEFAULT_TOOL_SAFETY.with_tools({"lookup": "none", "put": "idempotent", "mcp__a__get": "none"})
    async with (
        LocalThreadStore(tmp_path / "other", collect_git=False, tool_safety=safety) as store,
        await store.create_thread(SessionMeta(cwd="/srv")) as thread,
        thread.turn() as turn,
    ):
        made = [
            turn.tool_call("lookup", {}),
            turn.tool_call("put", {}, effect="unsafe"),
            turn.tool_call("put", {}),
            turn.tool_call("pay", {}),
            turn.tool_call("get", {}, namespace="mcp__a"),
            turn.tool_call("lookup", {}, kind="shell"),
        ]
        for call in made:
            async with call:
                call.completed("ok")
        found = [each.get("effect") for each in own_in(thread.path, "x_call")[::2]]
    assert found == ["none", "unsafe", "idempotent", None, "none", None]
    assert [call.effect.value for call in made][3:] == ["unsafe", "none", "unsafe"]


# Once more


async def _left_started(thread: Thread, effect: str, **how: Any) -> ToolCall:
    """A call that began and whose end nobody recorded: what a crash leaves."""
    turn = thread.turn()
    await turn.__aenter__()
    await turn.tool_call("put", {"n": 1}, effect=effect, call_id="c1", **how).__aenter__()
    return verdicts(thread.path)["c1"]


@pytest.mark.guarantee("G8")
async def test_unsafe_call_is_not_run_again_without_a_decision(thread: Thread) -> None:
    """The error says why, and what to do."""
    call = await _left_started(thread, "unsafe")
    async with thread.turn() as turn:
        with pytest.raises(CallRefused, match="must not run again") as caught:
            turn.retry(call)
    assert caught.value.call_id == "c1"
    assert "resolve_call" in caught.value.hint


@pytest.mark.guarantee("G8")
@pytest.mark.parametrize("key", [None, "k-1"])
async def test_safe_call_runs_again_as_a_further_attempt_with_its_key(
    thread: Thread, key: str | None
) -> None:
    """The one before is superseded: its outcome doesn't matter any more."""
    call = await _left_started(thread, "idempotent", key=key)
    assert (call.verdict, call.may_run_again) == (ToolVerdict.UNCERTAIN, True)
    async with thread.turn() as turn, turn.retry(call, call_id="c2") as again:
        again.completed("ok")
    states = [(each["call_id"], each["state"], each["attempt"]) for each in own_in(thread.path, "x_call")]
    assert states == [
        ("c1", "started", 1),
        ("c2", "started", 2),
        ("c1", "superseded", 1),
        ("c2", "completed", 2),
    ]
    found = verdicts(thread.path)
    assert (found["c2"].verdict, found["c2"].key) == (ToolVerdict.COMPLETED, key or "c1")
    assert (found["c1"].may_run_again, found["c1"].blocks_resume) == (False, False)
    with pytest.raises(CallRefused):
        thread.turn().retry(found["c1"])


@pytest.mark.guarantee("G8")
async def test_decision_to_retry_is_used_up_by_the_attempt(thread: Thread) -> None:
    """An unsafe call that somebody decided on runs once more; left open, that attempt blocks by itself."""
    await _left_started(thread, "unsafe")
    thread.record_nowait(CallItem(call_id="c1", state="resolved", outcome="retry", by="ada"))
    await thread.sync()
    decided = verdicts(thread.path)["c1"]
    turn = thread.turn()
    await turn.__aenter__()
    await turn.retry(decided, call_id="c2").__aenter__()
    found = verdicts(thread.path)
    assert (found["c1"].may_run_again, found["c1"].blocks_resume) == (False, False)
    assert (found["c2"].may_run_again, found["c2"].blocks_resume) == (False, True)


@pytest.mark.guarantee("G8")
async def test_attempt_that_never_began_takes_no_doubt_away(thread: Thread) -> None:
    """Of the attempt before nothing more is known."""
    await _left_started(thread, "unsafe", key="k-1")
    async with thread.turn() as turn:
        again = turn.tool_call("put", {"n": 1}, call_id="c2", key="k-1", attempt=2)
        await again.request()
        await again.give_up("not now")
    found = verdicts(thread.path)
    assert found["c2"].verdict is ToolVerdict.DECLINED
    assert found["c1"].blocks_resume


async def test_retry_needs_the_whole_arguments_and_the_same(thread: Thread) -> None:
    """What the fold has cut can be given; anything else is another call."""
    turn = thread.turn()
    await turn.__aenter__()
    arguments = {"text": "x" * 5000}
    await turn.tool_call("put", arguments, effect="idempotent", call_id="c1").__aenter__()
    call = verdicts(thread.path)["c1"]
    assert call.arguments_cut
    with pytest.raises(CallRefused, match="not known"):
        turn.retry(call)
    with pytest.raises(CallRefused, match="not the arguments"):
        turn.retry(call, arguments={"text": "y"})
    assert turn.retry(call, arguments=arguments).spec.attempt == 2
