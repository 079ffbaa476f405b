"""Request bodies: the history of a thread as a part of a request."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.thread_store.histories import Script, uuid, write_thread
from thread_store.context.request_body import MessageForm, RequestBody, request_body
from thread_store.home import Home
from thread_store.resume.resume_state import ResumeState, read_resume_state

THREAD = uuid(0xF1)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def state_of(home: Home, script: Script, **keys: Any) -> ResumeState:
    return read_resume_state(write_thread(home, THREAD, script.bytes, **keys), home)


def value(body: RequestBody) -> Any:
    return json.loads(body.json)


def talk() -> Script:
    script = Script()
    script.start("t1")
    script.user("hello")
    script.call("c1")
    return script


def test_recorded_form_keeps_the_payloads(home: Home) -> None:
    """Byte for byte, a made result behind the call that has none, instructions apart."""
    script = talk()
    payload = b'{"type":"message", "role":"user","content":[],"x":1.50e2}'
    script.lines.append(b'{"timestamp":"t","ordinal":9,"type":"response_item","payload":%s}\n' % payload)
    body = request_body(state_of(home, script, base_instructions={"text": "be brief"}), MessageForm.MESSAGES)
    assert body.json.startswith(b'{"instructions":"be brief","input":[{"type":"message"')
    assert body.json.endswith(payload + b"]}")
    kinds = [each["type"] for each in value(body)["input"]]
    assert kinds == ["message", "function_call", "function_call_output", "message"]
    assert body.left_out == {}


@pytest.mark.parametrize("form", MessageForm)
@pytest.mark.parametrize("instructions", [None, "be brief"])
def test_memory_stands_between_instructions_and_history(
    home: Home, form: MessageForm, instructions: str | None
) -> None:
    """Only where it is asked for."""
    keys = {} if instructions is None else {"base_instructions": {"text": instructions}}
    state = state_of(home, talk(), **keys)
    with_memory = request_body(state, form, with_memory=True).json.decode()
    without = request_body(state, form).json.decode()
    assert "<session_memory>" not in without
    assert "<session_memory>" in with_memory
    order = [
        with_memory.index(text)
        for text in ("session_memory", "call_id" if form != "anthropic" else "tool_use")
    ]
    assert order == sorted(order)
    assert ("be brief" in without) is (instructions is not None)
    if instructions is not None:
        assert with_memory.index("be brief") < order[0]


def test_each_form_has_the_keys_of_its_api(home: Home) -> None:
    """And nothing else, so that it can be merged into a request."""
    state = state_of(home, talk(), base_instructions={"text": "be brief"})
    keys = {form.value: list(value(request_body(state, form))) for form in MessageForm}
    assert keys == {
        "messages": ["instructions", "input"],
        "openai": ["messages"],
        "anthropic": ["system", "messages"],
    }


def test_what_is_left_out_is_told(home: Home) -> None:
    """By kind."""
    script = talk()
    script.add("response_item", {"type": "web_search_call", "action": {"type": "search", "query": "q"}})
    state = state_of(home, script)
    assert request_body(state, MessageForm.OPENAI).left_out == {"web_search_call": 1}
    assert request_body(state, MessageForm.MESSAGES).left_out == {}
