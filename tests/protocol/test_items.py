"""Typed items: Codex's keys, checked where they are made, typed again where they are read."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from protocol import (
    AgentMessageEvent,
    AgentMessageItem,
    CallItem,
    Compacted,
    ContextCompacted,
    EventMsg,
    FunctionCall,
    FunctionCallOutput,
    InputImage,
    InputText,
    ItemCompleted,
    ItemNotEncodable,
    Message,
    MessageCompleted,
    OutputText,
    PlanItem,
    PlanStep,
    RawItem,
    Reasoning,
    ResponseItem,
    RolloutItem,
    TaskComplete,
    TaskStarted,
    ThreadId,
    TokenUsage,
    TokenUsageRecord,
    TurnContext,
    TurnItem,
    UserMessageEvent,
    UserMessageItem,
    WorldState,
    bind,
    decode_item,
    encode_item,
    new_item_id,
)
from protocol.codec import kind_of
from protocol.context import InterAgentCommunication
from protocol.event_variants import ExecCommandEnd, ItemStarted
from protocol.response_items import CustomToolCallOutput, FreeFunctionCallOutput, FreeMessage
from protocol.response_variants import AgentToAgentMessage, EncryptedCompaction, ToolSearchCall
from protocol.turn_items import UserText

USAGE = TokenUsage(input_tokens=5, output_tokens=2, total_tokens=7)


def payload_of(item: RolloutItem) -> Any:
    return json.loads(encode_item(item, timestamp="T"))["payload"]


def decoded(record_type: str, payload: Any) -> RolloutItem:
    return decode_item(record_type, json.dumps(payload).encode())


TEXT_MESSAGES: list[tuple[RolloutItem, dict[str, Any]]] = [
    (
        ResponseItem.message("user", "hi"),
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
    ),
    (
        ResponseItem.message("developer", "hi"),
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "hi"}]},
    ),
    (
        ResponseItem.message("assistant", "hi", phase="final_answer"),
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "hi"}],
            "phase": "final_answer",
        },
    ),
    (
        ResponseItem.function_call(name="shell", arguments='{ "cmd" : "ls" }', call_id="c1"),
        {"type": "function_call", "name": "shell", "arguments": '{ "cmd" : "ls" }', "call_id": "c1"},
    ),
    (
        ResponseItem.function_call(name="shell", arguments={"cmd": "é", "n": 1.5}, call_id="c1"),
        {"type": "function_call", "name": "shell", "arguments": '{"cmd":"é","n":1.5}', "call_id": "c1"},
    ),
    (
        ResponseItem.function_call_output(call_id="c1", output="done"),
        {"type": "function_call_output", "call_id": "c1", "output": "done"},
    ),
    (
        ResponseItem.function_call_output(call_id="c1", output=[{"type": "input_text", "text": "done"}]),
        {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "done"}]},
    ),
    (
        ResponseItem.custom_tool_call(name="apply_patch", input="*** Begin", call_id="c2"),
        {"type": "custom_tool_call", "call_id": "c2", "name": "apply_patch", "input": "*** Begin"},
    ),
    (
        ResponseItem.custom_tool_call_output(call_id="c2", output="ok"),
        {"type": "custom_tool_call_output", "call_id": "c2", "output": "ok"},
    ),
    (EventMsg.user_message("hi"), {"type": "user_message", "message": "hi"}),
    (EventMsg.agent_message("hi"), {"type": "agent_message", "message": "hi"}),
    (
        EventMsg.item_completed(TurnItem.user_message("hi", item_id="i1"), thread_id="T", turn_id="t1"),
        {
            "type": "item_completed",
            "thread_id": "T",
            "turn_id": "t1",
            "item": {"type": "UserMessage", "id": "i1", "content": [{"type": "text", "text": "hi"}]},
        },
    ),
    (
        EventMsg.item_completed(
            TurnItem.agent_message("hi", item_id="i2"), thread_id="T", turn_id="t1", completed_at_ms=9
        ),
        {
            "type": "item_completed",
            "thread_id": "T",
            "turn_id": "t1",
            "item": {"type": "AgentMessage", "id": "i2", "content": [{"type": "Text", "text": "hi"}]},
            "completed_at_ms": 9,
        },
    ),
]

OTHERS: list[tuple[RolloutItem, dict[str, Any]]] = [
    (
        ResponseItem.reasoning(["a"], encrypted_content="zz", item_id="rs_1"),
        {
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": "a"}],
            "encrypted_content": "zz",
            "id": "rs_1",
        },
    ),
    (
        ResponseItem.local_shell_call(call_id="c", command=["ls"], cwd="/srv"),
        {
            "type": "local_shell_call",
            "status": "in_progress",
            "action": {"type": "exec", "command": ["ls"], "working_directory": "/srv"},
            "call_id": "c",
        },
    ),
    (
        ResponseItem.web_search_call(query="q"),
        {"type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "q"}},
    ),
    (
        EventMsg.task_started("t1", started_at=1772600767.9, model_context_window=10),
        {"type": "task_started", "turn_id": "t1", "started_at": 1772600767, "model_context_window": 10},
    ),
    (
        EventMsg.task_complete("t1", last_agent_message="bye", completed_at=5, duration_ms=7.9, error="no"),
        {
            "type": "task_complete",
            "turn_id": "t1",
            "last_agent_message": "bye",
            "completed_at": 5,
            "duration_ms": 7,
            "error": {"message": "no"},
        },
    ),
    (EventMsg.turn_aborted("t1"), {"type": "turn_aborted", "turn_id": "t1", "reason": "interrupted"}),
    (EventMsg.context_compacted(), {"type": "context_compacted"}),
    (
        EventMsg.plan_update(
            [("a", "pending"), {"step": "b", "status": "completed"}, PlanStep("c", "pending")]
        ),
        {
            "type": "plan_update",
            "plan": [
                {"step": "a", "status": "pending"},
                {"step": "b", "status": "completed"},
                {"step": "c", "status": "pending"},
            ],
        },
    ),
    (
        EventMsg.patch_apply_end(
            call_id="c", turn_id="t", status="declined", changes={"/a": {"type": "add", "content": "x"}}
        ),
        {
            "type": "patch_apply_end",
            "call_id": "c",
            "turn_id": "t",
            "stdout": "",
            "stderr": "",
            "success": False,
            "status": "declined",
            "changes": {"/a": {"type": "add", "content": "x"}},
        },
    ),
    (
        EventMsg.mcp_tool_call_end(
            call_id="c", server="s", tool="t", arguments={"p": 1}, seconds=1.5, error="closed"
        ),
        {
            "type": "mcp_tool_call_end",
            "call_id": "c",
            "invocation": {"server": "s", "tool": "t", "arguments": {"p": 1}},
            "duration": {"secs": 1, "nanos": 500000000},
            "result": {"Err": "closed"},
        },
    ),
    (
        EventMsg.web_search_end(call_id="c", query="q"),
        {"type": "web_search_end", "call_id": "c", "query": "q", "action": {"type": "search", "query": "q"}},
    ),
    (EventMsg.thread_rolled_back(2), {"type": "thread_rolled_back", "num_turns": 2}),
    (EventMsg.agent_reasoning("hm"), {"type": "agent_reasoning", "text": "hm"}),
    (WorldState(full=True, state={"a": 1}), {"full": True, "state": {"a": 1}}),
    (
        TurnContext(cwd="/srv", model="m", approval_policy="never", sandbox_policy={"type": "read-only"}),
        {
            "cwd": "/srv",
            "approval_policy": "never",
            "sandbox_policy": {"type": "read-only"},
            "model": "m",
        },
    ),
    (
        InterAgentCommunication(author="a", recipient="b", content="hi", trigger_turn=False),
        {"author": "a", "recipient": "b", "content": "hi", "trigger_turn": False},
    ),
]


@pytest.mark.parametrize(("item", "payload"), [*TEXT_MESSAGES, *OTHERS])
def test_item_has_the_keys_of_the_format(item: RolloutItem, payload: dict[str, Any]) -> None:
    """What a constructor makes is written with Codex's keys and nothing else."""
    assert payload_of(item) == payload


@pytest.mark.parametrize(("item", "payload"), [*TEXT_MESSAGES, *OTHERS])
def test_written_item_is_read_as_the_same_item(item: RolloutItem, payload: dict[str, Any]) -> None:
    """Reading gives the class and the values that were recorded."""
    again = decoded(item.record_type, payload)
    assert type(again) is type(item)
    assert again == item


@pytest.mark.parametrize("item", [item for item, _ in TEXT_MESSAGES])
def test_frequent_items_need_no_search(item: RolloutItem) -> None:
    """The kinds that make up most of a rollout are checked when made, so the writer need not look."""
    assert kind_of(item).plain
    assert item.checks_values


@pytest.mark.parametrize(
    "make",
    [
        lambda bad: ResponseItem.message(bad, "x"),
        lambda bad: ResponseItem.message("user", "x", phase=bad),
        lambda bad: Message("user", [bad]),
        lambda bad: Message("user", [{"type": "input_text", "text": "x", "score": bad}]),  # type: ignore[list-item]
        lambda bad: Message("user", [InputText(bad)]),
        lambda bad: Message("user", [OutputText("x"), InputImage(image_url=bad)]),
        lambda bad: Message("user", [InputText("x")], None, "id", bad),
        lambda bad: FunctionCall(bad, "{}", "c"),
        lambda bad: FunctionCall("n", bad, "c"),
        lambda bad: FunctionCall("n", "{}", bad),
        lambda bad: FunctionCall("n", "{}", "c", bad),
        lambda bad: ResponseItem.function_call(name="n", arguments={"a": [bad]}, call_id="c"),
        lambda bad: ResponseItem.function_call(name="n", arguments=bad, call_id="c"),
        lambda bad: FunctionCallOutput("c", bad),
        lambda bad: FunctionCallOutput(bad, "x"),
        lambda bad: FunctionCallOutput("c", [InputText(bad)]),
        lambda bad: FunctionCallOutput("c", "x", bad),
        lambda bad: ResponseItem.function_call_output(call_id="c", output={"a": bad}),
        lambda bad: ResponseItem.function_call_output(call_id="c", output=[bad]),
        lambda bad: ResponseItem.custom_tool_call(name="n", input=bad, call_id="c"),
        lambda bad: ResponseItem.custom_tool_call_output(call_id="c", output=bad),
        lambda bad: EventMsg.user_message(bad),
        lambda bad: EventMsg.user_message("x", images=[bad]),
        lambda bad: UserMessageEvent("x", client_id=bad),
        lambda bad: EventMsg.agent_message(bad),
        lambda bad: AgentMessageEvent("x", bad),
        lambda bad: EventMsg.item_completed(TurnItem.user_message(bad)),
        lambda bad: EventMsg.item_completed(TurnItem.agent_message("x", item_id=bad)),
    ],
)
def test_nan_in_a_checked_item_is_refused_when_it_is_made(make: Any) -> None:
    """No frequent item can hold a number where a text belongs: NaN would be written as null."""
    with pytest.raises(ItemNotEncodable):
        make(math.nan)


@pytest.mark.parametrize(
    "make",
    [
        lambda bad: ResponseItem.message("user", [{"type": "other", "score": bad}]),
        lambda bad: ResponseItem.reasoning([bad]),
        lambda bad: ResponseItem.local_shell_call(call_id="c", command=[bad]),
        lambda bad: TaskStarted(turn_id=bad),
        lambda bad: TaskStarted(turn_id="t", started_at=bad),
        lambda bad: EventMsg.token_count(TokenUsage(bad)),
        lambda bad: EventMsg.plan_update([("a", bad)]),
        lambda bad: EventMsg.item_completed(TurnItem.tool_call(call_id="c", name="n", arguments={"a": bad})),
        lambda bad: EventMsg.item_completed(TurnItem.agent_message("x", phase=bad)),
        lambda bad: EventMsg.item_completed(TurnItem.user_message("x"), completed_at_ms=bad),
        lambda bad: Compacted(message="x", replacement_history=[{"a": bad}]),
        lambda bad: TurnContext(cwd="/", model="m", approval_policy=bad),
        lambda bad: CallItem(call_id="c", state="started", at_ms=bad),
    ],
)
def test_nan_in_any_other_item_is_refused_when_it_is_written(make: Any) -> None:
    """The other kinds are searched: NaN is an error there too, at the latest when recorded."""
    with pytest.raises(ItemNotEncodable):
        encode_item(make(math.nan), timestamp="T")


def test_parts_given_as_dicts_become_typed_parts() -> None:
    """Dicts that typed parts can hold whole are typed, so that they are checked."""
    item = ResponseItem.message(
        "user", [{"type": "input_text", "text": "look"}, {"type": "input_image", "image_url": "data:x"}]
    )
    assert item.content == [InputText("look"), InputImage(image_url="data:x")]
    assert type(item) is Message
    assert item.text == "look"


@pytest.mark.parametrize(
    "part",
    [
        {"type": "output_text", "text": "x", "annotations": [1.5]},
        {"type": "input_file", "file_id": "f"},
        {"type": "input_text", "text": "x", "detail": None},
        "just text",
    ],
)
def test_parts_that_no_type_holds_are_kept_as_they_are(part: Any) -> None:
    """Nothing of a part is dropped for the sake of a type."""
    item = ResponseItem.message("assistant", [part])
    assert type(item) is FreeMessage
    assert isinstance(item, Message)
    assert not kind_of(item).plain
    assert payload_of(item)["content"] == [part]


def test_output_that_is_no_text_is_written_as_json_text() -> None:
    """Codex takes a text or parts; values of tools become their JSON, once."""
    for output, text in (({"a": [1, None]}, '{"a":[1,null]}'), (None, "null"), ([], "[]"), ([1, 2], "[1,2]")):
        assert ResponseItem.function_call_output(call_id="c", output=output).output == text


def test_text_of_outputs_is_joined() -> None:
    """`text` gives what can be read of an output, whatever its form."""
    assert ResponseItem.function_call_output(call_id="c", output="a").text == "a"
    parts = [InputText("a"), InputImage(image_url="u"), InputText("b")]
    assert FunctionCallOutput("c", parts).text == "a\nb"
    assert FreeFunctionCallOutput("c", {"content": "x"}).text == '{"content":"x"}'
    assert CustomToolCallOutput("c", [InputText("a")]).text == "a"
    assert FreeMessage("user", [{"text": "a"}, {"no": 1}, "b", OutputText("c")]).text == "a\nc"


READ: list[tuple[str, Any, type[RolloutItem]]] = [
    (
        "event_msg",
        {"type": "turn_started", "turn_id": "t", "started_at": "2026-01-01T00:00:00Z"},
        TaskStarted,
    ),
    ("event_msg", {"type": "turn_complete", "turn_id": "t", "last_agent_message": None}, TaskComplete),
    ("event_msg", {"type": "context_compacted"}, ContextCompacted),
    (
        "event_msg",
        {"type": "user_message", "message": "x", "kind": "plain", "images": None},
        UserMessageEvent,
    ),
    ("event_msg", {"type": "item_started", "item": {"type": "Plan", "id": "p", "text": "x"}}, ItemStarted),
    (
        "event_msg",
        {"type": "exec_command_end", "call_id": "c", "command": [], "cwd": "/", "exit_code": 0},
        ExecCommandEnd,
    ),
    (
        "response_item",
        {"type": "function_call_output", "call_id": "c", "output": {"content": "x"}},
        FreeFunctionCallOutput,
    ),
    ("response_item", {"type": "message", "role": "user", "content": [{"type": "input_file"}]}, FreeMessage),
    ("response_item", {"type": "compaction_summary", "encrypted_content": "z"}, EncryptedCompaction),
    (
        "response_item",
        {"type": "agent_message", "author": "a", "recipient": "b", "content": []},
        AgentToAgentMessage,
    ),
    ("response_item", {"type": "tool_search_call", "execution": "e", "arguments": {}}, ToolSearchCall),
    (
        "response_item",
        {"type": "reasoning", "summary": [], "content": None, "encrypted_content": "z"},
        Reasoning,
    ),
    ("compacted", {"message": "m", "window_id": 3}, Compacted),
    ("turn_context", {"cwd": "relative", "sandbox_policy": {"type": "new"}}, TurnContext),
]


@pytest.mark.case("B113")
@pytest.mark.parametrize(("record_type", "payload", "kind"), READ)
def test_records_of_other_writers_are_typed_where_they_fit(
    record_type: str, payload: Any, kind: type[RolloutItem]
) -> None:
    """Older spellings, further keys and looser values still give the typed item."""
    assert isinstance(decoded(record_type, {**payload, "never_seen": [1.5]}), kind)


@pytest.mark.case("B113")
@pytest.mark.parametrize(
    ("record_type", "payload"),
    [
        ("response_item", {"type": "function_call", "name": "n", "arguments": None, "call_id": "c"}),
        ("response_item", {"type": "tool_call", "function": {"name": "n"}}),
        ("response_item", {"role": "user"}),
        ("event_msg", {"type": "turn.completed", "usage": {}}),
        ("event_msg", {"type": "item_completed", "item": {"type": "Unknown", "id": "i"}}),
        ("event_msg", {"type": 7}),
        ("event_msg", "text"),
        ("x_call", {"state": "started"}),
        ("x_future", {"a": 1}),
        ("realtime_item", {"id": "r"}),
    ],
)
def test_records_that_fit_no_class_keep_their_bytes(record_type: str, payload: Any) -> None:
    """What doesn't fit its class comes as a raw item with the very bytes."""
    data = json.dumps(payload).encode()
    assert decode_item(record_type, data) == RawItem(record_type, data)


def test_payload_that_is_no_json_is_a_raw_item() -> None:
    """Bytes of any kind come back as they are."""
    assert decode_item("event_msg", b"{oops") == RawItem("event_msg", b"{oops")


def test_turn_of_an_item_of_the_model_track_is_known() -> None:
    """Codex tags items with their turn; the tag is read."""
    payload = {
        "type": "function_call",
        "name": "n",
        "arguments": "{}",
        "call_id": "c",
        "internal_chat_message_metadata_passthrough": {"turn_id": "t1", "create_time": 1.5},
    }
    item = decoded("response_item", payload)
    assert isinstance(item, FunctionCall)
    tag = item.internal_chat_message_metadata_passthrough
    assert tag is not None
    assert tag.turn_id == "t1"


def test_bind_fills_in_thread_and_turn() -> None:
    """Items that name their thread and turn get those of the recorder, unless they have their own."""
    unset = EventMsg.item_completed(TurnItem.agent_message("x"))
    bound = bind(unset, "T", "t1")
    assert isinstance(bound, MessageCompleted)
    assert (bound.thread_id, bound.turn_id) == ("T", "t1")
    assert (unset.thread_id, unset.turn_id) == (None, None)
    assert bind(bound, "other", "other") is bound
    own = EventMsg.item_completed(TurnItem.agent_message("x"), turn_id="t9")
    assert bind(own, "T", "t1").turn_id == "t9"  # type: ignore[attr-defined]


def test_bind_fills_in_a_usage_record() -> None:
    """A usage record names its session and root turn too."""
    bound = bind(TokenUsageRecord(response_id="r", usage=USAGE), "T", "t1")
    assert payload_of(bound) == {
        "thread_id": "T",
        "turn_id": "t1",
        "session_id": "T",
        "root_turn_id": "t1",
        "response_id": "r",
        "usage": payload_of(EventMsg.token_count(USAGE))["info"]["total_token_usage"],
    }


def test_bind_leaves_other_items_alone() -> None:
    """Only classes that say so are touched, and the kind says so too."""
    item = ResponseItem.message("user", "x")
    assert bind(item, "T", "t1") is item
    assert bind(RolloutItem.raw("event_msg", {}), "T", "t1").needs_binding is False
    assert not kind_of(item).binds
    assert kind_of(EventMsg.item_completed(TurnItem.user_message("x"))).binds


def test_item_without_a_turn_leaves_the_key_out() -> None:
    """Outside a turn there is no turn id to write, and no null either."""
    item = bind(EventMsg.item_completed(TurnItem.user_message("x", item_id="i")), "T", None)
    assert "turn_id" not in payload_of(item)


def test_usage_is_written_with_every_key() -> None:
    """Codex wants all counts, zeros included."""
    assert payload_of(EventMsg.token_count(USAGE))["info"]["total_token_usage"] == {
        "input_tokens": 5,
        "cached_input_tokens": 0,
        "cache_write_input_tokens": 0,
        "output_tokens": 2,
        "reasoning_output_tokens": 0,
        "total_tokens": 7,
    }


def test_item_ids_are_fresh() -> None:
    """An item's id is never used twice: a later item of the same id would replace it."""
    made = [new_item_id() for _ in range(2000)]
    assert len(set(made)) == len(made)
    assert TurnItem.user_message("x").id != TurnItem.user_message("x").id


def test_other_turn_items_are_completed_items() -> None:
    """Any turn item can be shown; messages have a class of their own, and both are `ItemCompleted`."""
    item = EventMsg.item_completed(TurnItem.tool_call(call_id="c", name="n", arguments={}))
    assert type(item) is ItemCompleted
    assert isinstance(EventMsg.item_completed(TurnItem.agent_message("x")), ItemCompleted)
    assert AgentMessageItem("i", []).text == ""
    with pytest.raises(ItemNotEncodable):
        MessageCompleted(item=PlanItem(id="p", text="x"))  # type: ignore[arg-type]


def test_message_item_may_name_its_thread_by_an_id() -> None:
    """A `ThreadId`, a start and a client id are all fit."""
    thread_id = ThreadId.new()
    item = UserMessageItem("i", [UserText("x")], client_id="c")
    made = MessageCompleted(item=item, thread_id=thread_id, started_at_ms=1)
    assert payload_of(made)["thread_id"] == thread_id
    assert payload_of(made)["item"]["client_id"] == "c"


@pytest.mark.parametrize(
    ("record_type", "payload"),
    [
        ("response_item", rb'{"type":"\ud800"}'),
        ("response_item", rb'{"type":"message","role":"user","content":[{"type":"\ud800"}]}'),
        ("response_item", rb'{"type":"message","\ud800":1,"content":[]}'),
        ("event_msg", rb'{"type":"\udc00x"}'),
        ("event_msg", rb'{"type":"thread_rolled_back","num_turns":"\ud800"}'),
        ("x_call", rb'{"call_id":"c","state":"\ud800","attempt":"\ud800"}'),
        ("x_memory", rb'{"upto_offset":"\ud800"}'),
    ],
)
def test_half_a_character_anywhere_never_raises(record_type: str, payload: bytes) -> None:
    """As a tag, a key, or in the place of a number: it is decoded, or comes as its bytes."""
    item = decode_item(record_type, payload)
    assert item.record_type == record_type
