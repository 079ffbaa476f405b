"""The thread fold: the same from a snapshot as from the start, and what it keeps of a thread."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol import (
    CallItem,
    CheckItem,
    FilesItem,
    MemoryItem,
    RolloutItem,
    RolloutLine,
    SessionMeta,
    ThreadFold,
    ToolVerdict,
    TurnContext,
    decode_line,
    encode_item,
    matters,
    tracks,
)
from protocol.damage import RANGES_MAX
from protocol.meta import BaseInstructions
from protocol.thread_facts import AGENTS_MAX, FILES_MAX, SETTING_BYTES_MAX
from tests.protocol.folding import STAMP, event, line, output, own, placed, recorded, request, writer
from tests.protocol.histories import random_history


def folded(lines: list[RolloutLine]) -> ThreadFold:
    fold = ThreadFold()
    for each, offset in placed(lines):
        fold.add(each, offset)
    return fold


def reread(snapshot: MemoryItem) -> Any:
    """The snapshot as a later process finds it: written as a line, read, and plain."""
    return decode_line(encode_item(snapshot, timestamp=STAMP)).payload_object()


def add_all(fold: ThreadFold, steps: list[Any]) -> None:
    for step in steps:
        if isinstance(step[0], RolloutLine):
            fold.add(*step)
        else:
            fold.add_damage(*step)


@pytest.mark.guarantee("G9")
@pytest.mark.case("B65")
@settings(max_examples=60)
@given(seed=st.integers(0, 2**32), damaged=st.booleans())
def test_fold_of_all_is_the_fold_on_from_any_snapshot(seed: int, damaged: bool) -> None:
    """For every k: what a fresh process finds in the snapshot and folds on is what the writer had."""
    rng = random.Random(seed)
    steps: list[Any] = list(placed(random_history(rng, aside=True, lines_max=40)))
    if damaged:
        for reason in ("torn_tail", "not_json", "nul_bytes"):
            steps.insert(rng.randint(0, len(steps)), (reason, 5, 9))
    whole = ThreadFold()
    add_all(whole, steps)
    expected = whole.snapshot(0)
    for count in range(len(steps) + 1):
        before = ThreadFold()
        add_all(before, steps[:count])
        fold = ThreadFold.restore(reread(before.snapshot(0)))
        assert fold is not None
        add_all(fold, steps[count:])
        assert fold.snapshot(0) == expected
        assert fold.memory == whole.memory
        assert fold.calls.calls() == whole.calls.calls()
        assert fold.calls.damaged_ranges == whole.calls.damaged_ranges


@pytest.mark.guarantee("G9")
@settings(max_examples=60)
@given(seed=st.integers(0, 2**32))
def test_lines_that_do_not_matter_change_nothing_but_the_ordinal(seed: int) -> None:
    """A writer that passes over them gets the state of a reader that folds every line."""
    lines = list(placed(random_history(random.Random(seed), aside=True, lines_max=40)))
    read, written = ThreadFold(), ThreadFold()
    for each, offset in lines:
        read.add(each, offset)
        if matters(each):
            written.add(each, offset)
        else:
            written.pass_over(each.ordinal)
    assert written.snapshot(0) == read.snapshot(0)


def session() -> list[RolloutItem]:
    """A thread that ran one command and died in a mail."""
    return [
        SessionMeta(id="T", cwd="/srv", timestamp=STAMP, base_instructions=BaseInstructions("Be brief.")),
        *tracks.turn_started("t1", context=TurnContext(cwd="/srv", model="m")),
        *tracks.user_message("run the tests"),
        *tracks.command_call(call_id="c1", command=["make"], cwd="/srv"),
        CallItem(call_id="c1", turn_id="t1", state="started", name="shell", effect="unsafe"),
        *tracks.command_result(call_id="c1", command=["make"], cwd="/srv", output="ok", exit_code=0),
        CallItem(call_id="c1", turn_id="t1", state="completed", name="shell"),
        FilesItem(path="/srv/a.py", size=3, sha256="ab"),
        *tracks.tool_call(call_id="c2", name="send_mail", arguments={"to": "x"}),
        CallItem(call_id="c2", turn_id="t1", state="started", name="send_mail", effect="unsafe"),
    ]


@pytest.mark.case("B54")
def test_what_was_said_before_a_checkpoint_is_still_known() -> None:
    """Instructions, settings, files, goal and the open call outlive the compaction and the snapshot."""
    fold = ThreadFold()
    for each, offset in recorded([*session(), *tracks.compaction("short", [])]):
        fold.add(each, offset)
    later = ThreadFold.restore(reread(fold.snapshot(9000)))
    assert later is not None
    facts = later.facts
    assert facts.turn_context is not None
    assert facts.turn_context.value["model"] == "m"
    assert facts.files == {"/srv/a.py": {"size": 3, "sha256": "ab"}}
    assert later.memory.goal == "run the tests"
    assert {call.call_id: call.verdict for call in later.calls.calls()} == {
        "c1": ToolVerdict.COMPLETED,
        "c2": ToolVerdict.UNCERTAIN,
    }
    assert [call.arguments for call in later.calls.open_calls()] == ['{"to":"x"}']


def test_usage_that_is_told_again_is_not_added() -> None:
    """A `token_count` replaces; a response counts once, and not beside a total that has it."""
    count = event("token_count", info={"total_token_usage": {"total_tokens": 50}, "model_context_window": 9})
    used = {"type": "x", "usage": {"input_tokens": 3, "total_tokens": 5}}
    first = line("token_usage_record", {**used, "response_id": "r1"})
    second = line("token_usage_record", {**used, "response_id": "r2"})
    usage = folded([first, first, second]).facts.usage
    assert usage is not None
    assert usage.total == {"input_tokens": 6, "total_tokens": 10}
    usage = folded([first, count, count, second]).facts.usage
    assert usage is not None
    assert (usage.total, usage.model_context_window) == ({"total_tokens": 50}, 9)
    assert usage.last == {"input_tokens": 3, "total_tokens": 5}
    whole = line("token_usage_record", {**used, "thread_token_usage": {"total_tokens": 77}})
    usage = folded([count, whole, event("token_count", info=None)]).facts.usage
    assert usage is not None
    assert usage.total == {"total_tokens": 77}


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"version": 1, "upto_offset": 5},
        {"version": 2},
        {"version": True},
        {"open_calls": [{"call_id": 5}]},
        {"open_calls": {"c1": {}}},
        {"recent_calls": [{}]},
        {"approvals": None},
        {"checks": [{"check_id": "k"}]},
        {"damage": []},
        {"memory": {"goals": [{"text": "x"}]}},
        {"memory": "text"},
        {"usage": {"total": {"total_tokens": "many"}}},
        {"max_ordinal": "7"},
        {"upto_offset": None},
    ],
)
@pytest.mark.case("B49")
def test_snapshot_that_does_not_fit_is_refused(broken: dict[str, Any]) -> None:
    """Another version, or a field that can't be: the one before it is to be tried."""
    good = reread(folded([request(), own("started")]).snapshot(5))
    assert ThreadFold.restore(good) is not None
    whole = "version" not in broken or len(broken) == 1
    payload = {**good, **broken} if broken and whole else broken
    assert ThreadFold.restore(payload) is None


def test_snapshot_with_further_fields_is_taken() -> None:
    """Fields may be added without a new version."""
    good = reread(folded([request()]).snapshot(5))
    assert ThreadFold.restore({**good, "later": {"a": 1}}) is not None


@pytest.mark.guarantee("G7")
def test_snapshot_of_a_long_thread_is_bounded() -> None:
    """However much happened, and however large single values were."""
    fold = ThreadFold()
    huge = "x" * 5000
    for number in range(3 * max(FILES_MAX, AGENTS_MAX)):
        for each in (
            event("user_message", message=f"{number} {huge}"),
            line("x_files", {"path": f"/{number}", "size": 1}),
            event(
                "sub_agent_activity",
                event_id="e",
                agent_thread_id=f"a{number}",
                agent_path="/",
                kind="started",
            ),
            request(f"c{number}"),
            own("failed", f"c{number}", error=huge),
            line("x_check", {"check_id": f"k{number}", "state": "failed", "what": huge}),
            line("x_approval", {"approval_id": f"a{number}", "state": "approved", "reason": huge}),
            event("warning", message=f"{number} {huge}"),
            line("x_state", {"to": f"{number}", "reason": huge}),
            line("turn_context", {"cwd": "y" * SETTING_BYTES_MAX}),
        ):
            fold.add(each, number)
        fold.add_damage("not_json", number, number + 1)
    size = len(encode_item(fold.snapshot(0), timestamp=STAMP))
    assert size < 400_000
    assert len(fold.damage.ranges) == RANGES_MAX
    assert sum(each.count for each in fold.damage.ranges) == 3 * max(FILES_MAX, AGENTS_MAX)
    assert fold.facts.turn_context is not None
    assert fold.facts.turn_context.value is None


def test_snapshot_of_odd_values_can_always_be_written() -> None:
    """NaN, deep nesting, lone surrogates and integers beyond 64 bits: a snapshot is never refused."""
    deep = '{"a":' * 120 + "1" + "}" * 120
    odd = [
        f'{{"type":"turn_context","ordinal":1{"0" * 30},"payload":{{"cwd":"\\ud800","a":NaN,"b":{deep}}}}}',
        '{"type":"x_files","payload":{"path":"\\udfff","size":Infinity,"read_at":{"a":[1]}}}',
        '{"type":"event_msg","payload":{"type":"user_message","message":"\\ud83d"}}',
        f'{{"type":"x_call","payload":{{"call_id":"\\ud83d","state":"started","attempt":1{"0" * 60}}}}}',
    ]
    fold = ThreadFold()
    for each in odd:
        fold.add(decode_line(each.encode()), 10**25)
    again = ThreadFold.restore(reread(fold.snapshot(0)))
    assert again is not None
    assert again.snapshot(0) == fold.snapshot(0)
    assert again.damage.max_ordinal == 10**30


@pytest.mark.parametrize(
    ("payload", "record_type"),
    [
        ("[]", "x_call"), ("5", "event_msg"), ('"x"', "response_item"), ("null", "x_writer"),
        ("{}", "x_check"),
        ('{"type":["a"]}', "event_msg"), ('{"type":{"a":1}}', "response_item"), ("[]", "session_meta"),
        ('{"type":"item_completed","item":{"type":["x"],"id":{}}}', "event_msg"),
        ('{"type":"item_completed","item":{"type":"CommandExecution","id":"c","status":["x"]}}', "event_msg"),
        ('{"type":"mcp_tool_call_end","call_id":"c","result":{"Ok":5},"invocation":[]}', "event_msg"),
        ('{"type":"token_count","info":{"total_token_usage":{"total_tokens":true}}}', "event_msg"),
        ('{"type":"thread_rolled_back","num_turns":-1}', "event_msg"),
        ('{"type":"plan_update","plan":[5,{"step":["a"]}]}', "event_msg"),
        ('{"type":"function_call","name":"TodoWrite","arguments":"{","call_id":"c"}', "response_item"),
        ('{"type":"message","role":"user","content":{"a":1}}', "response_item"),
        ('{"to":5,"from":[],"reason":{}}', "x_state"), ('{"event":["opened"],"epoch":"3"}', "x_writer"),
    ],
)  # fmt: skip
def test_payload_of_any_shape_is_taken(payload: str, record_type: str) -> None:
    """Lines are valid whatever their payload is, so the fold never raises for one."""
    fold = ThreadFold()
    fold.add(decode_line(f'{{"type":"{record_type}","payload":{payload}}}'.encode()), 0)
    assert ThreadFold.restore(reread(fold.snapshot(0))) is not None


@pytest.mark.guarantee("G8")
def test_damage_blocks_until_somebody_went_on_knowing_of_it() -> None:
    """A damaged range may have hidden a call; `recovered` is written by whoever resumed all the same."""
    fold = folded([request(), output()])
    fold.add_damage("not_json", 100, 200)
    assert [(each.reason, each.offset, each.end) for each in fold.calls.damaged_ranges] == [
        ("not_json", 100, 200)
    ]
    assert "not_json" in fold.memory.warnings[0].text
    fold.add(writer("recovered"), 300)
    assert fold.calls.damaged_ranges == []
    assert len(fold.damage.ranges) == 1


@pytest.mark.guarantee("G8")
def test_ordinals_that_are_missing_are_damage() -> None:
    """A gap hides records; repeats and steps back hide none, and an erased record keeps its number."""

    def numbered(*ordinals: int) -> ThreadFold:
        fold = ThreadFold()
        for each in ordinals:
            fold.add(line("event_msg", {"type": "agent_message", "message": "m"}, ordinal=each), each)
        return fold

    assert numbered(0, 1, 2, 1, 2, 3, 0).calls.damaged_ranges == []
    assert numbered(40, 41).calls.damaged_ranges == []
    assert [each.detail for each in numbered(0, 1, 4).calls.damaged_ranges] == ["2 to 3"]
    erased = numbered(0, 1)
    erased.add(line("x_erased", {"ordinal": 2, "bytes": 90}))
    erased.add(line("event_msg", {"type": "agent_message", "message": "m"}, ordinal=3))
    assert erased.calls.damaged_ranges == []


@pytest.mark.guarantee("G8")
def test_tail_that_our_writer_never_finished_hides_no_call() -> None:
    """It syncs `started` before the side effect begins; of other writers nobody knows that."""
    ours, foreign = folded([writer("opened", epoch=1)]), folded([request()])
    for fold in (ours, foreign):
        fold.add_damage("torn_tail", 10, 20)
        fold.add(writer("opened", epoch=2, cut_bytes=10), 10)
    assert ours.calls.damaged_ranges == []
    assert [each.reason for each in foreign.calls.damaged_ranges] == ["torn_tail", "cut_tail"]
    assert len(ours.damage.ranges) == 2


def test_bytes_that_another_program_destroyed_are_damage() -> None:
    """`x_gap` names them."""
    fold = folded([writer("opened", epoch=1), line("x_gap", {"bytes": 9})])
    assert [each.reason for each in fold.calls.damaged_ranges] == ["gap"]


@pytest.mark.case("B60")
def test_check_that_was_begun_and_not_ended_is_unfinished() -> None:
    """Verification steps count like tool calls."""
    fold = folded([line("x_check", {"check_id": "k1", "state": "started", "what": "make test"})])
    assert [each.check_id for each in fold.checks.unfinished] == ["k1"]
    fold.add(line("x_check", {"check_id": "k1", "state": "passed"}))
    assert fold.checks.unfinished == []
    assert fold.checks.checks[0].what == "make test"


def test_check_that_passed_is_stale_after_a_later_effect() -> None:
    """Not after one that only reads, nor after the call that was the check, nor before the call begins."""
    passed = line("x_check", {"check_id": "k1", "state": "passed", "call_ids": ["c1"], "what": "make test"})

    def state_after(*lines: RolloutLine) -> str:
        fold = folded([passed, *lines])
        (check,) = fold.checks.checks
        assert check.state in fold.memory.verifications[-1].text
        return check.state

    assert state_after(request("c2", name="Read"), output("c2")) == "passed"
    assert state_after(output("c1"), own("completed", "c1")) == "passed"
    assert state_after(request("c2", name="update_plan"), output("c2")) == "passed"
    assert state_after(own("intended", "c2")) == "passed"
    assert state_after(own("intended", "c2"), own("declined", "c2")) == "passed"
    assert state_after(own("intended", "c2"), own("started", "c2")) == "stale"
    assert state_after(request("c2")) == "stale"


def test_approvals_that_were_not_answered_are_pending() -> None:
    """A resume withdraws them; what was approved for the session stands."""

    def ask(approval_id: str, state: str, **keys: Any) -> RolloutLine:
        return line("x_approval", {"approval_id": approval_id, "state": state, **keys})

    fold = folded([
        ask("a1", "requested", call_id="c1"), ask("a2", "requested"), ask("a2", "approved", scope="session"),
        ask("a3", "requested"), ask("a3", "approved", scope="once"), ask("a4", "declined", by="ann"),
        event("exec_approval_request", call_id="c9", command=["rm"]),
    ])  # fmt: skip
    assert [each.approval_id for each in fold.approvals.pending] == ["a1", "c9"]
    assert [each.approval_id for each in fold.approvals.standing] == ["a2"]
    assert [each.text for each in fold.memory.decisions][-1] == "call a4 declined by ann"
    fold.add(request("c9"))
    fold.add(output("c9"))
    assert [each.approval_id for each in fold.approvals.pending] == ["a1"]


def test_sub_agents_are_known_by_what_they_did_last() -> None:
    """From the event of a legacy rollout and from the item of a paginated one."""
    told = {"agent_thread_id": "A", "agent_path": "/a"}
    fold = folded([event("sub_agent_activity", event_id="e", kind="started", **told)])
    assert fold.facts.agents == {"A": {"kind": "started", "agent_path": "/a"}}
    shown = {"type": "SubAgentActivity", "id": "i", "kind": "completed", **told}
    fold.add(event("item_completed", thread_id="T", turn_id="t1", item=shown))
    assert fold.facts.agents == {"A": {"kind": "completed", "agent_path": "/a"}}


def test_snapshot_is_not_changed_by_what_follows() -> None:
    """It is a copy: a writer may hold it while the fold goes on."""
    fold = folded([request(), line("x_check", {"check_id": "k", "state": "passed"})])
    snapshot = fold.snapshot(0)
    before = encode_item(snapshot, timestamp=STAMP)
    restored = ThreadFold.restore(snapshot)
    assert restored is not None
    for each in (fold, restored):
        each.add(own("started"))
        each.add(event("user_message", message="hi"))
        each.add(line("x_files", {"path": "/a"}))
    assert encode_item(snapshot, timestamp=STAMP) == before


@pytest.mark.guarantee("G9")
def test_recorded_session_and_its_bytes_give_the_same_state() -> None:
    """Whether a check follows or not, the fold of the same lines is the same value."""
    items = [*session(), CheckItem(check_id="k", state="started")]
    pairs = recorded(items)
    first, second = ThreadFold(), ThreadFold()
    for each, offset in pairs:
        first.add(each, offset)
        second.add(decode_line(bytes(each.source or b"")), offset)
    assert first.snapshot(1) == second.snapshot(1)
