"""What a recovery records: the truth about each thing that was open, once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.codec import encode_item
from protocol.tool_verdicts import ToolVerdict
from tests.thread_store.histories import STAMP, Script
from tests.thread_store.resumed import (
    TURN,
    call_of,
    own_call,
    random_rollout,
    recover,
    state_of,
    state_of_file,
    write,
)
from thread_store.home import Home
from thread_store.resume.recovery import recovery_items
from thread_store.resume.resume_state import ResumeState


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def told(state: ResumeState) -> list[tuple[str, Any]]:
    """Type and what matters of each record, in order."""
    return [_told(item.record_type, json.loads(_payload(item))) for item in recovery_items(state, epoch=2)]


def _payload(item: Any) -> bytes:
    return encode_item(item, timestamp=STAMP).partition(b'"payload":')[2][:-2]


def _told(record_type: str, payload: dict[str, Any]) -> tuple[str, Any]:
    if record_type == "x_call":
        return "x_call", (payload["call_id"], payload["state"])
    if record_type == "x_approval":
        return "x_approval", (payload["approval_id"], payload["state"])
    if record_type == "x_writer":
        return "x_writer", payload["event"]
    if record_type == "response_item":
        return payload["type"], (payload["call_id"], payload["output"].partition(":")[0])
    return payload["type"], payload.get("reason")


def request(script: Script, call_id: str, kind: str = "function_call") -> None:
    argument = "input" if kind == "custom_tool_call" else "arguments"
    script.add("response_item", {"type": kind, "name": "send_mail", argument: "{}", "call_id": call_id})


def test_recovery_tells_everything_in_order(home: Home) -> None:
    """Who took over, the calls, what the model is told of them, the questions, the end of the turn."""
    script = Script()
    script.start(TURN)
    request(script, "c1")
    own_call(script, "c1", "started", effect="unsafe")
    request(script, "c2", "custom_tool_call")
    own_call(script, "c2", "intended", effect="unsafe")
    script.add("x_approval", {"approval_id": "a1", "call_id": "c2", "state": "requested"})
    assert told(state_of(script, home)) == [
        ("x_writer", "recovered"),
        ("x_call", ("c1", "unknown")),
        ("x_call", ("c2", "declined")),
        ("function_call_output", ("c1", "outcome unknown")),
        ("custom_tool_call_output", ("c2", "not executed")),
        ("x_approval", ("a1", "withdrawn")),
        ("turn_aborted", "interrupted"),
    ]


@pytest.mark.parametrize(
    ("states", "output"),
    [
        ([("completed", {})], "completed; its output is not at hand"),
        ([("failed", {"error": "exit 2"})], "failed; its output is not at hand: exit 2"),
        ([("declined", {"error": "no"})], "declined: not executed: no"),
        (
            [("resolved", {"outcome": "happened", "by": "ann", "note": "seen"})],
            "the output is lost; it was decided that the call happened (by ann): seen",
        ),
        (
            [("resolved", {"outcome": "not_happened", "by": "ann"})],
            "not executed: it was decided that the call did not happen (by ann)",
        ),
        ([("resolved", {"outcome": "retry"})], "outcome unknown; it was decided to try again"),
    ],
)
def test_call_whose_end_is_known_gets_the_output_that_was_missing(
    home: Home, states: list[tuple[str, dict[str, Any]]], output: str
) -> None:
    """Made from what is known, and its verdict stays."""
    script = Script()
    script.start(TURN)
    request(script, "c1")
    own_call(script, "c1", "started", effect="unsafe")
    for state, keys in states:
        own_call(script, "c1", state, **keys)
    path = write(script, home)
    before, after = state_of_file(path, home), recover(path, home)
    assert json.loads(bytes(after.items[-1].payload))["output"] == output
    assert call_of(after).verdict is call_of(before).verdict
    assert call_of(after).may_run_again is call_of(before).may_run_again
    assert not any(each.startswith("x_call") for each, _ in told(before))


def test_call_that_is_out_of_the_models_sight_gets_no_output(home: Home) -> None:
    """An output alone would be one of no call; that the call is unknown is recorded all the same."""
    script = Script()
    script.start(TURN)
    request(script, "c1")
    own_call(script, "c1", "started", effect="none")
    script.compacted("summary")
    assert told(state_of(script, home)) == [
        ("x_writer", "recovered"),
        ("x_call", ("c1", "unknown")),
        ("turn_aborted", "interrupted"),
    ]


def test_pending_call_is_over_once_it_was_told_as_not_executed(home: Home) -> None:
    """Else each resume would offer it again, though it may have run under another id since."""
    script = Script()
    script.start(TURN)
    request(script, "c1")
    own_call(script, "c1", "intended", effect="unsafe")
    path = write(script, home)
    assert call_of(state_of_file(path, home)).verdict is ToolVerdict.PENDING
    assert call_of(recover(path, home)).verdict is ToolVerdict.DECLINED


def test_nothing_open_is_nothing_to_record(home: Home) -> None:
    """Also where the writer ended without closing the rollout."""
    script = Script()
    script.add("x_writer", {"event": "opened", "epoch": 1})
    script.turn(1, calls=["c1"])
    assert recovery_items(state_of(script, home), epoch=2) == []


def test_accepted_damage_is_recorded_with_its_reason(home: Home) -> None:
    """A resume in spite of it says so, and the next one isn't held up."""
    script = Script()
    script.add("x_gap", {"bytes": 7})
    path = write(script, home)
    state = state_of_file(path, home).allowing(["damaged_range"])
    (item,) = recovery_items(state, epoch=2)
    assert b'"reason":"resumed in spite of damaged_range"' in _payload(item) + b"}"
    assert recover(path, home).can_resume


def test_call_outside_any_turn_is_told_when_no_other_is_meant(home: Home) -> None:
    """While a turn is open that has one of its id, a record without a turn would speak of that one."""
    script = Script()
    request(script, "c1")
    script.start(TURN)
    request(script, "c1")
    state = state_of(script, home)
    records = told(state)
    assert records[-2:] == [("turn_aborted", "interrupted"), ("x_call", ("c1", "unknown"))]
    path = write(script, home)
    assert [each.own for each in recover(path, home).open_calls] == ["unknown", "unknown"]


@pytest.mark.guarantee("G8")
def test_output_that_tells_an_end_is_not_given_where_another_call_has_the_id(home: Home) -> None:
    """An output names no turn: the call that may have run would count as ended by it."""
    script = Script()
    script.start("t0")
    request(script, "c1")
    script.complete("t0")
    script.start(TURN)
    request(script, "c1")
    own_call(script, "c1", "intended", effect="unsafe")
    path = write(script, home)
    after = recover(path, home)
    assert [(each.turn_id, each.verdict) for each in after.open_calls] == [("t0", ToolVerdict.UNCERTAIN)]
    assert bytes(after.items[-1].payload).count(b"outcome unknown") == 1


@pytest.mark.guarantee("G8")
@pytest.mark.case("B74")
@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_recovery_of_a_recovered_thread_has_nothing_to_say(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    """Whatever was recorded. And no recovery frees an unsafe call of its doubt, or lets one run again that
    might not before."""
    home = Home(tmp_path_factory.mktemp("home"))
    path, _ = random_rollout(seed, home)
    before, after = state_of_file(path, home), recover(path, home)
    assert recovery_items(after, epoch=3) == []
    assert after.view().answered == ()
    require_doubts(before, after)
    assert runnable(after) <= runnable(before)


def blocking(state: ResumeState) -> set[tuple[str | None, str]]:
    return {(each.turn_id, each.call_id) for each in state.open_calls if each.blocks_resume}


def require_doubts(before: ResumeState, after: ResumeState) -> None:
    """What was in doubt still is, or a later attempt took its place that is."""
    for place in blocking(before) - blocking(after):
        (call,) = [each for each in after.calls if (each.turn_id, each.call_id) == place]
        assert call.replaced
        assert not after.can_resume


def runnable(state: ResumeState) -> set[tuple[str | None, str]]:
    return {(each.turn_id, each.call_id) for each in state.calls if each.may_run_again}


@pytest.mark.guarantee("G8")
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), data=st.data())
def test_recovery_that_was_cut_short_is_completed_by_the_next(
    tmp_path_factory: pytest.TempPathFactory, seed: int, data: st.DataObject
) -> None:
    """Wherever it ended: each call that the model sees has one result, and no doubt is lost."""
    home = Home(tmp_path_factory.mktemp("home"))
    path, _ = random_rollout(seed, home)
    before, begun = state_of_file(path, home), path.read_bytes()
    recover(path, home)
    added = path.read_bytes()[len(begun) :].splitlines(keepends=True)
    kept = added[: data.draw(st.integers(0, len(added)), label="records of the first recovery")]
    path.write_bytes(begun + b"".join(kept))
    after = recover(path, home)
    assert recovery_items(after, epoch=3) == []
    assert after.view().answered == ()
    require_doubts(before, after)
    assert runnable(after) <= runnable(before)
