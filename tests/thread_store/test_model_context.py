"""The model's context: which items, in which bytes, and what belongs to them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.thread_store.histories import Script, dump, place_of, uuid, write_thread
from tests.thread_store.naive_context import user_message
from thread_store.context.model_context import ModelContext, load_model_context
from thread_store.forks.fork import make_fork
from thread_store.home import Home

A, B = uuid(0xA), uuid(0xB)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def context_of(script: Script, home: Home, **keys: Any) -> ModelContext:
    return load_model_context(write_thread(home, A, script.bytes, **keys), home)


def texts(context: ModelContext) -> list[str]:
    """What the messages say; the kind and the call of everything else."""
    return [item.text or f"{item.kind} {item.call_id}" for item in context.items]


def legacy() -> tuple[Script, dict[str, Any]]:
    return Script(None), {"ordinal": None}


# Items


def test_context_without_checkpoint_is_everything_that_the_model_saw(home: Home) -> None:
    """Messages and calls in order; no events, no own records."""
    script = Script()
    script.turn(1, calls=["c1"])
    context = context_of(script, home)
    assert texts(context) == ["question 1", "function_call c1", "function_call_output c1", "answer 1"]
    assert context.base is None
    assert context.whole


def test_context_begins_with_the_history_of_the_checkpoint(home: Home) -> None:
    """Then comes what was recorded behind it."""
    script = Script()
    script.turn(1)
    history = [user_message("question 1"), user_message("the summary")]
    script.add("compacted", {"message": "the summary", "replacement_history": history})
    script.turn(2)
    context = context_of(script, home)
    assert texts(context) == ["question 1", "the summary", "question 2", "answer 2"]
    assert context.items[0].place == context.base
    assert context.items[2].place != context.base


def test_payloads_keep_their_bytes(home: Home) -> None:
    """Numbers, spaces, keys nobody knows, lone surrogates and sealed blocks stay as they were written."""
    written = [
        rb'{"type": "message","role":"user","content":[],"n":1e5, "deep":{"a":[1.50]}}',
        rb'{"type":"reasoning","summary":[],"encrypted_content":"gAAAA\/x="}',
        rb'{"role":"user","type":"message","content":[{"type":"input_text","text":"\ud800"}]}',
    ]
    lines = [
        b'{"timestamp":"t","ordinal":%d,"type":"response_item","payload":%s}\n' % each
        for each in enumerate(written, 2)
    ]
    payload = b'{"message":"m","replacement_history":[%s]}'
    checkpoint = b'{"timestamp":"t","ordinal":1,"type":"compacted","payload":' + payload + b"}\n"
    body = checkpoint % b" , ".join(written) + b"".join(lines)
    context = load_model_context(write_thread(home, A, body), home)
    assert [bytes(item.payload) for item in context.items] == [*written, *written]
    assert not context.problems


def test_what_codex_hides_is_no_item(home: Home) -> None:
    """Retired and unknown kinds, in records and in a checkpoint's history."""
    hidden: list[Any] = [
        {"type": "ghost_snapshot", "ghost_commit": {}},
        {"type": "of_the_future"},
        {"type": "compaction_trigger"},
    ]
    script = Script()
    script.add("compacted", {"message": "m", "replacement_history": [user_message("kept"), *hidden]})
    for payload in [*hidden, {"no": "type"}, ["no object"], {"type": 7}]:
        script.add("response_item", payload)
    script.turn(1)
    assert texts(context_of(script, home)) == ["kept", "question 1", "answer 1"]


def test_message_between_agents_comes_in_the_form_that_the_model_gets(home: Home) -> None:
    """A record of its own becomes an agent_message; one that can't be read is left out."""
    script = Script()
    script.turn(1)
    message = {"author": "/root", "recipient": "/root", "trigger_turn": True}
    script.add("inter_agent_communication", {**message, "content": "done", "other_recipients": []})
    script.add("inter_agent_communication", {**message, "content": "", "encrypted_content": "sealed"})
    script.add("inter_agent_communication", {"author": "/root"})
    items = context_of(script, home).items[2:]
    assert [json.loads(bytes(item.payload))["content"] for item in items] == [
        [{"type": "input_text", "text": "done"}],
        [{"type": "encrypted_content", "encrypted_content": "sealed"}],
    ]


def test_checkpoint_without_history_leaves_what_was_typed_and_its_message(home: Home) -> None:
    """As Codex rebuilds it; what programs put there in the user's name is not typed."""
    script = Script()
    script.response("user", "<environment_context>x</environment_context>")
    script.turn(1, calls=["c1"])
    script.turn(2)
    script.add("compacted", {"message": "the summary"})
    script.turn(3)
    context = context_of(script, home)
    assert texts(context) == ["question 1", "question 2", "the summary", "question 3", "answer 3"]
    assert context.base is None


@pytest.mark.case("B52")
@pytest.mark.parametrize("with_history", [True, False])
def test_ten_compactions_repeat_nothing(home: Home, with_history: bool) -> None:
    """Each time what was typed stays once, and one summary."""
    script = Script()
    path = write_thread(home, A, b"")
    for number in range(1, 11):
        script.turn(number)
        message = f"summary {number}"
        payload: dict[str, Any] = {"message": message}
        if with_history:
            typed = [user_message(f"question {each}") for each in range(1, number + 1)]
            payload["replacement_history"] = [*typed, user_message(message)]
        script.add("compacted", payload)
        with path.open("ab") as file:
            file.write(script.bytes)
        script.lines.clear()
        context = load_model_context(path, home)
        assert texts(context) == [f"question {each}" for each in range(1, number + 1)] + [message]


# Rollbacks


@pytest.mark.parametrize("mode", ["paginated", "legacy"])
def test_rollback_takes_the_newest_turns_out_of_the_context(home: Home, mode: str) -> None:
    """In both modes: a paginated display ignores it, its model's context doesn't."""
    script, keys = (Script(), {}) if mode == "paginated" else legacy()
    for number in (1, 2, 3):
        script.turn(number)
    rollback = script.event("thread_rolled_back", num_turns=2)
    script.turn(4)
    path = write_thread(home, A, script.bytes, **keys)
    context = load_model_context(path, home)
    assert texts(context) == ["question 1", "answer 1", "question 4", "answer 4"]
    (dropped,) = context.dropped
    assert dropped.turns == 2
    assert dropped.rollback.offset == path.read_bytes().index(rollback)


def test_rollback_counts_what_was_typed_not_the_turns_around_it(home: Home) -> None:
    """A second message within a turn is a turn to Codex's model, whatever the display makes of it."""
    script = Script()
    script.turn(1)
    script.start("t2")
    script.user("first")
    script.response("assistant", "half")
    script.user("second")
    script.complete("t2")
    script.event("thread_rolled_back", num_turns=1)
    assert texts(context_of(script, home)) == ["question 1", "answer 1", "first", "half"]


def test_rollback_takes_what_a_program_put_before_the_message_too(home: Home) -> None:
    """Surroundings told for a turn go with it; an instruction of the developer's own stays."""
    script = Script()
    script.turn(1)
    script.start("t2")
    script.response("developer", "stays")
    script.response("user", "<environment_context>x</environment_context>")
    script.response("developer", "<permissions>y</permissions>")
    script.user("question 2")
    script.event("thread_rolled_back", num_turns=1)
    assert texts(context_of(script, home)) == ["question 1", "answer 1", "stays"]


@pytest.mark.parametrize("count", [2, 7])
def test_rollback_of_all_turns_keeps_what_stood_before_the_first(home: Home, count: int) -> None:
    """The start-up context is needed by whatever comes next."""
    script = Script()
    script.start("t1")
    script.response("developer", "be brief")
    script.response("user", "<environment_context>x</environment_context>")
    script.user("question 1")
    script.turn(2)
    script.event("thread_rolled_back", num_turns=count)
    assert texts(context_of(script, home)) == ["be brief", "<environment_context>x</environment_context>"]


def test_rollback_beyond_the_checkpoint_brings_back_what_it_replaced(home: Home) -> None:
    """The turn that it summed up in part is gone, the one before is there in full."""
    script = Script()
    script.turn(1)
    script.turn(2)
    script.compacted("of both")
    script.turn(3)
    script.event("thread_rolled_back", num_turns=2)
    context = context_of(script, home)
    assert texts(context) == ["question 1", "answer 1"]
    assert len(context.rolled_back_checkpoints) == 1


# Settings


@pytest.mark.case("B54")
def test_settings_recorded_before_the_checkpoint_are_still_known(home: Home) -> None:
    """Settings of the turn, instructions, tools, and tokens used."""
    script = Script()
    script.start("t1")
    script.add("turn_context", {"turn_id": "t1", "model": "m1", "cwd": "/srv"})
    script.user("question")
    usage = {
        "input_tokens": 1,
        "cached_input_tokens": 0,
        "output_tokens": 2,
        "reasoning_output_tokens": 0,
        "total_tokens": 3,
    }
    count = script.event("token_count", info={"total_token_usage": usage, "last_token_usage": usage})
    script.event("token_count", info=None)
    script.compacted("c")
    tools = [{"name": "t", "description": "d", "inputSchema": {}}]
    context = context_of(script, home, base_instructions={"text": "be brief"}, dynamic_tools=tools)
    assert context.settings["model"] == "m1"
    assert context.base_instructions.text == "be brief"
    assert context.dynamic_tools == tools
    assert context.usage is not None
    assert context.usage.source == count.rstrip(b"\n")


def test_settings_come_from_the_memory_where_the_range_has_none(home: Home) -> None:
    """The scan stops at the checkpoint; what stands before it is in the x_memory behind it."""
    script = Script()
    script.add("turn_context", {"model": "not read"})
    script.compacted("c")
    known = {"turn_context": {"value": {"model": "m1"}}, "usage": {"total_tokens": 7}}
    script.add("x_memory", {"version": 1, "upto_offset": 0, **known})
    context = context_of(script, home)
    assert context.turn_context is None
    assert context.settings == {"model": "m1"}
    assert context.token_usage == {"total_tokens": 7}


def test_settings_of_a_rolled_back_turn_do_not_count(home: Home) -> None:
    """Those of the newest turn that is left do; the tokens were used all the same."""
    script = Script()
    for number in (1, 2):
        script.start(f"t{number}")
        script.add("turn_context", {"model": f"m{number}"})
        script.user(f"question {number}")
        script.add("token_usage_record", {"response_id": f"r{number}", "usage": {}})
    script.event("thread_rolled_back", num_turns=1)
    context = context_of(script, home)
    assert context.settings == {"model": "m1"}
    assert context.usage is not None
    assert context.token_usage["response_id"] == "r2"


def test_newest_tools_count(home: Home) -> None:
    """Those of an update, else those that the checkpoint names, else those of the meta line."""
    script = Script()
    named = {"message": "m", "replacement_history": [], "resume_metadata": {"dynamic_tools": [{"name": "b"}]}}
    script.add("dynamic_tools_updated", {"thread_id": A, "tools": [{"name": "older"}]})
    script.add("compacted", named)
    assert context_of(script, home, dynamic_tools=[{"name": "a"}]).dynamic_tools == [{"name": "b"}]
    script.add("dynamic_tools_updated", {"thread_id": A, "tools": [{"name": "c"}]})
    assert context_of(script, home, dynamic_tools=[{"name": "a"}]).dynamic_tools == [{"name": "c"}]


# Damage and descent


@pytest.mark.case("B49")
def test_damaged_checkpoint_is_named_and_the_one_before_counts(home: Home) -> None:
    """The context is the older checkpoint's, with everything since."""
    script = Script()
    script.compacted("kept")
    script.turn(1)
    script.lines.append(script.compacted("damaged")[:-20] + b"\n")
    del script.lines[-2]
    script.turn(2)
    context = context_of(script, home)
    assert texts(context) == ["question 1", "answer 1", "question 2", "answer 2"]
    (passed,) = context.passed_over
    assert passed.reason == "not_json"


@pytest.mark.case("B55")
@pytest.mark.parametrize("mode", ["copy", "reference"])
def test_child_whose_parent_is_gone_still_has_a_context(home: Home, mode: Any) -> None:
    """A copy all of it, a reference its own part, and it says what is missing."""
    script = Script()
    script.turn(1)
    parent = write_thread(home, A, script.bytes, base_instructions={"text": "be brief"})
    child = place_of(home, B)
    made = make_fork(parent, child, thread_id=B, home=home, mode=mode)
    script.lines.clear()
    script.next_ordinal = made.border.end_ordinal
    script.turn(2)
    with child.open("ab") as file:
        file.write(script.bytes)
    whole = load_model_context(child, home)
    parent.unlink()
    context = load_model_context(child, home)
    assert context.base_instructions == whole.base_instructions
    if mode == "copy":
        assert context == whole
        return
    assert texts(context) == ["question 2", "answer 2"]
    assert not context.whole
    assert context.base_problem is not None
    assert context.base_problem.code == "missing"


def test_valid_last_line_without_newline_counts(home: Home) -> None:
    """It is a record to every reader."""
    script = Script()
    script.turn(1)
    last = script.response("assistant", "unfinished")
    path = write_thread(home, A, script.bytes.removesuffix(last) + last.rstrip(b"\n"))
    assert texts(load_model_context(path, home))[-1] == "unfinished"


def test_reading_a_context_changes_nothing(home: Home, tmp_path: Path) -> None:
    """No byte of the home, and no file in it."""
    script = Script()
    script.turn(1)
    path = write_thread(home, A, script.bytes + b"torn")
    shutil.copytree(home.path, tmp_path / "before")
    load_model_context(path, home, deep=True)
    files = [each.relative_to(home.path) for each in home.path.rglob("*") if each.is_file()]
    assert files == [path.relative_to(home.path)]
    assert path.read_bytes() == (tmp_path / "before" / files[0]).read_bytes()


def test_items_decode_into_their_types(home: Home) -> None:
    """`item()` gives what reading the record would give."""
    script = Script()
    script.turn(1, calls=["c1"])
    for item in context_of(script, home).items:
        assert item.item().record_type == "response_item"
        assert item.size_bytes == len(bytes(item.payload))
        assert bytes(item.payload) == dump(json.loads(bytes(item.payload)))
