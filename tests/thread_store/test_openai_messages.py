"""Chat Completions: what each step of a conversation is there."""

from __future__ import annotations

from thread_store.context.conversation import Conversation, Exchange, Image, Said, Text, ToolUse
from thread_store.context.openai_messages import openai_messages


def test_each_step_has_its_message() -> None:
    """Text as a string, pictures of the user as parts, calls with their results behind them."""
    uses = (
        ToolUse("c1", "shell", '{"cmd":"ls"}', False, (Text("a"), Image("u"))),
        ToolUse("c2", "patch", "*** x", True, ()),
    )
    steps: list[Said | Exchange] = [
        Said("developer", (Text("rules"),)),
        Said("user", (Text("look"), Image("data:image/png;base64,QUJD"))),
        Exchange(uses),
        Said("assistant", (Text("one"), Text("two"))),
    ]
    assert openai_messages(Conversation(steps, {}), system=["be brief"]) == [
        {"role": "system", "content": "be brief"},
        {"role": "developer", "content": "rules"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "look"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}},
            ],
        },
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "shell", "arguments": '{"cmd":"ls"}'}},
                {
                    "id": "c2",
                    "type": "function",
                    "function": {"name": "patch", "arguments": '{"input":"*** x"}'},
                },
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "a\n[image]"},
        {"role": "tool", "tool_call_id": "c2", "content": ""},
        {"role": "assistant", "content": "one\ntwo"},
    ]
