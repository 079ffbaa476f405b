"""What counts as content of a record."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.line import decode_line
from tests.thread_store.search.written import call, line, message, meta, output, plain_json
from thread_store.search.said_texts import said_texts


def texts(record: Any, **options: bool) -> list[tuple[str, str, str]]:
    return [
        (each.role, each.field, each.text) for each in said_texts(decode_line(plain_json(record)), **options)
    ]


def response(**payload: Any) -> dict[str, Any]:
    return line("response_item", payload)


def item(**members: Any) -> dict[str, Any]:
    return line("event_msg", {"type": "item_completed", "thread_id": "t", "turn_id": "u", "item": members})


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (message("hi", role="user"), [("user", "text", "hi")]),
        (message("hi"), [("assistant", "text", "hi")]),
        (message("<environment_context>x</environment_context>", role="user"),
         [("context", "text", "<environment_context>x</environment_context>")]),
        (response(type="reasoning", id="rs_1", summary=[{"type": "summary_text", "text": "hm"}],
                  encrypted_content="gAAAA"), [("thinking", "text", "hm")]),
        (call('{"cmd":"make \\"x\\"","env":{"A":"b"},"argv":["a","b"],"n":1}'),
         [("tool", "args.cmd", 'make "x"'), ("tool", "args.env.A", "b"), ("tool", "args.argv", "a"),
          ("tool", "args.argv", "b")]),
        (call('{"id":"7","type":"x","data":"y"}'),
         [("tool", "args.id", "7"), ("tool", "args.type", "x"), ("tool", "args.data", "y")]),
        (output("data: here"), [("tool", "output", "data: here")]),
        (call("*** Begin Patch"), [("tool", "args", "*** Begin Patch")]),
        (output("done"), [("tool", "output", "done")]),
        (output('{"output":"inner","metadata":{"exit_code":0}}'), [("tool", "output", "inner")]),
        (output([{"type": "input_text", "text": "seen"},
                 {"type": "input_image", "image_url": "data:x;base64,AA"}]),
         [("tool", "output", "seen")]),
        (line("event_msg", {"type": "plan_update", "explanation": "why",
                            "plan": [{"step": "first", "status": "pending"}]}),
         [("event", "explanation", "why"), ("event", "plan.step", "first")]),
        (line("compacted", {"message": "sum", "replacement_history": [{"type": "message", "text": "old"}]}),
         [("event", "message", "sum")]),
        (line("x_check", {"check_id": "c", "state": "failed", "what": "tests", "evidence": "3 red"}),
         [("event", "what", "tests"), ("event", "evidence", "3 red")]),
        (line("event_msg", {"type": "turn_aborted", "reason": "interrupted", "turn_id": "t"}),
         [("event", "reason", "interrupted")]),
        (item(type="CommandExecution", id="call_1", command=["bash", "-lc", "ls"], aggregated_output="a",
              status="completed", process_id="p", cwd="/srv"),
         [("tool", "command", "bash"), ("tool", "command", "-lc"), ("tool", "command", "ls"),
          ("tool", "aggregated_output", "a")]),
        (line("turn_context", {"cwd": "/srv/demo", "model": "m", "summary": "auto"}), []),
        (line("event_msg", {"type": "token_count", "info": {"total": 1}}), []),
        (line("x_memory", {"memory": {"goal": "find me"}}), []),
        (line("unknown_kind", {"text": "new", "id": "i"}), [("event", "text", "new")]),
    ],
)  # fmt: skip
def test_content_is_what_somebody_saw(record: Any, expected: list[tuple[str, str, str]]) -> None:
    """Values of text; no keys, ids, statuses, images, encrypted blocks, copies."""
    assert texts(record) == expected


def test_instructions_of_a_meta_line_are_given_on_request() -> None:
    """They are the same in most threads; the task that a thread was given is its own."""
    record = meta(base_instructions={"text": "be good"}, x_task={"prompt": "build it"})
    assert texts(record) == [("context", "x_task.prompt", "build it")]
    assert texts(record, instructions=True)[1:] == [("context", "instructions", "be good")]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "text", "content", "item", "output", "call_id", "message", "arguments", "id"]
            )
            | st.text(max_size=3),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
KINDS = st.sampled_from(
    [
        "message",
        "reasoning",
        "function_call",
        "function_call_output",
        "item_completed",
        "exec_command_end",
        "user_message",
        "mcp_tool_call_end",
        "local_shell_call",
        "web_search_call",
        "new_call",
        "plan_update",
    ]
)


@given(
    st.sampled_from(["response_item", "event_msg", "compacted", "session_meta", "x_call", "z"]),
    KINDS,
    JSON,
    JSON,
)
def test_no_shape_raises(record_type: str, kind: str, payload: Any, inner: Any) -> None:
    """Whatever another program wrote, its texts are texts."""
    shapes = [payload, {"type": kind, "item": inner, "output": inner, "content": inner, "arguments": inner}]
    for each in shapes:
        raw = json.dumps({"timestamp": "t", "type": record_type, "payload": each}).encode()
        assert all(said.text for said in said_texts(decode_line(raw), instructions=True))
