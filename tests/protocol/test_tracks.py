"""One fact on both tracks: every record that a reader of either kind needs, in Codex's shape."""

from __future__ import annotations

import json
from typing import Any

import pytest

from protocol import ResponseItem, RolloutItem, TurnContext, bind, decode_line, encode_item, tracks

# The keys that Codex itself writes for these records (its version 0.171), without the optional
# ones that we leave out. An item of an unknown type, or one that misses a key, is passed over.
CODEX_KEYS: dict[str, frozenset[str]] = {
    "message": frozenset({"type", "role", "content"}),
    "reasoning": frozenset({"type", "summary"}),
    "function_call": frozenset({"type", "name", "arguments", "call_id"}),
    "function_call_output": frozenset({"type", "call_id", "output"}),
    "custom_tool_call": frozenset({"type", "call_id", "name", "input"}),
    "custom_tool_call_output": frozenset({"type", "call_id", "output"}),
    "user_message": frozenset({"type", "message"}),
    "agent_message": frozenset({"type", "message"}),
    "agent_reasoning": frozenset({"type", "text"}),
    "context_compacted": frozenset({"type"}),
    "plan_update": frozenset({"type", "plan"}),
    "task_started": frozenset({"type", "turn_id", "started_at"}),
    "task_complete": frozenset({"type", "turn_id", "completed_at"}),
    "turn_aborted": frozenset({"type", "turn_id", "reason", "completed_at"}),
    "patch_apply_end": frozenset({"type", "call_id", "stdout", "stderr", "success", "status", "changes"}),
    "mcp_tool_call_end": frozenset({"type", "call_id", "invocation", "duration", "result"}),
    "item_completed": frozenset({"type", "thread_id", "turn_id", "item", "completed_at_ms"}),
    "UserMessage": frozenset({"type", "id", "content"}),
    "AgentMessage": frozenset({"type", "id", "content"}),
    "Reasoning": frozenset({"type", "id", "summary_text"}),
    "CommandExecution": frozenset({"type", "id", "command", "cwd", "parsed_cmd", "source", "status"}),
    "DynamicToolCall": frozenset({"type", "id", "tool", "arguments", "status"}),
    "McpToolCall": frozenset({"type", "id", "server", "tool", "arguments", "status"}),
    "FileChange": frozenset({"type", "id", "changes", "status"}),
    "ContextCompaction": frozenset({"type", "id"}),
}
# Codex passes over records of these kinds that have any further key.
EXACT = {"context_compacted": CODEX_KEYS["context_compacted"], "plan_update": {"type", "plan", "explanation"}}

ARGUMENTS = {"to": "ann", "n": 1}
FACTS: dict[str, list[RolloutItem]] = {
    "user_message": tracks.user_message("hi"),
    "user_message_with_image": tracks.user_message("look", images=["data:image/png;base64,AA"]),
    "agent_message": tracks.agent_message("done", phase="final_answer"),
    "agent_reasoning": tracks.agent_reasoning(["first", "second"], encrypted_content="zz"),
    "command_call": tracks.command_call(call_id="c1", command=["make", "test"], cwd="/srv/a b"),
    "command_result": tracks.command_result(
        call_id="c1", command=["make", "test"], cwd="/srv/a b", output="1 failed", exit_code=2, seconds=0.5
    ),
    "tool_call": tracks.tool_call(call_id="c2", name="send_mail", arguments=ARGUMENTS),
    "tool_result": tracks.tool_result(
        call_id="c2", name="send_mail", arguments=ARGUMENTS, output={"ok": True}
    ),
    "custom_call": tracks.tool_call(call_id="c3", name="sql", arguments="select 1", custom=True),
    "custom_result": tracks.tool_result(
        call_id="c3", name="sql", arguments="select 1", output="no", error="declined", custom=True
    ),
    "patch_call": tracks.patch_call(call_id="c4", patch="*** Begin Patch"),
    "patch_result": tracks.patch_result(
        call_id="c4", changes={"/srv/a.py": {"type": "add", "content": "x"}}, output="ok"
    ),
    "mcp_call": tracks.mcp_call(call_id="c5", server="files", tool="read", arguments={"path": "a"}),
    "mcp_result": tracks.mcp_result(
        call_id="c5", server="files", tool="read", arguments={"path": "a"}, output="text", seconds=0.1
    ),
    "mcp_error": tracks.mcp_result(
        call_id="c5", server="files", tool="read", arguments={}, output="closed", error="closed"
    ),
    "compaction": tracks.compaction("summary", [ResponseItem.message("user", "hi")]),
    "plan_update": tracks.plan_update([("a", "completed"), ("b", "in_progress")], explanation="why"),
    "turn_started": tracks.turn_started(
        "t1",
        context=TurnContext(
            cwd="/srv", model="m", approval_policy="never", sandbox_policy={"type": "read-only"}
        ),
    ),
    "turn_completed": tracks.turn_completed("t1", last_agent_message="done", started_ms=1),
    "turn_aborted": tracks.turn_aborted("t1", started_ms=1),
}


def written(items: list[RolloutItem]) -> list[tuple[str, dict[str, Any]]]:
    """The records as they stand in a file: (type, payload)."""
    found = []
    for item in items:
        line = encode_item(bind(item, "T", "t1"), timestamp="2026-11-29T10:11:12.345Z", ordinal=1)
        decoded = decode_line(line)
        assert decoded.type is not None
        found.append((decoded.type, json.loads(line)["payload"]))
    return found


def kinds(items: list[RolloutItem]) -> list[str]:
    return [
        payload["item"]["type"] if "item" in payload else payload.get("type", record_type)
        for record_type, payload in written(items)
    ]


@pytest.mark.parametrize("fact", FACTS)
def test_records_have_the_keys_that_codex_wants(fact: str) -> None:
    """No record of a fact misses a key without which Codex would pass over it."""
    for record_type, payload in written(FACTS[fact]):
        if record_type not in ("response_item", "event_msg"):
            continue
        kind = payload["type"]
        assert CODEX_KEYS[kind] <= payload.keys()
        if kind in EXACT:
            assert payload.keys() <= EXACT[kind]
        if kind == "item_completed":
            assert CODEX_KEYS[payload["item"]["type"]] <= payload["item"].keys()
            assert (payload["thread_id"], payload["turn_id"]) == ("T", "t1")


@pytest.mark.parametrize("fact", FACTS)
def test_records_read_back_as_they_were(fact: str) -> None:
    """A reader gets the very items that were recorded."""
    for item in FACTS[fact]:
        bound = bind(item, "T", "t1")
        again = decode_line(encode_item(bound, timestamp="x")).item()
        assert type(again) is type(bound)
        if fact != "compaction":
            assert again == bound


@pytest.mark.parametrize(
    ("fact", "expected"),
    [
        ("user_message", ["message", "user_message", "UserMessage"]),
        ("agent_message", ["agent_message", "AgentMessage", "message"]),
        ("agent_reasoning", ["agent_reasoning", "agent_reasoning", "Reasoning", "reasoning"]),
        ("command_call", ["function_call", "CommandExecution"]),
        ("command_result", ["CommandExecution", "function_call_output"]),
        ("tool_call", ["function_call", "DynamicToolCall"]),
        ("tool_result", ["DynamicToolCall", "function_call_output"]),
        ("custom_call", ["custom_tool_call", "DynamicToolCall"]),
        ("custom_result", ["DynamicToolCall", "custom_tool_call_output"]),
        ("patch_call", ["custom_tool_call"]),
        ("patch_result", ["patch_apply_end", "FileChange", "custom_tool_call_output"]),
        ("mcp_call", ["function_call", "McpToolCall"]),
        ("mcp_result", ["mcp_tool_call_end", "McpToolCall", "function_call_output"]),
        ("compaction", ["compacted", "context_compacted", "ContextCompaction"]),
        ("plan_update", ["function_call", "plan_update", "function_call_output"]),
        ("turn_started", ["task_started", "turn_context"]),
    ],
)
def test_fact_is_on_both_tracks(fact: str, expected: list[str]) -> None:
    """What the model saw and what a person sees are both there, in Codex's order."""
    assert kinds(FACTS[fact]) == expected


def test_message_text_is_the_same_in_every_form() -> None:
    """The forms of one message can't differ."""
    for fact, text in (("user_message", "hi"), ("agent_message", "done")):
        texts = set()
        for _, payload in written(FACTS[fact]):
            content = payload.get("content") or payload.get("item", {}).get("content")
            texts.add(payload["message"] if content is None else content[0]["text"])
        assert texts == {text}


def test_image_is_in_every_form_of_a_user_message() -> None:
    """Text and image go to the model and to the screen."""
    message, event, completed = (payload for _, payload in written(FACTS["user_message_with_image"]))
    url = "data:image/png;base64,AA"
    assert message["content"][1] == {"type": "input_image", "image_url": url}
    assert event["images"] == [url]
    assert completed["item"]["content"][1] == {"type": "image", "image_url": url}


def test_result_replaces_the_item_of_its_call() -> None:
    """Call and result have one item id, so that a display shows one call."""
    for call, result in (
        ("command_call", "command_result"),
        ("tool_call", "tool_result"),
        ("mcp_call", "mcp_result"),
    ):
        items = [p["item"] for _, p in (*written(FACTS[call]), *written(FACTS[result])) if "item" in p]
        assert len({item["id"] for item in items}) == 1
        assert [item["type"] for item in items] == [items[0]["type"]] * 2


@pytest.mark.parametrize(
    ("fact", "status"),
    [
        ("command_call", "in_progress"),
        ("command_result", "failed"),
        ("tool_call", "in_progress"),
        ("tool_result", "completed"),
        ("custom_result", "failed"),
        ("patch_result", "completed"),
        ("mcp_call", "inProgress"),
        ("mcp_result", "completed"),
        ("mcp_error", "failed"),
    ],
)
def test_status_is_spelled_as_codex_spells_it(fact: str, status: str) -> None:
    """Codex passes over a record with another spelling."""
    assert [p["item"]["status"] for _, p in written(FACTS[fact]) if "item" in p] == [status]


def test_command_folder_is_a_file_uri() -> None:
    """Codex wants a URI there."""
    item = written(FACTS["command_call"])[1][1]["item"]
    assert item["cwd"] == "file:///srv/a%20b"


def test_arguments_keep_the_text_of_the_model() -> None:
    """The model's own JSON text goes to the model track as it is; a person sees the value."""
    call, completed = written(tracks.tool_call(call_id="c", name="n", arguments='{ "a" : 1.50 }'))
    assert call[1]["arguments"] == '{ "a" : 1.50 }'
    assert completed[1]["item"]["arguments"] == {"a": 1.5}


@pytest.mark.parametrize("text", ["{oops", '{"a":NaN}', "\ud800", ""])
def test_arguments_that_are_no_json_are_recorded_all_the_same(text: str) -> None:
    """A model that writes broken arguments can't keep its call out of the record."""
    call, completed = written(tracks.tool_call(call_id="c", name="n", arguments=text))
    assert call[1]["arguments"] == text
    assert completed[1]["item"]["arguments"] == text


def test_turn_context_belongs_to_the_turn() -> None:
    """The settings carry the id of the turn that they start."""
    started, context = written(FACTS["turn_started"])
    assert started[1]["turn_id"] == context[1]["turn_id"] == "t1"


def test_plan_is_in_the_arguments_of_the_call() -> None:
    """Codex reads plans from the tool call only."""
    call, event, output = written(FACTS["plan_update"])
    arguments = json.loads(call[1]["arguments"])
    assert arguments == {"explanation": "why", "plan": event[1]["plan"]}
    assert output[1]["call_id"] == call[1]["call_id"]


def test_failed_turn_says_so() -> None:
    """A turn with an error reads as failed."""
    [(_, payload)] = written(tracks.turn_completed("t1", error="out of tokens"))
    assert payload["error"] == {"message": "out of tokens"}
    assert "duration_ms" not in payload


def test_mcp_result_that_is_an_error_failed() -> None:
    """A server that answers with isError has failed, though it answered."""
    records = written(
        tracks.mcp_result(
            call_id="c",
            server="s",
            tool="t",
            arguments={},
            output="no",
            result={"content": [], "isError": True},
        )
    )
    assert records[0][1]["result"] == {"Ok": {"content": [], "isError": True}}
    assert records[1][1]["item"]["status"] == "failed"
