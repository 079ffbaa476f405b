"""The state that a thread is resumed from: what is known at its end, from the bytes alone."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.codec import encode_item
from protocol.errors import NotARollout, ResumeRefused, RolloutUnreadable, ThreadNotFound
from protocol.session_memory import SessionMemory
from protocol.tool_verdicts import ToolVerdict
from tests.thread_store.histories import STAMP, Script, base_of, dump, line, turns, uuid, write_thread
from tests.thread_store.resumed import (
    THREAD,
    TURN,
    call_of,
    next_ordinal,
    own_call,
    random_rollout,
    state_of,
    state_of_file,
    write,
)
from thread_store.chain.fork_point import ForkPoint
from thread_store.chain.lineage import Lineage, Place
from thread_store.context import checkpoint_scan
from thread_store.folding import thread_folding
from thread_store.folding.thread_folding import fold_lineage, line_hash
from thread_store.forks.fork import make_fork
from thread_store.forks.revert import make_revert
from thread_store.home import Home
from thread_store.resume.resume_refusals import RefusalReason
from thread_store.resume.resume_state import ResumeState, read_resume_state


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def reasons(state: ResumeState) -> list[str]:
    return [each.reason.value for each in state.refusals]


def texts(state: ResumeState) -> list[str]:
    return [item.text for item in state.items if item.kind == "message"]


def memory_line(path: Path, home: Home, **changes: Any) -> bytes:
    """The `x_memory` that a recorder would put behind what is there."""
    with Lineage.resolve(path, home) as lineage:
        folded = fold_lineage(lineage, deep=True)
        item = folded.fold.snapshot(folded.upto.offset)
        with lineage.open(lineage.end.segment) as file:
            item.last_line = line_hash(file.last_line(folded.upto.offset))
    return encode_item(msgspec.structs.replace(item, **changes), timestamp=STAMP)


def append(path: Path, *lines: bytes) -> None:
    with path.open("ab") as file:
        file.writelines(lines)


# What became of each call: the table of FORMAT.md, from real files


def begin(script: Script, name: str = "send_mail") -> None:
    script.start(TURN)
    script.user("send it")
    script.add("response_item", {"type": "function_call", "name": name, "arguments": "{}", "call_id": "c1"})


U, C, F, D, P = (
    ToolVerdict.UNCERTAIN,
    ToolVerdict.COMPLETED,
    ToolVerdict.FAILED,
    ToolVerdict.DECLINED,
    ToolVerdict.PENDING,
)


@pytest.mark.case("B60")
@pytest.mark.guarantee("G8")
@pytest.mark.parametrize(
    ("own", "output", "verdict", "blocks", "again"),
    [
        ([], False, U, True, False),
        (["intended"], False, P, False, False),
        (["started"], False, U, True, False),
        (["started:idempotent"], False, U, False, True),
        (["started:none"], False, U, False, True),
        (["started:odd"], False, U, True, False),
        (["started", "completed"], False, C, False, False),
        (["started", "failed"], False, F, False, False),
        (["started", "declined"], False, D, False, False),
        (["started", "aborted"], True, U, True, False),
        (["started", "unknown"], True, U, True, False),
        (["started:none", "unknown"], True, U, False, True),
        ([], True, C, False, False),
        (["intended"], True, C, False, False),
        (["started"], True, C, False, False),
        (["started", "resolved:happened"], False, C, False, False),
        (["started", "resolved:not_happened"], False, F, False, False),
        (["started", "resolved:retry"], False, P, False, True),
        (["started", "of_the_future"], False, U, True, False),
    ],
    ids=str,
)
def test_each_row_of_the_table_is_what_a_resume_goes_by(
    home: Home, own: list[str], output: bool, verdict: ToolVerdict, blocks: bool, again: bool
) -> None:
    """What own records and Codex's output say of an unsafe call decides on its verdict, on whether it
    forbids the resume, and on whether it may run again."""
    script = Script()
    begin(script)
    for each in own:
        state, _, detail = each.partition(":")
        keys = {"effect": detail or "unsafe"} if state == "started" else {"outcome": detail or None}
        own_call(script, "c1", state, **keys)
    if output:
        script.output("c1")
    state = state_of(script, home)
    call = call_of(state)
    assert (call.verdict, call.blocks_resume, call.may_run_again) == (verdict, blocks, again)
    assert ("uncertain_call" in reasons(state)) is blocks


@pytest.mark.case("B60")
@pytest.mark.parametrize(
    ("name", "blocks"), [("read_file", False), ("view_image", False), ("shell", True), ("of_nobody", True)]
)
def test_call_of_codex_is_judged_by_the_registry_of_tools(home: Home, name: str, blocks: bool) -> None:
    """Without own records only tools that are known to be harmless may run again."""
    script = Script()
    begin(script, name)
    state = state_of(script, home)
    assert state.can_resume is not blocks
    assert call_of(state).may_run_again is not blocks


def test_thread_that_codex_ended_well_can_be_resumed(home: Home) -> None:
    """Nothing of ours is in it, and nothing stands against it."""
    script = Script()
    begin(script)
    script.output("c1")
    script.response("assistant", "sent")
    script.complete(TURN)
    state = state_of(script, home)
    assert state.can_resume
    assert state.turn_id is None
    assert [item.kind for item in state.items] == [
        "message",
        "function_call",
        "function_call_output",
        "message",
    ]


@pytest.mark.case("B64")
def test_cancelled_turn_leaves_a_call_that_is_aborted_and_not_completed(home: Home) -> None:
    """The marker of the turn and the state of its call agree: nobody knows how far it came."""
    script = Script()
    begin(script)
    own_call(script, "c1", "started", effect="unsafe")
    script.add(
        "response_item",
        {"type": "function_call_output", "call_id": "c1", "output": "outcome unknown: interrupted"},
    )
    own_call(script, "c1", "aborted", effect="unsafe", error="CancelledError")
    script.event("turn_aborted", turn_id=TURN, reason="interrupted")
    state = state_of(script, home)
    assert state.turn_id is None
    assert call_of(state).verdict is ToolVerdict.UNCERTAIN
    assert reasons(state) == ["uncertain_call"]


def test_call_before_a_compaction_and_a_roll_back_still_counts(home: Home) -> None:
    """What started did happen, whatever the model sees of it."""
    script = Script()
    begin(script)
    own_call(script, "c1", "started", effect="unsafe")
    script.event("thread_rolled_back", num_turns=1)
    script.compacted("summary")
    state = state_of(script, home)
    assert state.items == []
    assert reasons(state) == ["uncertain_call"]


# The context


@pytest.mark.case("B48")
def test_checkpoint_inside_a_rolled_back_turn_does_not_count(home: Home) -> None:
    """The state begins with the one before it."""
    script = Script()
    script.turn(1)
    script.compacted("first")
    script.start("t2")
    script.user("question 2")
    script.compacted("second")
    script.event("thread_rolled_back", num_turns=1)
    path = write(script, home)
    state = state_of_file(path, home)
    assert state.checkpoint is not None
    assert path.read_bytes()[state.checkpoint.offset :].startswith(script.lines[-6 - 1][:40])
    assert b'"first"' in path.read_bytes()[state.checkpoint.offset :].splitlines()[0]


@pytest.mark.case("B49")
@pytest.mark.parametrize("damage", ["torn", "invalid"])
def test_damaged_checkpoint_is_passed_over_and_named(home: Home, damage: str) -> None:
    """The one before it has to do, and the state says so."""
    script = Script()
    script.turn(1)
    script.compacted("first")
    script.turn(2)
    bad = script.compacted("second") if damage == "torn" else script.add("compacted", {"message": 7})
    if damage == "torn":
        script.lines[-1] = bad[:-10] + b"\n"
    script.turn(3)
    state = state_of(script, home)
    assert texts(state) == ["question 2", "answer 2", "question 3", "answer 3"]
    assert len(state.passed_over) == 1
    assert ("damaged_range" in reasons(state)) is (damage == "torn")
    assert "can't be read" in state.explain()


@pytest.mark.case("B54")
def test_what_stands_before_the_checkpoint_is_still_known(home: Home) -> None:
    """Settings, instructions, usage, files, sub-agents, the goal and an open call: from the `x_memory`
    behind it; nothing before is read."""
    script = Script()
    begin(script)
    own_call(script, "c1", "started", effect="unsafe")
    script.add("turn_context", {"turn_id": TURN, "model": "m1", "cwd": "/srv"})
    script.event("token_count", info={"total_token_usage": {"total_tokens": 7}})
    script.add("x_files", {"path": "a.py", "size": 3})
    agent = {"agent_thread_id": "kid", "kind": "started", "agent_path": "/lead/kid"}
    script.add("event_msg", {"type": "sub_agent_activity", **agent})
    script.compacted("summary")
    path = write(script, home, base_instructions={"text": "be brief"}, x_task={"prompt": "mail"})
    append(
        path,
        memory_line(path, home),
        line("event_msg", {"type": "warning", "message": "w"}, next_ordinal(path)),
    )
    state = state_of_file(path, home)
    assert state.checkpoint is not None
    assert state.examined_from == Place(0, 0)
    assert state.whole
    assert state.settings["model"] == "m1"
    assert state.base_instructions == {"text": "be brief"}
    assert state.usage is not None
    assert state.usage.total == {"total_tokens": 7}
    assert state.files == {"a.py": {"size": 3}}
    assert state.agents["kid"]["kind"] == "started"
    assert state.memory.goal == "send it"
    assert state.task == {"prompt": "mail"}
    assert reasons(state) == ["uncertain_call"]


def test_plan_and_state_are_known(home: Home) -> None:
    """The steps of the newest plan, and where the newest `x_state` went."""
    script = Script()
    script.event("plan_update", plan=[{"step": "a", "status": "completed"}])
    script.add("x_state", {"from": "idle", "to": "working"})
    state = state_of(script, home)
    assert [(each.step, each.status) for each in state.todos] == [("a", "completed")]
    assert state.state == "working"


# What stands against it


@pytest.mark.parametrize("to", ["completed", "failed", "cancelled", "terminated"])
def test_thread_that_ended_for_good_is_not_resumed_until_it_says_otherwise(home: Home, to: str) -> None:
    """The newest `x_state` counts."""
    script = Script()
    script.add("x_state", {"from": "working", "to": to})
    assert reasons(state_of(script, home)) == ["terminal_state"]
    script.add("x_state", {"from": to, "to": "working"})
    assert reasons(state_of(script, home)) == []


def test_check_that_was_begun_and_not_ended_forbids_a_resume(home: Home) -> None:
    """Until a record says how it ended."""
    script = Script()
    script.add("x_check", {"check_id": "k1", "state": "started", "what": "make test"})
    state = state_of(script, home)
    assert reasons(state) == ["unfinished_check"]
    assert state.refusals[0].details["check_id"] == "k1"
    script.add("x_check", {"check_id": "k1", "state": "failed"})
    assert reasons(state_of(script, home)) == []


@pytest.mark.guarantee("G8")
@pytest.mark.parametrize("damage", ["line", "gap", "destroyed"])
def test_range_that_may_have_hidden_a_call_forbids_a_resume(home: Home, damage: str) -> None:
    """Reading goes on all the same; somebody who went on knowing of it has accepted it."""
    script = Script()
    script.turn(1)
    if damage == "line":
        script.lines[-2] = b"\xff" * 40 + b"\n"
    elif damage == "gap":
        script.next_ordinal = (script.next_ordinal or 0) + 3
        script.user("more")
    else:
        script.add("x_gap", {"bytes": 7})
    state = state_of(script, home)
    assert set(reasons(state)) == {"damaged_range"}
    assert "question 1" in texts(state)
    script.add("x_writer", {"event": "recovered", "epoch": 2})
    assert reasons(state_of(script, home)) == []


@pytest.mark.guarantee("G8")
def test_torn_tail_forbids_a_resume_unless_a_writer_of_ours_left_it(home: Home) -> None:
    """Such a writer syncs `started` before the side effect begins: what it never finished never ran."""
    script = Script()
    script.turn(1)
    path = write(script, home)
    append(path, b'{"timestamp":"2026-03')
    assert reasons(state_of_file(path, home)) == ["damaged_range"]
    ours = Script()
    ours.add("x_writer", {"event": "opened", "epoch": 1})
    ours.turn(1)
    path = write(ours, home)
    append(path, b'{"timestamp":"2026-03')
    assert reasons(state_of_file(path, home)) == []


def test_valid_last_line_without_its_newline_counts(home: Home) -> None:
    """As it will once the thread is opened: its newline is put there."""
    script = Script()
    begin(script)
    output = script.output("c1")
    path = write(script, home)
    path.write_bytes(path.read_bytes()[:-1])
    state = state_of_file(path, home)
    assert path.read_bytes().endswith(output[:-1])
    assert call_of(state).verdict is ToolVerdict.COMPLETED
    assert state.items[-1].kind == "function_call_output"
    assert state.can_resume


def test_what_was_not_looked_at_forbids_a_resume_and_deep_looks_at_it(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint without an `x_memory` within reach: an older call is not known."""
    monkeypatch.setattr(checkpoint_scan, "MEMORY_REACH_RECORDS", 5)
    script = Script()
    begin(script)
    script.compacted("summary")
    for number in range(2, 5):
        script.turn(number)
    path = write(script, home)
    state = state_of_file(path, home)
    assert (reasons(state), state.whole) == (["unexamined_range"], False)
    assert state.refusals[0].details["before"] == state.examined_from.offset
    assert "--deep" in state.refusals[0].hint
    deep = state_of_file(path, home, deep=True)
    assert (reasons(deep), deep.whole) == (["uncertain_call"], True)
    assert texts(deep) == texts(state)


def test_memory_that_does_not_fit_its_lines_is_no_memory(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it says of older lines isn't believed: they count as not looked at."""
    monkeypatch.setattr(checkpoint_scan, "MEMORY_REACH_RECORDS", 5)
    script = Script()
    begin(script)
    script.compacted("summary")
    path = write(script, home)
    monkeypatch.setattr(thread_folding, "MEMORY_REACH_RECORDS", 5)
    append(path, memory_line(path, home, last_line="0" * 16))
    assert reasons(state_of_file(path, home)) == ["unexamined_range"]


def test_memory_in_a_rolled_back_turn_speaks_for_what_is_older(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The context can't begin there, but a fold goes by every line."""
    monkeypatch.setattr(checkpoint_scan, "MEMORY_REACH_RECORDS", 5)
    script = Script()
    begin(script)
    script.compacted("summary")
    script.turn(2)
    path = write(script, home)
    append(path, memory_line(path, home))
    begun = len(script.lines)
    script.event("thread_rolled_back", num_turns=1)
    script.turn(3)
    append(path, *script.lines[begun:])
    state = state_of_file(path, home)
    assert (reasons(state), state.whole) == (["uncertain_call"], True)
    assert texts(state) == ["question 3", "answer 3"]


@pytest.mark.case("B55")
def test_child_whose_parent_is_gone_still_loads_and_says_so(home: Home) -> None:
    """Its own part is there; going on with it must be allowed by name."""
    parent = write_thread(home, uuid(1), turns(2))
    script = Script(13)
    size = parent.stat().st_size
    ordinal = next_ordinal(parent)
    script.next_ordinal = ordinal + 1
    script.turn(7)
    base = base_of(parent, uuid(1), size, ordinal)
    child = write_thread(home, THREAD, script.bytes, ordinal=ordinal, history_base=base)
    assert texts(state_of_file(child, home))[-2:] == ["question 7", "answer 7"]
    assert len(state_of_file(child, home).rollout_ids) == 2
    parent.unlink()
    state = state_of_file(child, home)
    assert texts(state) == ["question 7", "answer 7"]
    assert reasons(state) == ["base_missing"]
    assert state.base_problem is not None
    assert state.base_problem.code == "missing"
    assert state.allowing(["base_missing"]).can_resume
    assert uuid(1) in state.explain()


@pytest.mark.case("B55")
def test_child_with_a_memory_of_its_own_needs_no_parent(home: Home) -> None:
    """It tells what was in the parent."""
    parent = write_thread(home, uuid(1), turns(2))
    ordinal = next_ordinal(parent)
    script = Script(ordinal + 1)
    script.turn(7)
    script.compacted("summary")
    base = base_of(parent, uuid(1), parent.stat().st_size, ordinal)
    child = write_thread(home, THREAD, script.bytes, ordinal=ordinal, history_base=base)
    append(child, memory_line(child, home))
    parent.unlink()
    state = state_of_file(child, home)
    assert state.can_resume
    assert [call.call_id for call in state.calls] == ["c1", "c2"]


# Forks and reverts


@pytest.mark.parametrize("mode", ["copy", "reference"])
def test_fork_has_the_state_of_its_source(home: Home, mode: Any) -> None:
    """An open call is as uncertain in the child."""
    script = Script()
    begin(script)
    own_call(script, "c1", "started", effect="unsafe")
    source = write(script, home)
    made = make_fork(source, home.new_rollout_path(uuid(9)), thread_id=uuid(9), home=home, mode=mode)
    child, parent = state_of_file(Path(made.path), home), state_of_file(source, home)
    assert child.thread_id == uuid(9)
    assert reasons(child) == reasons(parent) == ["uncertain_call"]
    assert texts(child) == texts(parent)
    assert child.memory.goal == parent.memory.goal


def test_revert_goes_back_with_the_state(home: Home) -> None:
    """What was recorded behind the point is no part of the history any more."""
    script = Script()
    script.turn(1)
    script.start("t2")
    script.user("question 2")
    script.call("c9")
    path = write(script, home)
    made = make_revert(path, home=home, point=ForkPoint.before_turn(2))
    state = state_of_file(Path(made.path), home)
    assert (state.thread_id, len(state.rollout_ids)) == (THREAD, 2)
    assert texts(state) == ["question 1", "answer 1"]
    assert state.can_resume


# The same log, the same state


def plain(state: ResumeState) -> Any:
    """Everything but how far it was looked at: that differs where a snapshot spoke for the rest."""
    return msgspec.structs.replace(state, path="", examined_from=Place(0, 0))


@pytest.mark.guarantee("G8", "G9")
@pytest.mark.case("B65")
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_state_from_a_snapshot_is_the_state_from_the_start(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    """Wherever the `x_memory` stands. And no prefix of a history lets an unsafe call run again that
    nobody decided on."""
    home = Home(tmp_path_factory.mktemp("home"))
    path, lines = random_rollout(seed, home)
    begun = path.read_bytes()[: -sum(map(len, lines))]
    for count in range(len(lines) + 1):
        path.write_bytes(begun + b"".join(lines[:count]))
        snapshot = memory_line(path, home)
        expected = read_resume_state(path, home)
        for call in expected.calls:
            decided = call.decision is not None and call.decision.outcome == "retry"
            assert call.effect != "unsafe" or not call.may_run_again or decided
        append(path, snapshot)
        assert plain(read_resume_state(path, home)) == plain(expected)


@pytest.mark.guarantee("G9")
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_state_is_read_back_from_json_as_it_was(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    """One object, whatever was recorded."""
    home = Home(tmp_path_factory.mktemp("home"))
    path, _ = random_rollout(seed, home)
    state = read_resume_state(path, home)
    data = state.to_json()
    assert isinstance(json.loads(data), dict)
    assert ResumeState.from_json(data) == state
    assert isinstance(ResumeState.from_json(data).memory, SessionMemory)


def test_json_keeps_the_bytes_of_a_payload(home: Home) -> None:
    """Numbers keep their text, spaces stay."""
    script = Script()
    payload = b'{"type":"message", "role":"user","content":[],"x":1.0e+2}'
    script.lines.append(
        b'{"timestamp":"%s","ordinal":1,"type":"response_item","payload":%b}\n' % (STAMP.encode(), payload)
    )
    state = ResumeState.from_json(state_of(script, home).to_json())
    assert bytes(state.items[0].payload) == payload


def test_json_of_something_else_is_refused() -> None:
    """By msgspec's own error."""
    with pytest.raises(msgspec.ValidationError):
        ResumeState.from_json(b'{"thread_id":"x"}')


# Handing it over


class Host:
    """Notes what it is given, in order."""

    def __init__(self) -> None:
        self.given: dict[str, Any] = {}

    def restore_task(self, task: Any) -> None:
        self.given["task"] = task

    def restore_history(self, view: Any, checkpoint: Any) -> None:
        self.given["history"] = ([item.kind for item in view.items], checkpoint)

    def restore_calls(self, calls: Any) -> None:
        self.given["calls"] = [each.verdict for each in calls]

    def restore_todos(self, todos: Any) -> None:
        self.given["todos"] = [each.step for each in todos]

    def restore_files(self, files: Any) -> None:
        self.given["files"] = files

    def restore_memory(self, memory: Any) -> None:
        self.given["memory"] = memory.render()

    def restore_agents(self, agents: Any) -> None:
        self.given["agents"] = agents


def test_host_is_given_every_part_once(home: Home) -> None:
    """In the order of the protocol; the history is one that a model takes."""
    script = Script()
    begin(script, "read_file")
    script.event("plan_update", plan=[{"step": "a", "status": "pending"}])
    script.add("x_files", {"path": "a.py", "size": 3})
    host = Host()
    state_of(script, home, x_task={"prompt": "p"}).apply_to(host)
    assert list(host.given) == ["task", "history", "calls", "todos", "files", "memory", "agents"]
    assert host.given["task"] == {"prompt": "p"}
    assert host.given["history"] == (["message", "function_call", "function_call_output"], None)
    assert host.given["calls"] == [ToolVerdict.UNCERTAIN]
    assert host.given["todos"] == ["a"]
    assert host.given["files"] == {"a.py": {"size": 3}}
    assert "send it" in host.given["memory"]


@pytest.mark.guarantee("G8")
def test_host_is_given_nothing_while_something_stands_against_it(home: Home) -> None:
    """The error carries each reason; only all of them, by name, let it go on."""
    script = Script()
    begin(script)
    script.add("x_gap", {"bytes": 7})
    state, host = state_of(script, home), Host()
    for allow in ((), ("uncertain_call",), ("damaged_range",)):
        with pytest.raises(ResumeRefused) as caught:
            state.apply_to(host, allow=allow)
        assert set(caught.value.reasons) == {"uncertain_call", "damaged_range"} - set(allow)
        assert {each.reason for each in caught.value.refusals} == {
            RefusalReason(each) for each in caught.value.reasons
        }
    assert host.given == {}
    state.apply_to(host, allow=("uncertain_call", "damaged_range"))
    assert host.given["history"][0][-1] == "function_call_output"


# What can't be read


@pytest.mark.case("B56")
def test_what_is_no_thread_has_an_error_of_its_own(home: Home) -> None:
    """Nothing there, a folder, no bytes, something else."""
    path = write(Script(), home)
    with pytest.raises(ThreadNotFound):
        read_resume_state(path.with_name("none.jsonl"), home)
    with pytest.raises(NotARollout):
        read_resume_state(path.parent, home)
    path.write_bytes(b"")
    with pytest.raises(NotARollout):
        read_resume_state(path, home)
    path.write_bytes(dump({"a": 1}) + b"\n")
    with pytest.raises(NotARollout):
        read_resume_state(path, home)


@pytest.mark.case("B57")
def test_refusal_of_the_system_names_the_file_and_what_to_do(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error number is there too."""
    path = write(Script(), home)
    real = os.open

    def refusing(name: Any, *arguments: Any, **keys: Any) -> int:
        if os.fspath(name) == os.fspath(path):
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
        return real(name, *arguments, **keys)

    monkeypatch.setattr(os, "open", refusing)
    with pytest.raises(RolloutUnreadable) as caught:
        read_resume_state(path, home)
    assert caught.value.errno == errno.EPERM
    assert os.fspath(path) in str(caught.value)
    assert "mode" in caught.value.hint


@pytest.mark.parametrize("cwd", ["/srv", "/srv/\ud800"])
@pytest.mark.parametrize("text", ['"\\ud800"', "NaN", '1, "a" : 2 ', "9" * 5000])
def test_payload_that_json_of_others_holds_is_read_back_byte_for_byte(
    home: Home, cwd: str, text: str
) -> None:
    """Half a character, no number, a very long one, spaces: by the fast way and by the slow one."""
    path = write_thread(home, uuid(7), b"", cwd="CWD")
    path.write_bytes(path.read_bytes().replace(b'"CWD"', json.dumps(cwd).encode()))
    payload = f'{{"type":"message","role":"user","content":[],"x":{text}}}'.encode()
    with path.open("ab") as file:
        file.write(b'{"timestamp":"","ordinal":1,"type":"response_item","payload":' + payload + b"}\n")
    state = read_resume_state(path, home)
    assert [bytes(each.payload) for each in state.items] == [payload]
    again = ResumeState.from_json(state.to_json())
    assert [bytes(each.payload) for each in again.items] == [payload]
    assert again == state


@pytest.mark.parametrize(
    "data", [b"[" * 5000, b"{" * 5000, b'{"items":[7]}', b'{"items":[{}]}', b"\xff", b""]
)
def test_json_that_is_no_state_is_refused_by_one_error(data: bytes) -> None:
    """Whatever it is."""
    with pytest.raises(msgspec.ValidationError):
        ResumeState.from_json(data)
