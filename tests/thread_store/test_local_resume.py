"""Resuming threads of a home: real processes that are killed in the middle of a call, and what comes then."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from protocol.errors import (
    ActiveWriter,
    CallNotResolvable,
    NotARollout,
    ResumeRefused,
    RolloutUnreadable,
    ThreadNotFound,
)
from protocol.meta import SessionMeta
from protocol.own import StateItem
from protocol.response_items import ResponseItem
from protocol.tool_safety import DEFAULT_TOOL_SAFETY
from protocol.tool_verdicts import ToolVerdict
from tests.thread_store.histories import Script, turns, uuid, write_thread
from tests.thread_store.processes import Child, child
from tests.thread_store.resumed import call_of
from thread_store.chain.fork_point import ForkPoint
from thread_store.context import checkpoint_scan
from thread_store.home import Home
from thread_store.local_store import LocalThreadStore
from thread_store.resume import local_resume
from thread_store.resume.resume_state import ResumeState, read_resume_state

pytestmark = pytest.mark.asyncio

THREAD = uuid(0xDEAD)

AGENT = """
async def main(home, work, thread_id, effect, effects):
    async with store_of(home) as store:
        thread = await store.create_thread(SessionMeta(cwd=work, id=thread_id))
        async with thread.turn(turn_id="t1") as turn:
            turn.user_message("send it")
            async with turn.tool_call("mail", {"to": "x"}, effect=effect, call_id="c1") as call:
                with open(effects, "a") as file:
                    file.write("sent\\n")
                tell("inside")
                await told()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest_asyncio.fixture
async def store(home: Path) -> AsyncIterator[LocalThreadStore]:
    async with LocalThreadStore(home, collect_git=False) as store:
        yield store


@contextmanager
def agent(home: Path, work: Path, effect: str) -> Iterator[Child]:
    """One that is inside its call."""
    with child(AGENT, home, work, THREAD, effect, work / "effects") as running:
        running.expect("inside")
        yield running


def killed_inside(home: Path, work: Path, effect: str) -> None:
    with agent(home, work, effect) as running:
        running.kill()


def rollout(home: Path) -> Path:
    return Home(home).find_thread(THREAD)


def output_of(state: ResumeState) -> str:
    return bytes(state.items[-1].payload).decode()


# Killed inside a call


@pytest.mark.case("B60")
@pytest.mark.guarantee("G8")
async def test_agent_killed_inside_an_unsafe_call_is_not_resumed_until_somebody_decides(
    home: Path, work: Path, store: LocalThreadStore
) -> None:
    """The refusal changes no byte and leaves the lock free; the decision is on record, and the model is told
    what is known. The side effect happened once."""
    killed_inside(home, work, "unsafe")
    before = rollout(home).read_bytes()
    with pytest.raises(ResumeRefused) as caught:
        await store.resume_thread(THREAD)
    assert caught.value.reasons == ("uncertain_call",)
    assert "--resolve c1" in caught.value.hint
    assert rollout(home).read_bytes() == before
    assert not list((home / "thread-writer-locks").glob(f"{THREAD}*"))

    await store.resolve_call(THREAD, "c1", "happened", by="ann", note="it is in the outbox")
    thread, state = await store.resume_thread(THREAD)
    await thread.aclose()
    assert call_of(state).verdict is ToolVerdict.COMPLETED
    assert "it is in the outbox" in output_of(state)
    assert (state.turn_id, state.refusals) == (None, ())
    assert (work / "effects").read_text() == "sent\n"


@pytest.mark.case("B60")
@pytest.mark.parametrize("effect", ["idempotent", "none"])
async def test_agent_killed_inside_a_harmless_call_is_resumed_at_once(
    home: Path, work: Path, store: LocalThreadStore, effect: str
) -> None:
    """The model is told the truth, and the call may run again as a further attempt."""
    killed_inside(home, work, effect)
    thread, state = await store.resume_thread(THREAD)
    await thread.aclose()
    call = call_of(state)
    assert (call.verdict, call.may_run_again) == (ToolVerdict.UNCERTAIN, True)
    assert "outcome unknown" in output_of(state)
    assert b'"aborted"' not in rollout(home).read_bytes()


@pytest.mark.guarantee("G8")
async def test_further_attempt_takes_the_place_of_the_one_that_was_decided_on(
    home: Path, work: Path, store: LocalThreadStore
) -> None:
    """Killed, decided to try again, run again to its end: nothing runs a third time."""
    killed_inside(home, work, "unsafe")
    call = call_of(await store.resolve_call(THREAD, "c1", "retry", by="ann"))
    assert call.may_run_again
    thread, _ = await store.resume_thread(THREAD)
    async with thread, thread.turn() as turn:
        again = turn.tool_call("mail", {"to": "x"}, call_id="c2", key=call.key, attempt=call.attempt + 1)
        async with again as running:
            running.completed("sent")
    state = await store.load_resume_state(THREAD)
    assert not any(each.may_run_again or each.is_open for each in state.calls)
    assert state.can_resume


async def test_thread_that_an_agent_writes_is_not_taken_from_it(
    home: Path, work: Path, store: LocalThreadStore
) -> None:
    """Looking is allowed, and names it; so is nothing else."""
    with agent(home, work, "none") as running:
        state = await store.load_resume_state(THREAD)
        assert [each.reason for each in state.refusals] == ["live_writer"]
        assert state.refusals[0].details["pid"] == running.pid
        for refused in (
            store.resume_thread(THREAD),
            store.resolve_call(THREAD, "c1", "happened", by="ann"),
        ):
            with pytest.raises(ActiveWriter) as caught:
                await refused
            assert caught.value.holder.pid == running.pid
        with pytest.raises(ThreadNotFound) as missing:
            await store.find_resumable(cwd=work)
        assert "being written" in missing.value.hint


async def test_uncertain_call_that_was_allowed_stays_uncertain(
    home: Path, work: Path, store: LocalThreadStore
) -> None:
    """To go on in spite of it is no decision about it: the next resume is held up again."""
    killed_inside(home, work, "unsafe")
    thread, state = await store.resume_thread(THREAD, allow=["uncertain_call"])
    await thread.aclose()
    assert [each.reason for each in state.waived] == ["uncertain_call"]
    assert call_of(state).verdict is ToolVerdict.UNCERTAIN
    assert "outcome unknown" in output_of(state)
    with pytest.raises(ResumeRefused):
        await store.resume_thread(THREAD)


# Again and again


@pytest.mark.case("B74")
async def test_twenty_resumes_grow_the_file_by_what_was_recorded(
    home: Path, work: Path, store: LocalThreadStore
) -> None:
    """The first one records the recovery; each later one its opening, its end, and the one message."""
    killed_inside(home, work, "none")
    thread, _ = await store.resume_thread(THREAD)
    await thread.aclose()
    size, grown = rollout(home).stat().st_size, []
    for _ in range(20):
        thread, _ = await store.resume_thread(THREAD)
        await thread.aclose()
        assert rollout(home).stat().st_size == size
    for _ in range(20):
        thread, state = await store.resume_thread(THREAD)
        async with thread:
            thread.record_nowait(ResponseItem.message("user", "again"))
        grown.append(rollout(home).stat().st_size - size)
        size += grown[-1]
    assert max(grown) < 800
    assert max(grown) - min(grown) < 20
    assert len(state.items) == 3 + 19


@pytest.mark.case("B65")
@pytest.mark.guarantee("G9")
async def test_state_that_a_resume_returns_is_the_one_that_is_loaded_later(
    home: Path, work: Path, store: LocalThreadStore
) -> None:
    """By this process or another one: it is that behind the recovery."""
    killed_inside(home, work, "idempotent")
    thread, state = await store.resume_thread(THREAD)
    assert read_resume_state(state.path, Home(home)) == state
    await thread.aclose()
    later = await store.load_resume_state(THREAD)
    assert (later.items, later.memory, later.files) == (state.items, state.memory, state.files)
    assert [each.verdict for each in later.calls] == [each.verdict for each in state.calls]


async def test_recovery_is_on_stable_storage_when_the_resume_returns(
    home: Path, work: Path, store: LocalThreadStore
) -> None:
    """Nothing of it waits."""
    killed_inside(home, work, "none")
    thread, _ = await store.resume_thread(THREAD)
    assert thread.health.pending_items == 0
    assert b'"recovered"' in rollout(home).read_bytes()
    await thread.aclose()


# Forks, reverts, and files of Codex


async def test_fork_of_a_killed_thread_has_its_own_recovery(
    home: Path, work: Path, store: LocalThreadStore
) -> None:
    """The source's bytes stay; a decision in the child says nothing of the source."""
    killed_inside(home, work, "unsafe")
    before = rollout(home).read_bytes()
    fork = await store.fork_thread(THREAD)
    await fork.aclose()
    await store.resolve_call(fork.thread_id, "c1", "not_happened", by="ann")
    thread, state = await store.resume_thread(fork.thread_id)
    await thread.aclose()
    assert call_of(state).verdict is ToolVerdict.FAILED
    assert rollout(home).read_bytes() == before
    with pytest.raises(ResumeRefused):
        await store.resume_thread(THREAD)


async def test_thread_taken_back_is_resumed_from_there(store: LocalThreadStore, work: Path) -> None:
    """In its new rollout."""
    async with await store.create_thread(SessionMeta(cwd=os.fspath(work))) as thread:
        for number in (1, 2):
            async with thread.turn() as turn:
                turn.user_message(f"question {number}")
    async with await store.revert_thread(thread.thread_id, before_turn=2):
        pass
    again, state = await store.resume_thread(thread.thread_id)
    async with again, again.turn() as turn:
        turn.user_message("other question")
    assert [item.text for item in state.items] == ["question 1"]
    loaded = await store.load_resume_state(thread.thread_id)
    assert [item.text for item in loaded.items] == ["question 1", "other question"]


def write_codex_thread(home: Path, work: Path, *, name: str, mode: str = "paginated") -> Path:
    """As Codex leaves it when it is killed inside a call: no record of ours."""
    keys: dict[str, Any] = {"ordinal": 0 if mode == "paginated" else None, "cwd": os.fspath(work)}
    script = Script(1 if mode == "paginated" else None)
    script.start("t1")
    script.user("look")
    script.add("turn_context", {"turn_id": "t1", "cwd": os.fspath(work), "model": "m"})
    script.add("response_item", {"type": "function_call", "name": name, "arguments": "{}", "call_id": "c1"})
    return write_thread(Home(home), THREAD, script.bytes, **keys)


@pytest.mark.parametrize("mode", ["paginated", "legacy"])
async def test_thread_that_codex_left_in_a_call_is_recovered(
    home: Path, work: Path, store: LocalThreadStore, mode: str
) -> None:
    """A harmless one at once, in either mode."""
    path = write_codex_thread(home, work, name="read_file", mode=mode)
    begun = path.read_bytes()
    thread, state = await store.resume_thread(THREAD)
    await thread.aclose()
    assert path.read_bytes().startswith(begun)
    assert "outcome unknown" in output_of(state)
    assert path.read_bytes().count(b'"type":"turn_aborted"') == 1
    assert (await store.load_resume_state(THREAD)).can_resume


@pytest.mark.guarantee("G8")
async def test_thread_that_codex_left_in_an_unknown_tool_waits_for_a_decision(
    home: Path, work: Path, store: LocalThreadStore
) -> None:
    """Unknown tools are unsafe."""
    write_codex_thread(home, work, name="deploy")
    with pytest.raises(ResumeRefused):
        await store.resume_thread(THREAD)
    await store.resolve_call(THREAD, "c1", "not_happened", by="ann")
    thread, _ = await store.resume_thread(THREAD)
    await thread.aclose()


async def test_tools_that_the_store_knows_may_run_again(home: Path, work: Path) -> None:
    """An agent framework says what its own tools do."""
    write_codex_thread(home, work, name="deploy")
    known = DEFAULT_TOOL_SAFETY.with_tools({"deploy": "idempotent"})
    async with LocalThreadStore(home, collect_git=False, tool_safety=known) as store:
        thread, state = await store.resume_thread(THREAD)
        await thread.aclose()
        assert call_of(state).may_run_again


@pytest.mark.guarantee("G8")
async def test_torn_tail_of_codex_must_be_allowed_and_is_accepted_once(
    home: Path, work: Path, store: LocalThreadStore
) -> None:
    """It may have been a call; what is cut is kept, and the next resume isn't held up by it."""
    path = write_codex_thread(home, work, name="read_file")
    with path.open("ab") as file:
        file.write(b'{"timestamp":"2026-03-04T05:06:0')
    with pytest.raises(ResumeRefused) as caught:
        await store.resume_thread(THREAD)
    assert caught.value.reasons == ("damaged_range",)
    assert path.read_bytes().endswith(b"05:06:0")
    thread, _ = await store.resume_thread(THREAD, allow=["damaged_range"])
    await thread.aclose()
    assert b"in spite of damaged_range" in path.read_bytes()
    thread, _ = await store.resume_thread(THREAD)
    await thread.aclose()


async def test_what_a_deep_resume_looked_at_need_not_be_looked_at_again(
    home: Path, work: Path, store: LocalThreadStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is recorded once, and speaks for all that is older; also where nothing else is to be recorded."""
    monkeypatch.setattr(checkpoint_scan, "MEMORY_REACH_RECORDS", 5)
    script = Script()
    script.turn(1, calls=["c1"])
    script.compacted("summary")
    for number in range(2, 6):
        script.turn(number)
    path = write_thread(Home(home), THREAD, script.bytes, cwd=os.fspath(work))
    with pytest.raises(ResumeRefused) as caught:
        await store.resume_thread(THREAD)
    assert caught.value.reasons == ("unexamined_range",)
    deep, state = await store.resume_thread(THREAD, deep=True)
    await deep.aclose()
    assert (state.whole, [each.call_id for each in state.calls]) == (True, ["c1"])
    size = path.stat().st_size
    for how in (False, True):
        again, state = await store.resume_thread(THREAD, deep=how)
        await again.aclose()
        assert (state.whole, [each.call_id for each in state.calls]) == (True, ["c1"])
    assert path.stat().st_size == size


async def test_deep_resume_of_a_child_without_its_parent_says_what_it_does_not_know(
    home: Path, work: Path, store: LocalThreadStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing speaks for the parent; what was allowed by name stays allowed behind the recovery."""
    monkeypatch.setattr(checkpoint_scan, "MEMORY_REACH_RECORDS", 5)
    gone = {"thread_id": uuid(1), "end_ordinal_exclusive": 9, "end_byte_offset": 999}
    script = Script(10)
    script.turn(1)
    script.compacted("summary")
    for number in range(2, 6):
        script.turn(number)
    script.start("t9")
    script.call("c9")
    write_thread(Home(home), THREAD, script.bytes, ordinal=9, cwd=os.fspath(work), history_base=gone)
    allow = ["base_missing", "uncertain_call"]
    thread, state = await store.resume_thread(THREAD, deep=True, allow=allow)
    await thread.aclose()
    assert {each.reason.value for each in state.waived} == set(allow)
    assert state.base_problem is not None
    assert (state.whole, state.turn_id) == (False, None)


async def test_recorder_of_the_file_alone_that_wrote_meanwhile_is_noticed(
    home: Path, work: Path, store: LocalThreadStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It knows no locks of a home; the state would be that of before."""
    path = write_codex_thread(home, work, name="read_file")
    real = local_resume.surrounding_refusals

    def and_append(state: ResumeState) -> Any:
        with path.open("ab") as file:
            file.write(b'{"timestamp":"2026-03-04T05:06:09.000Z","type":"event_msg","payload":{}}\n')
        return real(state)

    monkeypatch.setattr(local_resume, "surrounding_refusals", and_append)
    with pytest.raises(ActiveWriter):
        await store.resume_thread(THREAD)
    monkeypatch.undo()
    assert b'"recovered"' not in path.read_bytes()
    thread, _ = await store.resume_thread(THREAD)
    await thread.aclose()


# What can't be resumed


@pytest.mark.case("B56")
async def test_what_is_no_thread_has_an_error_of_its_own(home: Path, store: LocalThreadStore) -> None:
    """An unknown id, a file that is something else, one without a byte."""
    for call in (store.resume_thread(uuid(7)), store.load_resume_state(uuid(7))):
        with pytest.raises(ThreadNotFound):
            await call
    path = write_thread(Home(home), THREAD, b"")
    for content in (b"", b"no rollout\n"):
        path.write_bytes(content)
        for call in (store.resume_thread(THREAD), store.load_resume_state(THREAD)):
            with pytest.raises(NotARollout):
                await call
    path.unlink()
    path.symlink_to(home / "nowhere")
    with pytest.raises((ThreadNotFound, RolloutUnreadable)):
        await store.load_resume_state(THREAD)


async def test_archived_thread_is_looked_at_and_not_resumed(
    home: Path, work: Path, store: LocalThreadStore
) -> None:
    """It can't be allowed either: nothing is appended there."""
    path = write_codex_thread(home, work, name="read_file")
    (home / "archived_sessions").mkdir()
    shutil.move(path, home / "archived_sessions" / path.name)
    state = await store.load_resume_state(THREAD)
    assert [each.reason for each in state.refusals] == ["archived"]
    with pytest.raises(ResumeRefused) as caught:
        await store.resume_thread(THREAD)
    assert caught.value.reasons == ("archived",)


async def test_workspace_is_looked_at(home: Path, work: Path, store: LocalThreadStore) -> None:
    """One that is gone holds a resume up, and can be allowed."""
    write_codex_thread(home, work, name="read_file")
    work.rmdir()
    with pytest.raises(ResumeRefused) as caught:
        await store.resume_thread(THREAD)
    assert caught.value.reasons == ("workspace_missing",)
    thread, state = await store.resume_thread(THREAD, allow=["workspace_missing"])
    await thread.aclose()
    assert [each.reason for each in state.waived] == ["workspace_missing"]


async def test_ended_thread_stays_ended(store: LocalThreadStore, work: Path) -> None:
    """Until an `x_state` says otherwise."""
    async with await store.create_thread(SessionMeta(cwd=os.fspath(work))) as thread:
        thread.record_nowait(StateItem(from_="working", to="done", reason="answered"))
    with pytest.raises(ResumeRefused) as caught:
        await store.resume_thread(thread.thread_id)
    assert caught.value.reasons == ("terminal_state",)
    again, _ = await store.resume_thread(thread.thread_id, allow=["terminal_state"])
    async with again:
        again.record_nowait(StateItem(from_="done", to="working"))
    assert (await store.load_resume_state(thread.thread_id)).can_resume


# Decisions


async def test_decision_on_an_id_of_two_calls_needs_the_turn(
    home: Path, work: Path, store: LocalThreadStore
) -> None:
    """Both are named; with its turn each is decided on alone."""
    script = Script()
    for turn_id in ("t1", "t2"):
        script.start(turn_id)
        script.add(
            "response_item", {"type": "function_call", "name": "mail", "arguments": "{}", "call_id": "c"}
        )
        script.complete(turn_id)
    write_thread(Home(home), THREAD, script.bytes, cwd=os.fspath(work))
    with pytest.raises(CallNotResolvable) as caught:
        await store.resolve_call(THREAD, "c", "happened", by="ann")
    assert set(caught.value.candidates) == {("t1", "c"), ("t2", "c")}
    state = await store.resolve_call(THREAD, "c", "happened", by="ann", turn_id="t2")
    assert [(each.turn_id, each.verdict) for each in state.open_calls] == [("t1", ToolVerdict.UNCERTAIN)]
    state = await store.resolve_call(THREAD, "c", "not_happened", by="ann")
    assert state.open_calls == []


async def test_refused_decision_leaves_every_byte_and_the_lock(
    home: Path, work: Path, store: LocalThreadStore
) -> None:
    """A wrong outcome, and a call that isn't there."""
    path = write_codex_thread(home, work, name="deploy")
    before = path.read_bytes()
    with pytest.raises(ValueError, match="perhaps"):
        await store.resolve_call(THREAD, "c1", "perhaps", by="ann")  # type: ignore[arg-type]
    with pytest.raises(CallNotResolvable) as caught:
        await store.resolve_call(THREAD, "c2", "happened", by="ann")
    assert caught.value.candidates == (("t1", "c1"),)
    assert path.read_bytes() == before
    await (await store.open_thread(THREAD)).aclose()


# The last one


async def test_last_thread_is_no_sub_agent_and_not_archived(
    home: Path, work: Path, store: LocalThreadStore
) -> None:
    """A sub-agent is resumed by its parent."""
    parent = await store.create_thread(SessionMeta(cwd=os.fspath(work)))
    async with parent:
        parent.record_nowait(ResponseItem.message("user", "a"))
        async with await store.create_subagent(parent, nickname="kid") as kid:
            kid.record_nowait(ResponseItem.message("user", "b"))
    assert (await store.find_resumable()).thread_id == parent.thread_id
    path = Home(home).find_thread(parent.thread_id)
    (home / "archived_sessions").mkdir()
    shutil.move(path, home / "archived_sessions" / path.name)
    with pytest.raises(ThreadNotFound):
        await store.find_resumable()


async def test_history_of_a_reverted_thread_is_found_in_its_current_rollout(
    home: Path, work: Path, store: LocalThreadStore
) -> None:
    """Also by `find_resumable`."""
    async with await store.create_thread(SessionMeta(cwd=os.fspath(work))) as thread, thread.turn() as turn:
        turn.user_message("question 1")
    fork = await store.fork_thread(thread.thread_id, at=ForkPoint.turn(0))
    await fork.aclose()
    async with await store.revert_thread(thread.thread_id, before_turn=1) as reverted:
        pass
    path = Home(home).new_rollout_path(uuid(0xE), created=datetime.now() + timedelta(days=1))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")  # of a writer that died as soon as it had made it
    found = await store.find_resumable(cwd=work)
    assert found.thread_id == fork.thread_id
    assert (await store.load_resume_state(thread.thread_id)).path == os.fspath(reverted.path)


async def test_folder_that_a_thread_states_is_never_looked_at(
    store: LocalThreadStore, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may lie on a server that is gone. The folder that is asked for is found by where its link leads."""
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    write_thread(Home(home), uuid(1), turns(1), cwd="/net/gone/away")
    write_thread(Home(home), uuid(2), turns(1), cwd=os.fspath(real))
    looked: list[str] = []
    for name in ("lstat", "stat", "readlink"):

        def look(path: Any, *more: Any, honest: Any = getattr(os, name), **keys: Any) -> Any:
            looked.append(str(path))
            return honest(path, *more, **keys)

        monkeypatch.setattr(os, name, look)
    found = await store.find_resumable(cwd=link)
    monkeypatch.undo()
    assert found.thread_id == uuid(2)
    assert looked
    assert not [each for each in looked if each.startswith("/net")]
    assert (await store.find_resumable(cwd="/net/gone/away/.")).thread_id == uuid(1)
