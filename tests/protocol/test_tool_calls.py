"""Tool calls: each row of the state table, as lines; and what no history may make of an unsafe call."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pytest

from protocol import RolloutLine, ToolCall, ToolCallFold, ToolVerdict, decode_line
from protocol.tool_calls import ARGUMENTS_CHARS_MAX, CLOSED_CALLS_MAX, OPEN_CALLS_MAX
from protocol.tool_safety import DEFAULT_TOOL_SAFETY, Effect
from protocol.tool_verdicts import REPLACED_RULE
from tests.protocol.folding import begin, event, item, line, output, own, request, response, writer
from tests.protocol.histories import random_history

UNCERTAIN, PENDING = ToolVerdict.UNCERTAIN, ToolVerdict.PENDING
COMPLETED, FAILED, DECLINED = ToolVerdict.COMPLETED, ToolVerdict.FAILED, ToolVerdict.DECLINED


def folded(lines: Iterable[RolloutLine]) -> ToolCallFold:
    fold = ToolCallFold()
    for number, each in enumerate(lines):
        fold.add(each, number * 100)
    return fold


def the_call(*lines: RolloutLine) -> ToolCall:
    (call,) = folded(lines).calls()
    return call


ROWS: list[tuple[str, list[RolloutLine], ToolVerdict, bool, bool]] = [
    # what, lines, verdict, may run again, blocks: for an unsafe tool
    ("request alone", [request()], UNCERTAIN, False, True),
    ("intended", [request(), own("intended")], PENDING, False, False),
    ("started", [request(), own("intended"), own("started")], UNCERTAIN, False, True),
    ("retry", [request(), own("started"), own("resolved", outcome="retry")], PENDING, True, False),
    ("happened", [own("started"), own("resolved", outcome="happened")], COMPLETED, False, False),
    ("not happened", [own("started"), own("resolved", outcome="not_happened")], FAILED, False, False),
    ("strange decision", [own("started"), own("resolved", outcome="maybe")], UNCERTAIN, False, True),
    ("completed", [request(), own("started"), own("completed")], COMPLETED, False, False),
    ("failed", [request(), own("started"), own("failed", error="no route")], FAILED, False, False),
    ("declined", [request(), own("intended"), own("declined")], DECLINED, False, False),
    ("unknown", [request(), own("started"), own("unknown")], UNCERTAIN, False, True),
    ("unknown, output", [request(), own("started"), own("unknown"), output()], UNCERTAIN, False, True),
    ("aborted", [request(), own("started"), own("aborted")], UNCERTAIN, False, True),
    ("aborted, output", [request(), own("started"), own("aborted"), output()], UNCERTAIN, False, True),
    ("output", [request(), output()], COMPLETED, False, False),
    ("intended, output", [request(), own("intended"), output()], COMPLETED, False, False),
    ("started, output", [request(), own("started"), output()], COMPLETED, False, False),
    ("closed epoch", [writer("opened", epoch=1), own("started"), writer("closed", epoch=1)],
     UNCERTAIN, False, True),
    ("state of the future", [request(), own("paused")], UNCERTAIN, False, True),
    ("superseded by nothing", [own("started", key="k"), own("superseded", key="k")], UNCERTAIN, False, True),
    ("made-up output", [request(), output(text="aborted")], UNCERTAIN, False, True),
    ("cut short by the user", [request(), output(text="aborted by user after 1.2s")], UNCERTAIN, False, True),
    ("truthful output alone", [request(), output(text="outcome unknown: it died")], UNCERTAIN, False, True),
]  # fmt: skip


@pytest.mark.case("B60")
@pytest.mark.case("B132")
@pytest.mark.guarantee("G8")
@pytest.mark.parametrize(
    ("lines", "verdict", "again", "blocks"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS]
)
def test_unsafe_call_is_judged_by_the_table(
    lines: list[RolloutLine], verdict: ToolVerdict, again: bool, blocks: bool
) -> None:
    """Nobody registered `send_mail`: it counts as unsafe, and doubt blocks."""
    call = the_call(*lines)
    assert (call.verdict, call.may_run_again, call.blocks_resume) == (verdict, again, blocks)
    assert call.effect is Effect.UNSAFE
    assert call.reason


SAFE_ROWS = [row for row in ROWS if row[2] in (UNCERTAIN, PENDING) and not row[0].startswith("superseded")]


@pytest.mark.case("B60")
@pytest.mark.parametrize("effect", ["none", "idempotent"])
@pytest.mark.parametrize("lines", [row[1] for row in SAFE_ROWS], ids=[row[0] for row in SAFE_ROWS])
def test_safe_call_without_a_known_end_may_run_again(lines: list[RolloutLine], effect: str) -> None:
    """Doubt about a call that changes nothing, or the same twice, stops nobody."""
    declared = [own("intended", effect=effect), *lines] if lines[0].type == "response_item" else lines
    fold = folded(declared)
    if lines[0].type != "response_item":
        fold = folded([own("intended", effect=effect, key="k"), *lines])
    (call,) = fold.calls()
    assert call.effect is Effect(effect)
    assert call.may_run_again
    assert not call.blocks_resume


def test_registered_tool_needs_no_declaration() -> None:
    """The registry tells the effect of a tool that declares none, and a declaration counts more."""
    assert the_call(request(name="Read")).may_run_again
    assert not the_call(request(name="Read"), own("started", effect="unsafe")).may_run_again
    assert not the_call(request(name="Read"), own("started", effect="harmless")).may_run_again
    fold = ToolCallFold(DEFAULT_TOOL_SAFETY.with_tools({"send_mail": "idempotent"}))
    fold.add(request())
    assert fold.calls()[0].may_run_again


def test_effect_that_was_declared_unsafe_once_stays_so() -> None:
    """Of two declarations the less harmless counts."""
    call = the_call(own("intended", effect="unsafe"), own("started", effect="none"))
    assert call.effect is Effect.UNSAFE


MAKE: dict[str, Any] = {"command": ["make"], "cwd": "file:///"}

DISPLAYED: list[tuple[RolloutLine, ToolVerdict]] = [
    (item("CommandExecution", "c1", **MAKE, status="completed", exit_code=0), COMPLETED),
    (item("CommandExecution", "c1", **MAKE, status="failed", exit_code=2), FAILED),
    (item("CommandExecution", "c1", **MAKE, status="declined"), DECLINED),
    (item("CommandExecution", "c1", **MAKE, status="in_progress"), UNCERTAIN),
    (item("CommandExecution", "c1", **MAKE, status="half_done"), UNCERTAIN),
    (item("FileChange", "c1", changes={}, status="completed"), COMPLETED),
    (item("FileChange", "c1", changes={}, status="declined"), DECLINED),
    (item("DynamicToolCall", "c1", tool="send_mail", arguments={}, status="failed", success=False), FAILED),
    (item("McpToolCall", "c1", server="s", tool="t", arguments={}, status="inProgress"), UNCERTAIN),
    (item("McpToolCall", "c1", server="s", tool="t", arguments={}, status="failed"), FAILED),
    (item("CollabAgentToolCall", "c1", tool="wait", status="interrupted"), UNCERTAIN),
    (event("patch_apply_end", call_id="c1", turn_id="t1", success=False, status="declined"), DECLINED),
    (event("patch_apply_end", call_id="c1", stdout="", stderr="", success=True, changes={}), COMPLETED),
    (event("mcp_tool_call_end", call_id="c1", invocation={"server": "s", "tool": "t"}, duration={},
           result={"Err": "connection closed"}), FAILED),
    (event("mcp_tool_call_end", call_id="c1", invocation={}, result={"Ok": {"content": []}}), COMPLETED),
    (event("mcp_tool_call_end", call_id="c1", invocation={}, duration={},
           result={"Ok": {"content": [], "isError": True}}), FAILED),
    (event("exec_command_end", call_id="c1", exit_code=1), FAILED),
    (event("exec_command_begin", call_id="c1"), UNCERTAIN),
    (event("dynamic_tool_call_request", callId="c1", turnId="t1", tool="send_mail"), UNCERTAIN),
    (event("dynamic_tool_call_response", call_id="c1", success=True), COMPLETED),
]  # fmt: skip


@pytest.mark.case("B60")
@pytest.mark.parametrize(("shown", "verdict"), DISPLAYED)
@pytest.mark.parametrize("own_state", [None, "started"])
def test_display_of_codex_tells_the_end(
    shown: RolloutLine, verdict: ToolVerdict, own_state: str | None
) -> None:
    """Items and events with a status say how a call ended, with and without records of ours."""
    before = [begin(), request()] + ([own(own_state)] if own_state else [])
    call = the_call(*before, shown)
    assert call.verdict is verdict
    assert call.output_missing == (verdict is not UNCERTAIN)
    if verdict is not UNCERTAIN:
        assert the_call(*before, shown, output()).verdict is verdict
        assert the_call(*before, output(), shown).verdict is verdict


@pytest.mark.guarantee("G8")
def test_end_that_nobody_knows_is_none_in_whatever_form_it_is_told() -> None:
    """Our records may be lost on the way (Codex copies only its own), or the process died between them."""
    told = "outcome unknown: the call was interrupted while it ran"
    parts = [{"type": "inputText", "text": told}]
    shown = item("DynamicToolCall", "c1", tool="x", status="failed", success=False, content_items=parts)
    assert the_call(begin(), request(), own("started"), shown).verdict is UNCERTAIN
    shell = item("CommandExecution", "c1", **MAKE, status="failed", aggregated_output=told)
    assert the_call(begin(), request(), shell).verdict is UNCERTAIN
    listed = response("function_call_output", call_id="c1", output=[{"type": "input_text", "text": told}])
    assert the_call(begin(), request(), listed).verdict is UNCERTAIN


def test_call_tells_where_its_records_stand() -> None:
    """The request, for whoever needs the whole arguments, and what was said last."""
    fold = ToolCallFold()
    fold.add(request(), 100)
    fold.add(own("started"), 200)
    (call,) = fold.calls()
    assert (call.request_offset, call.last_offset) == (100, 200)
    assert (call.arguments, call.arguments_cut) == ('{"to":"x"}', False)
    large = response("custom_tool_call", name="apply_patch", input="x" * 9999, call_id="c2")
    assert the_call(large).arguments == "x" * ARGUMENTS_CHARS_MAX
    assert the_call(large).arguments_cut


def test_call_that_began_by_the_display_is_not_pending() -> None:
    """`intended` means not yet run; a record that it began says otherwise."""
    assert the_call(begin(), own("intended"), event("exec_command_begin", call_id="c1")).verdict is UNCERTAIN


REAL = [
    '{"timestamp":"2026-03-04T06:46:07.000Z","ordinal":1,"type":"event_msg","payload":{"type":"task_started",'
    '"turn_id":"t1","started_at":1772600767,"collaboration_mode_kind":"default"}}',
    '{"timestamp":"2026-03-04T06:46:07.100Z","ordinal":4,"type":"response_item","payload":{"type":"function_call",'
    '"name":"exec_command","arguments":"{\\"cmd\\":\\"make test\\"}","call_id":"c1"}}',
    '{"timestamp":"2026-03-04T06:46:07.200Z","ordinal":5,"type":"event_msg","payload":{"type":"item_completed",'
    '"thread_id":"T","turn_id":"t1","item":{"type":"CommandExecution","id":"c1","command":["make","test"],'
    '"cwd":"file:///srv/demo","parsed_cmd":[],"source":"agent","status":"in_progress"}}}',
    '{"timestamp":"2026-03-04T06:46:08.000Z","ordinal":6,"type":"event_msg","payload":{"type":"item_completed",'
    '"thread_id":"T","turn_id":"t1","item":{"type":"CommandExecution","id":"c1","command":["make","test"],'
    '"cwd":"file:///srv/demo","parsed_cmd":[],"source":"agent","status":"failed","exit_code":2,'
    '"aggregated_output":"1 failed"},"completed_at_ms":1772600768000}}',
    '{"timestamp":"2026-03-04T06:46:08.100Z","ordinal":7,"type":"response_item","payload":{"type":'
    '"function_call_output","call_id":"c1","output":"exit code 2\\n1 failed"}}',
    '{"timestamp":"2026-03-04T06:46:08.200Z","type":"event_msg","payload":{"type":"patch_apply_end","call_id":"c2",'
    '"turn_id":"t1","stdout":"","stderr":"","success":false,"status":"declined","changes":{"/srv/demo/a.py":'
    '{"type":"add","content":"x"}}}}',
    '{"timestamp":"2026-03-04T06:46:08.300Z","type":"event_msg","payload":{"type":"mcp_tool_call_end","call_id":'
    '"c3","invocation":{"server":"files","tool":"read","arguments":{"path":"a"}},"duration":{"secs":0,"nanos":5000},'
    '"result":{"Err":"connection closed"}}}',
    '{"timestamp":"2026-03-04T06:46:09.000Z","ordinal":9,"type":"event_msg","payload":{"type":"item_completed",'
    '"thread_id":"T","turn_id":"t1","item":{"type":"DynamicToolCall","id":"c4","tool":"send_mail","arguments":'
    '{"to":"x"},"status":"failed","success":false,"error":"declined by user"},'
    '"completed_at_ms":1772600769000}}',
]


def test_lines_as_codex_writes_them_are_understood() -> None:
    """The verdict after each line of a real rollout."""
    fold, told = ToolCallFold(), []
    for each in REAL:
        fold.add(decode_line(each.encode()))
        told.append({call.call_id: call.verdict for call in fold.calls()})
    assert told[1] == told[2] == {"c1": UNCERTAIN}
    assert told[3] == told[4] == {"c1": FAILED}
    assert told[-1] == {"c1": FAILED, "c2": DECLINED, "c3": FAILED, "c4": FAILED}
    errors = {call.call_id: call.error for call in fold.calls()}
    assert errors == {"c1": "exit code 2", "c2": None, "c3": "connection closed", "c4": "declined by user"}


@pytest.mark.parametrize(
    "asked",
    [
        response("function_call", name="exec_command", arguments="{}", call_id="c1"),
        response("custom_tool_call", name="apply_patch", input="*** Begin Patch", call_id="c1"),
        response(
            "local_shell_call", status="in_progress", action={"type": "exec", "command": ["ls"]}, call_id="c1"
        ),
        response("function_call", name="spawn_agent", arguments="{}", call_id="c1"),
        response("function_call", name="t", namespace="mcp__s", arguments={"not": "a text"}, call_id="c1"),
    ],
)
@pytest.mark.case("B132")
def test_request_of_every_kind_without_an_output_is_uncertain(asked: RolloutLine) -> None:
    """Whoever wrote it may have run the tool before or after."""
    assert the_call(asked).verdict is UNCERTAIN
    assert the_call(asked).kind in ("shell", "patch", "mcp", "agent")


@pytest.mark.case("B132")
@pytest.mark.parametrize(
    "asked",
    [
        response("web_search_call", status="completed", action={"type": "search", "query": "x"}, id="ws_1"),
        response("image_generation_call", status="completed", result="aGk=", id="ig_1"),
        response("tool_search_call", execution="server", arguments={}, status="completed"),
    ],
)
def test_request_that_never_gets_an_output_is_no_open_call(asked: RolloutLine) -> None:
    """These run at the model's provider."""
    assert folded([asked]).calls() == []


@pytest.mark.case("B61")
def test_parallel_calls_are_matched_by_id_in_any_order() -> None:
    """Results come as they come."""
    fold = folded([begin(), request("c1"), request("c2"), request("c3"), output("c3"), output("c1")])
    assert {call.call_id: call.verdict for call in fold.calls()} == {
        "c1": COMPLETED, "c2": UNCERTAIN, "c3": COMPLETED
    }  # fmt: skip
    assert [call.call_id for call in fold.open_calls()] == ["c2"]


def test_call_id_that_comes_again_in_another_turn_is_another_call() -> None:
    """Some providers count from nought in each turn."""
    turns = [begin("t1"), request("call_0"), output("call_0"), begin("t2"), request("call_0")]
    fold = folded(turns)
    assert [(call.turn_id, call.verdict) for call in fold.calls()] == [("t1", COMPLETED), ("t2", UNCERTAIN)]
    late = folded([begin("t1"), request("call_0"), begin("t2"), output("call_0")])
    assert [(call.turn_id, call.verdict) for call in late.calls()] == [("t1", COMPLETED)]


@pytest.mark.guarantee("G8")
def test_call_id_requested_again_in_its_turn_hides_no_doubt() -> None:
    """After an end it is a call of its own; before one, nobody can tell the two apart."""
    again = folded([begin(), request(), output(), request()])
    assert [call.verdict for call in again.calls()] == [UNCERTAIN]
    assert not again.damaged_ranges
    twice = folded([begin(), request(), request(), output()])
    assert [each.reason for each in twice.damaged_ranges] == ["reused_call_id"]


@pytest.mark.guarantee("G8")
def test_start_after_an_end_is_a_run_of_its_own() -> None:
    """What was known of the run before says nothing of this one."""
    assert the_call(request(), own("started"), own("completed"), output(), own("started")).blocks_resume
    assert the_call(request(), own("started"), own("unknown"), output(), own("started")).blocks_resume
    assert the_call(request(), own("started"), output(), own("started", attempt=2)).blocks_resume


@pytest.mark.guarantee("G8")
def test_decision_to_retry_covers_one_attempt() -> None:
    """Once the further attempt has begun, it is uncertain as any."""
    lines = [
        request(),
        own("started"),
        own("unknown"),
        own("resolved", outcome="retry", by="ann", note="sure"),
    ]
    decided = the_call(*lines)
    assert decided.may_run_again
    assert decided.decision is not None
    assert (decided.decision.by, decided.decision.note) == ("ann", "sure")
    for attempt in (1, 2):
        call = the_call(*lines, own("started", attempt=attempt))
        assert (call.verdict, call.may_run_again, call.blocks_resume) == (UNCERTAIN, False, True)
        assert the_call(*lines, own("intended", attempt=attempt)).may_run_again is False
    old = the_call(*lines, own("started", attempt=2), own("resolved", outcome="retry"))
    assert old.blocks_resume, "a decision on an earlier attempt is not one on this"


def test_decision_stands_whatever_is_found_later() -> None:
    """A recovery that finds the call open again doesn't ask again."""
    lines = [request(), own("started"), own("resolved", outcome="happened")]
    for later in (own("unknown"), own("aborted"), output(text="aborted"), output()):
        assert the_call(*lines, later).verdict is COMPLETED
    assert the_call(*lines, own("resolved", outcome="not_happened")).verdict is FAILED


def test_later_attempt_of_another_id_takes_the_place_of_a_superseded_call() -> None:
    """Attempts are linked by their key; the later one is what counts."""
    lines = [
        own("started", "c1", key="m-17"),
        own("resolved", "c1", key="m-17", outcome="retry"),
        own("started", "c2", key="m-17", attempt=2),
    ]
    calls = {call.call_id: call for call in folded(lines).calls()}
    assert not calls["c1"].may_run_again
    assert not calls["c1"].blocks_resume
    assert calls["c2"].blocks_resume
    marked = [own("started", "c1", key="k"), own("superseded", "c1", key="k")]
    assert folded(marked).calls()[0].blocks_resume
    assert not folded([own("started", "c2", key="k", attempt=2), *marked]).calls()[0].blocks_resume


@pytest.mark.guarantee("G8")
@pytest.mark.parametrize("state", ["intended", "declined", "failed"])
def test_attempt_that_never_began_takes_no_doubt_away(state: str) -> None:
    """What the first attempt did is still not known."""
    doubt = [request(), own("started", key="k"), own("unknown")]
    assert the_call(*doubt, own(state, attempt=2)).blocks_resume
    assert not the_call(*doubt, own("resolved", outcome="retry"), own(state, attempt=2)).blocks_resume
    assert the_call(own("failed"), own("intended", attempt=2)).verdict is PENDING
    other = [own("superseded", key="k"), own("intended", "c2", key="k", attempt=2)]
    assert [call.blocks_resume for call in folded([*doubt, *other]).calls()] == [True, False]
    begun = folded([*doubt, *other, own("started", "c2", key="k", attempt=2)])
    assert {call.call_id: call.blocks_resume for call in begun.calls()} == {"c1": False, "c2": True}


@pytest.mark.guarantee("G8")
def test_start_in_another_turn_is_no_end_of_an_earlier_doubt() -> None:
    """A call id used again, by a writer that doesn't name the turn of its calls."""
    lines = [begin("t1"), own("started"), begin("t2"), own("intended"), own("started"), own("completed")]
    assert [(call.turn_id, call.verdict) for call in folded(lines).calls()] == [
        ("t2", COMPLETED),
        ("t1", UNCERTAIN),
    ]
    late = [begin("t1"), own("started"), event("task_complete", turn_id="t1"), own("completed")]
    assert the_call(*late).verdict is COMPLETED


@pytest.mark.guarantee("G8")
@pytest.mark.parametrize(
    "asked",
    [
        own("started", name="find", kind="shell"),
        own("started", name="read", kind="mcp"),
        own("started", name="Read", kind="patch"),
        request(name="read", namespace="mcp__mail"),
        request(name="bash"),
        item("McpToolCall", "c1", server="mail", tool="read", arguments={}, status="inProgress"),
        event("mcp_tool_call_end", call_id="c1", invocation={"server": "mail", "tool": "read"}, result={}),
    ],
)
def test_name_of_a_harmless_tool_makes_no_other_call_harmless(asked: RolloutLine) -> None:
    """A command `find` may delete, and a server's `read` may do anything."""
    assert the_call(asked).blocks_resume
    assert not the_call(asked).may_run_again


@pytest.mark.parametrize(
    "between",
    [
        event("thread_rolled_back", num_turns=1),
        line("compacted", {"message": "m", "replacement_history": []}),
    ],
)
@pytest.mark.case("B66")
def test_call_before_a_rollback_or_a_checkpoint_still_happened(between: RolloutLine) -> None:
    """Neither undoes a side effect, and a result behind it is still the call's."""
    assert the_call(begin(), request(), own("started"), between).blocks_resume
    assert the_call(begin(), request(), own("started"), between, output()).verdict is COMPLETED


@pytest.mark.case("B64")
def test_cancelled_turn_leaves_its_calls_as_they_are() -> None:
    """The marker says nothing of what a call did: what wasn't begun is pending, the rest uncertain."""
    lines = [begin(), own("intended", "c1"), own("started", "c2"), own("started", "c3"), own("aborted", "c3")]
    fold = folded([*lines, event("turn_aborted", turn_id="t1", reason="interrupted")])
    assert {call.call_id: call.verdict for call in fold.calls()} == {
        "c1": PENDING, "c2": UNCERTAIN, "c3": UNCERTAIN
    }  # fmt: skip
    assert fold.turn_id is None


def test_reason_tells_how_the_writer_ended() -> None:
    """A crash, a clean end and a writer that may still live look different to people."""
    started = [writer("opened", epoch=3), own("started")]
    assert "writer" not in the_call(*started).reason
    assert "closed" in the_call(*started, writer("closed", epoch=3)).reason
    assert "without closing" in the_call(*started, writer("opened", epoch=4)).reason
    fold = folded([*started, writer("opened", epoch=4)])
    assert (fold.epoch, fold.calls()[0].epoch) == (4, 3)


@pytest.mark.guarantee("G8")
def test_approval_that_was_declined_is_the_end_of_a_call_that_had_not_begun() -> None:
    """Only then: a call that began all the same is uncertain."""
    declined = line("x_approval", {"approval_id": "a1", "call_id": "c1", "state": "declined"})
    assert the_call(own("intended"), declined).verdict is DECLINED
    assert the_call(own("started"), declined).verdict is UNCERTAIN
    assert the_call(request(), declined).verdict is UNCERTAIN


@pytest.mark.parametrize("state", ["withdrawn", "expired"])
def test_question_without_an_answer_takes_no_answer_back(state: str) -> None:
    """A call may be asked about twice."""
    declined = line("x_approval", {"approval_id": "a1", "call_id": "c1", "state": "declined"})
    unanswered = line("x_approval", {"approval_id": "a2", "call_id": "c1", "state": state})
    assert the_call(own("intended"), declined, unanswered).verdict is DECLINED
    assert the_call(own("intended"), unanswered).verdict is PENDING


@pytest.mark.guarantee("G8")
@pytest.mark.parametrize(("state", "open_calls"), [("intended", 2), ("declined", 1), ("started", 1)])
def test_attempt_that_never_began_replaces_none(state: str, open_calls: int) -> None:
    """The one that is superseded stays in doubt until a later one has begun."""
    fold = folded([own("superseded", "c1", key="k"), own(state, "c2", key="k", attempt=2)])
    assert len(fold.open_calls()) == open_calls
    assert any(each.call_id == "c1" for each in fold.open_calls()) is (state != "started")


def test_output_without_its_call_is_no_call() -> None:
    """An orphan says nothing."""
    assert folded([output("zz")]).calls() == []


@pytest.mark.parametrize(
    "payload",
    [
        {"state": "started"},
        {"call_id": "c1"},
        {"call_id": ["c1"], "state": "started"},
        {"call_id": "c1", "state": {"a": 1}},
    ],
)
def test_own_record_that_cannot_be_read_is_damage(payload: dict[str, Any]) -> None:
    """It may have been the start of a call."""
    assert [each.reason for each in folded([line("x_call", payload)]).damaged_ranges] == ["unreadable_call"]


@pytest.mark.guarantee("G7")
def test_calls_kept_are_bounded_and_what_goes_is_told() -> None:
    """Ended calls go silently, the oldest first; an open one that goes blocks as damage."""
    ended = ToolCallFold()
    for number in range(CLOSED_CALLS_MAX + 10):
        ended.add(request(f"c{number}"))
        ended.add(output(f"c{number}"))
    assert len(ended.calls()) == CLOSED_CALLS_MAX
    assert not ended.damaged_ranges
    hanging = folded(request(f"c{number}") for number in range(OPEN_CALLS_MAX + 1))
    assert len(hanging.open_calls()) == OPEN_CALLS_MAX
    assert [each.reason for each in hanging.damaged_ranges] == ["too_many_calls"]
    whole = ToolCallFold(closed_max=None)
    for number in range(CLOSED_CALLS_MAX + 10):
        whole.add(own("completed", f"c{number}"))
    assert len(whole.calls()) == CLOSED_CALLS_MAX + 10


@pytest.mark.case("B60")
@pytest.mark.guarantee("G8")
@pytest.mark.parametrize("seed", range(10))
def test_no_prefix_of_any_history_lets_an_unsafe_call_run_again(seed: int) -> None:
    """Fifty histories a seed: whatever the order of the records, wherever the process died, nobody is
    told to run an unsafe call that may have run."""
    for number in range(50):
        fold = ToolCallFold()
        for each in random_history(random.Random(seed * 1000 + number), decisions=False):
            fold.add(each)
            for call in fold.calls():
                assert call.effect is Effect.UNSAFE
                assert not call.may_run_again
                replaced = call.reason == REPLACED_RULE.reason
                assert call.verdict is not UNCERTAIN or call.blocks_resume or replaced


@pytest.mark.guarantee("G8")
@pytest.mark.parametrize("seed", range(10))
def test_started_call_is_never_forgotten_before_something_tells_its_end(seed: int) -> None:
    """A naive judge that knows one call only agrees: after a start, without an end, it blocks."""
    for number in range(50):
        rng = random.Random(seed * 1000 + number)
        fold, doubt = ToolCallFold(), ""
        for _ in range(rng.randint(1, 15)):
            told = rng.choice(["started", "completed", "failed", "unknown", "aborted", "output", "intended"])
            fold.add(output() if told == "output" else own(told))
            if told in ("started", "unknown", "aborted"):
                doubt = told
            elif told in ("completed", "failed") or (told == "output" and doubt == "started"):
                doubt = ""
            assert any(call.blocks_resume for call in fold.calls()) == bool(doubt)
