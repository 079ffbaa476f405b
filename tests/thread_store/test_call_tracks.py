"""What a call leaves on both tracks, by its kind and by how it ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import ThreadFold, ToolVerdict, encode_item, tracks
from protocol.errors import CallRefused
from protocol.items import RolloutItem
from protocol.line import decode_line
from protocol.tool_calls import ToolCallFold
from thread_store.turns.call_records import CallPhase, CallRecords
from thread_store.turns.call_tracks import CALL_KINDS, CallEnd, CallSpec, end_records, request_records


def spec_of(kind: str, **how: Any) -> CallSpec:
    names: dict[str, dict[str, Any]] = {
        "shell": {"name": "shell", "arguments": {"command": ["make", "test"]}},
        "patch": {"name": "apply_patch", "arguments": "*** Begin Patch\n*** End Patch"},
        "mcp": {"name": "read", "arguments": '{"path": "a"}', "namespace": "mcp__files"},
        "agent": {"name": "spawn_agent", "arguments": {"task": "look"}},
    }
    given = names.get(kind, {"name": "tool", "arguments": {"n": 1}})
    return CallSpec(**{"turn_id": "t1", "call_id": "c1", "kind": kind, "cwd": "/srv", **given, **how})


def lines_of(items: list[RolloutItem]) -> list[Any]:
    return [decode_line(encode_item(each, timestamp="2026-11-29T10:11:12.345Z")) for each in items]


def fold_of(items: list[RolloutItem]) -> ToolCallFold:
    """In the turn of the calls."""
    fold = ToolCallFold()
    for line in lines_of([*tracks.turn_started("t1"), *items]):
        fold.add(line)
    return fold


def tags(items: list[RolloutItem]) -> list[str]:
    found = []
    for each in items:
        payload = lines_of([each])[0].payload_object()
        found.append(payload["item"]["type"] if "item" in payload else payload.get("type", each.record_type))
    return found


MCP_END = "mcp_tool_call_end"


@pytest.mark.parametrize(
    ("kind", "asked_as", "shown", "ended"),
    [
        ("shell", "function_call", ["CommandExecution"], ["CommandExecution", "function_call_output"]),
        ("patch", "custom_tool_call", [], ["patch_apply_end", "FileChange", "custom_tool_call_output"]),
        (
            "mcp",
            "function_call",
            ["McpToolCall"],
            ["mcp_tool_call_end", "McpToolCall", "function_call_output"],
        ),
        ("custom", "function_call", ["DynamicToolCall"], ["DynamicToolCall", "function_call_output"]),
        ("agent", "function_call", ["DynamicToolCall"], ["DynamicToolCall", "function_call_output"]),
    ],
)
def test_each_kind_has_its_own_records(kind: str, asked_as: str, shown: list[str], ended: list[str]) -> None:
    """The request, what is shown while it runs, and its end, which comes before the model's output."""
    asked, begun = request_records(spec_of(kind))
    assert (tags(asked), tags(begun)) == ([asked_as], shown)
    assert tags(end_records(spec_of(kind), CallEnd(state="completed", output="ok"))) == ended


@pytest.mark.parametrize("kind", ["patch", "mcp"])
def test_call_that_was_cut_short_is_not_shown_as_failed(kind: str) -> None:
    """Where the display has no word for it, it gets none: the model's output says that nobody knows."""
    end = CallEnd(state="aborted", output="outcome unknown: …", error="CancelledError")
    assert len(end_records(spec_of(kind), end)) == 1
    assert tags(end_records(spec_of("shell"), end)) == ["CommandExecution", "function_call_output"]


def test_tool_that_takes_free_text_has_it_as_it_is() -> None:
    """No JSON is made of it."""
    spec = spec_of("custom", arguments="SELECT 1", free_text=True)
    [asked], _ = request_records(spec)
    assert lines_of([asked])[0].payload_object()["input"] == "SELECT 1"
    assert tags(end_records(spec, CallEnd(state="completed", output="1")))[-1] == "custom_tool_call_output"


@pytest.mark.parametrize(
    ("arguments", "command", "folder"),
    [
        ({"command": ["ls", "-l"], "workdir": "/tmp"}, ["ls", "-l"], "file:///tmp"),
        ('{"cmd": "make test | tail"}', ["sh", "-c", "make test | tail"], "file:///srv"),
        ("no JSON", ["shell"], "file:///srv"),
        ({"command": [], "cwd": "relative"}, ["shell"], "file:///srv"),
    ],
)
def test_command_is_shown_as_it_was_given(arguments: Any, command: list[str], folder: str) -> None:
    """A line is one that a shell runs; where nothing is known, the name of the tool stands there."""
    _, [shown] = request_records(spec_of("shell", arguments=arguments))
    item = lines_of([shown])[0].payload_object()["item"]
    assert (item["command"], item["cwd"], item["status"]) == (command, folder, "in_progress")


def test_model_reads_the_arguments_as_it_wrote_them() -> None:
    """Its own text, whatever the kind."""
    [asked], _ = request_records(spec_of("mcp"))
    payload = lines_of([asked])[0].payload_object()
    assert (payload["arguments"], payload["namespace"]) == ('{"path": "a"}', "mcp__files")


VERDICTS = {
    "completed": ToolVerdict.COMPLETED,
    "failed": ToolVerdict.FAILED,
    "declined": ToolVerdict.DECLINED,
    "aborted": ToolVerdict.UNCERTAIN,
}
ENDS: dict[str, Callable[[CallRecords], list[RolloutItem]]] = {
    "completed": lambda call: _told(call, lambda: call.completed("ok", exit_code=0)),
    "failed": lambda call: _told(call, lambda: call.failed("exit 2", exit_code=2)),
    "declined": lambda call: _told(call, lambda: call.declined("not today")),
    "aborted": lambda call: call.end(KeyboardInterrupt()),
}


def _told(call: CallRecords, tell: Callable[[], None]) -> list[RolloutItem]:
    tell()
    return call.end()


@pytest.mark.guarantee("G8")
@pytest.mark.parametrize("kind", CALL_KINDS)
@pytest.mark.parametrize("state", VERDICTS)
def test_no_prefix_of_a_call_tells_more_than_is_known(kind: str, state: str) -> None:
    """A file may end behind any line: a call that was cut short is never taken for one that ended, and one
    that ended is either known to or uncertain."""
    call = CallRecords(spec_of(kind))
    begun = call.start()
    call.note(CallPhase.STARTED)
    ended = ENDS[state](call)
    for count in range(1, len(begun)):
        [found] = fold_of(begun[:count]).calls()
        assert found.verdict is ToolVerdict.UNCERTAIN
    for count in range(len(ended) + 1):
        [found] = fold_of([*begun, *ended[:count]]).calls()
        if state == "aborted" or count == 0:
            assert found.verdict is ToolVerdict.UNCERTAIN
            assert found.blocks_resume
        assert found.verdict is not ToolVerdict.PENDING
        assert not found.may_run_again
    assert found.verdict is VERDICTS[state]
    assert found.has_output


@given(moves=st.lists(st.sampled_from(["intend", "start", "end", "decline"]), max_size=6))
def test_call_never_goes_back(moves: list[str]) -> None:
    """Whatever is tried, in whatever order: what was refused changes nothing, and the fold follows."""
    call, fold = CallRecords(spec_of("custom")), ThreadFold()
    fold.add(lines_of(tracks.turn_started("t1"))[0])
    phases = [CallPhase.MADE]
    leads = {
        "intend": (lambda: call.intend(), CallPhase.INTENDED),
        "start": (lambda: call.start(), CallPhase.STARTED),
        "end": (lambda: call.end(), CallPhase.ENDED),
        "decline": (lambda: call.decline("no"), CallPhase.ENDED),
    }
    for move in moves:
        make, phase = leads[move]
        try:
            items = make()
        except CallRefused:
            assert call.phase is phases[-1]
            continue
        phases.append(call.note(phase).phase)
        for line in lines_of(items):
            fold.add(line)
    assert phases == sorted(phases, key=list(CallPhase).index)
    assert len(phases) == len(set(phases))
    found = fold.calls.calls()
    assert [call.verdict for call in found if call.verdict is ToolVerdict.PENDING] == (
        [ToolVerdict.PENDING] if phases[-1] is CallPhase.INTENDED else []
    )
