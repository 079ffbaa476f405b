"""A context as a conversation: exchanges are whole, ids unique, and what has no counterpart is counted."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from thread_store.context.anthropic_messages import anthropic_messages
from thread_store.context.conversation import Conversation, Exchange, Image, Said, Text, read_conversation
from thread_store.context.model_item import ModelItem, payload_item
from thread_store.context.model_view import valid_view
from thread_store.context.openai_messages import openai_messages

Payload = dict[str, Any]


def items(*payloads: Payload) -> list[ModelItem]:
    made = [payload_item(Raw(json.dumps(each).encode())) for each in payloads]
    assert None not in made
    return [each for each in made if each is not None]


def conversation(*payloads: Payload) -> Conversation:
    return read_conversation(valid_view(items(*payloads)).items)


def say(role: str, *parts: Payload | str) -> Payload:
    listed = [{"type": "input_text", "text": each} if isinstance(each, str) else each for each in parts]
    return {"type": "message", "role": role, "content": listed}


def call(call_id: str, **changes: Any) -> Payload:
    return {"type": "function_call", "name": "shell", "arguments": "{}", "call_id": call_id, **changes}


def output(call_id: str, value: Any = "ok", **changes: Any) -> Payload:
    return {"type": "function_call_output", "call_id": call_id, "output": value, **changes}


def exchanges(found: Conversation) -> list[list[str]]:
    return [[use.call_id for use in each.uses] for each in found.steps if isinstance(each, Exchange)]


def only_use(*payloads: Payload) -> Any:
    (step,) = conversation(*payloads).steps
    assert isinstance(step, Exchange)
    (use,) = step.uses
    return use


@pytest.mark.case("B61")
def test_calls_that_stand_together_are_one_exchange() -> None:
    """Their results come in the order of the calls, whatever the order in which they were recorded."""
    found = conversation(
        call("a"), call("b"), output("b", "of b"), output("a", "of a"), call("c"), output("c")
    )
    assert exchanges(found) == [["a", "b"], ["c"]]
    assert isinstance(found.steps[0], Exchange)
    assert [use.result for use in found.steps[0].uses] == [(Text("of a"),), (Text("of b"),)]


def test_result_that_came_late_moves_up_to_its_call() -> None:
    """What was said meanwhile stands behind it."""
    found = conversation(call("a"), say("user", "well?"), output("a", "late"))
    exchange, said = found.steps
    assert isinstance(exchange, Exchange)
    assert exchange.uses[0].result == (Text("late"),)
    assert said == Said("user", (Text("well?"),))


def test_thoughts_between_calls_do_not_part_them() -> None:
    """They can't go to another maker's model; they are counted."""
    found = conversation(call("a"), {"type": "reasoning", "summary": []}, call("b"), output("a"), output("b"))
    assert exchanges(found) == [["a", "b"]]
    assert found.left_out == {"reasoning": 1}


@pytest.mark.case("B132")
def test_call_without_result_has_one_that_says_so() -> None:
    """As the valid view has it."""
    use = only_use(call("a"))
    assert use.result[0].text.startswith("outcome unknown")


def test_repeated_ids_are_told_apart() -> None:
    """An API refuses two calls of one id; results stay with their calls."""
    found = conversation(call("a"), output("a", "1"), call("a"), output("a", "2"))
    assert exchanges(found) == [["a"], ["a-2"]]


@pytest.mark.parametrize(
    ("call_id", "expected"),
    [
        ("call_1", "call_1"),
        ("a b/ü", "a_b__"),
        ("", "call"),
        ("x" * 40, "x" * 40),
        ("call-01960000-0000-7000-8000-000000000100", "01960000-0000-7000-8000-000000000100"),
    ],
)
def test_ids_are_such_as_an_api_takes(call_id: str, expected: str) -> None:
    """Forty characters of a small alphabet; a longer id keeps its end."""
    assert only_use(call(call_id), output(call_id)).call_id == expected


def test_names_are_such_as_an_api_takes() -> None:
    """With the namespace before it, no character outside the alphabet, 64 at most."""
    assert only_use(call("a", name="read", namespace="mcp")).name == "mcp__read"
    assert only_use(call("a", name="a.b c")).name == "a_b_c"
    assert len(only_use(call("a", name="n" * 99)).name) == 64


@pytest.mark.parametrize(
    ("request_", "name", "arguments", "takes_text"),
    [
        (call("c", arguments='{"a":1}'), "shell", '{"a":1}', False),
        (
            {"type": "custom_tool_call", "name": "patch", "input": "*** x", "call_id": "c"},
            "patch",
            "*** x",
            True,
        ),
        (
            {
                "type": "local_shell_call",
                "call_id": "c",
                "status": "completed",
                "action": {"command": ["ls"]},
            },
            "local_shell",
            '{"command":["ls"]}',
            False,
        ),
        (
            {"type": "tool_search_call", "call_id": "c", "arguments": {"query": "q"}},
            "tool_search",
            '{"query":"q"}',
            False,
        ),
    ],
)
def test_each_kind_of_call_is_a_tool_use(
    request_: Payload, name: str, arguments: str, takes_text: bool
) -> None:
    """Its name, and what it was given."""
    use = only_use(request_)
    assert (use.name, use.arguments, use.takes_text) == (name, arguments, takes_text)


@pytest.mark.parametrize(
    ("value", "parts"),
    [
        ("text", (Text("text"),)),
        ("", ()),
        (
            [{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": "u"}],
            (Text("a"), Image("u")),
        ),
        ({"content": "old", "success": True}, (Text("old"),)),
        ({"any": 1}, (Text('{"any":1}'),)),
        ([{"type": "input_file"}, "x", None], (Text("[file]"), Text("x"))),
    ],
)
def test_output_of_any_shape_is_parts(value: Any, parts: tuple[Text | Image, ...]) -> None:
    """Text, content, what older writers wrote, anything."""
    assert only_use(call("a"), output("a", value)).result == parts


def test_what_has_no_counterpart_is_counted() -> None:
    """Calls that never have a result, sealed summaries, another agent's sealed words."""
    sealed = [{"type": "encrypted_content", "encrypted_content": "x"}]
    found = conversation(
        {"type": "web_search_call", "action": {"query": "q"}},
        {"type": "compaction", "encrypted_content": "x"},
        {"type": "agent_message", "author": "a", "recipient": "b", "content": sealed},
        {"type": "local_shell_call", "action": {}},
    )
    assert found.steps == []
    assert found.left_out == {
        "web_search_call": 1,
        "compaction": 1,
        "agent_message": 1,
        "local_shell_call": 1,
    }


def test_words_of_another_agent_are_the_users_with_a_name() -> None:
    """So that the model knows who spoke."""
    text = [{"type": "input_text", "text": "done"}]
    found = conversation({"type": "agent_message", "author": "/helper", "recipient": "/", "content": text})
    assert found.steps == [Said("user", (Text("[/helper]"), Text("done")))]


# What the APIs ask for


_IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,QUJD"}
_PAYLOADS = st.lists(
    st.one_of(
        st.builds(
            say,
            st.sampled_from(["user", "assistant", "developer", "system"]),
            st.sampled_from(["hi", "", " ", "bye\n"]),
        ),
        st.builds(lambda role: say(role, "see", _IMAGE), st.sampled_from(["user", "assistant"])),
        st.builds(
            lambda call_id, arguments: call(call_id, arguments=arguments),
            st.sampled_from("abc"),
            st.sampled_from(["{}", '{"x":1}', "[1]", "not JSON", "", '{"x":NaN}', '{"x":1e999}', "\ud800"]),
        ),
        st.builds(output, st.sampled_from("abc"), st.sampled_from(["", "ok", [_IMAGE]])),
        st.builds(
            lambda call_id: {"type": "custom_tool_call", "name": "p", "input": "i", "call_id": call_id},
            st.sampled_from("abc"),
        ),
        st.just({"type": "reasoning", "summary": []}),
        st.just({"type": "web_search_call"}),
    ),
    max_size=12,
)


@pytest.mark.case("B66")
@given(payloads=_PAYLOADS)
@settings(max_examples=200, deadline=None)
def test_openai_messages_are_such_as_the_api_takes(payloads: list[Payload]) -> None:
    """Right behind an assistant's calls stands one answer for each of them, and nowhere else."""
    messages = openai_messages(conversation(*payloads), system=["be brief"])
    assert messages[0] == {"role": "system", "content": "be brief"}
    waiting: list[str] = []
    seen: set[str] = set()
    for message in messages:
        if message["role"] == "tool":
            assert message["tool_call_id"] == waiting.pop(0)
            assert isinstance(message["content"], str)
            continue
        assert waiting == []
        waiting = [each["id"] for each in message.get("tool_calls", ())]
        assert not seen & set(waiting)
        seen |= set(waiting)
        assert all(re.fullmatch("[a-zA-Z0-9_-]{1,40}", each) for each in waiting)
        assert message["role"] in ("system", "developer", "user", "assistant")
        assert waiting or message["content"]
    assert waiting == []


@pytest.mark.case("B66")
@given(payloads=_PAYLOADS)
@settings(max_examples=200, deadline=None)
def test_anthropic_messages_are_such_as_the_api_takes(payloads: list[Payload]) -> None:
    """Roles alternate, the user begins, results come first and at once, no text is blank."""
    system, messages = anthropic_messages(conversation(*payloads), system=["be brief"])
    assert system.startswith("be brief")
    assert [each["role"] for each in messages] == ["user", "assistant"] * (len(messages) // 2) + ["user"] * (
        len(messages) % 2
    )
    waiting: list[str] = []
    for message in messages:
        blocks = message["content"]
        assert blocks
        assert [each["tool_use_id"] for each in blocks[: len(waiting)] if waiting] == waiting
        assert all(each["type"] != "tool_result" for each in blocks[len(waiting) :])
        assert all(each["text"].strip() for each in blocks if each["type"] == "text")
        waiting = [each["id"] for each in blocks if each["type"] == "tool_use"]
        assert all(isinstance(each["input"], dict) for each in blocks if each["type"] == "tool_use")
    assert waiting == []
