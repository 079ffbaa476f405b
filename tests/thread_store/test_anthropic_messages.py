"""The Messages API: what each step of a conversation is there."""

from __future__ import annotations

from typing import Any

import pytest

from thread_store.context.anthropic_messages import anthropic_messages
from thread_store.context.conversation import Conversation, Exchange, Image, Said, Text, ToolUse


def messages(*steps: Said | Exchange, system: tuple[str, ...] = ()) -> tuple[str, list[dict[str, Any]]]:
    return anthropic_messages(Conversation(list(steps), {}), system=system)


def use(
    arguments: str = "{}", *, takes_text: bool = False, result: tuple[Text | Image, ...] = ()
) -> Exchange:
    return Exchange((ToolUse("c1", "shell", arguments, takes_text, result),))


def test_each_step_has_its_blocks() -> None:
    """Calls are the assistant's, results the user's, together with what the user said behind them."""
    system, found = messages(
        Said("developer", (Text("rules"),)),
        Said("user", (Text("look"), Image("data:image/png;base64,QUJD"), Image("https://x/y.png"))),
        Said("assistant", (Text("I do "),)),
        use('{"cmd":"ls"}', result=(Text("a"),)),
        Said("developer", (Text("hurry"),)),
        Said("user", (Text("and?"),)),
        system=("be brief",),
    )
    assert system == "be brief\n\nrules"
    assert found == [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "look"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD"}},
                {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I do"},
                {"type": "tool_use", "id": "c1", "name": "shell", "input": {"cmd": "ls"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "a"}]},
                {"type": "text", "text": "hurry"},
                {"type": "text", "text": "and?"},
            ],
        },
    ]


@pytest.mark.parametrize(
    ("exchange", "expected"),
    [
        (use(""), {}),
        (use('{"a":[1]}'), {"a": [1]}),
        (use("[1]"), {"arguments": "[1]"}),
        (use("no JSON"), {"arguments": "no JSON"}),
        (use('{"a":NaN}'), {"arguments": '{"a":NaN}'}),
        (use("\ud800"), {"arguments": "\ud800"}),
        (use('{"a":' + "[" * 124 + "]" * 124 + "}"), {"arguments": '{"a":' + "[" * 124 + "]" * 124 + "}"}),
        (use("*** x", takes_text=True), {"input": "*** x"}),
    ],
)
def test_input_is_an_object_in_any_case(exchange: Exchange, expected: dict[str, Any]) -> None:
    """What the model wrote, if it is one; else in a member of one."""
    _, found = messages(Said("user", (Text("x"),)), exchange)
    assert found[1]["content"][0]["input"] == expected


def test_history_that_does_not_begin_with_the_user_gets_a_beginning() -> None:
    """The API wants one; a result without output says so."""
    _, found = messages(use())
    assert [each["role"] for each in found] == ["user", "assistant", "user"]
    assert found[2]["content"][0]["content"] == [{"type": "text", "text": "(no output)"}]


def test_nothing_said_is_no_message() -> None:
    """An empty history has an empty list."""
    assert messages() == ("", [])
    assert messages(Said("user", (Text(" "),))) == ("", [])
