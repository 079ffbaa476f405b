"""The redactor's hook: no text escapes it, no id, hash or sealed block goes through it."""

from __future__ import annotations

import dataclasses
import json
import re
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from msgspec import Raw

from protocol import (
    ApprovalItem,
    CallItem,
    Compacted,
    EventMsg,
    FilesItem,
    GitInfo,
    HistoryBase,
    ItemNotEncodable,
    RedactionFailed,
    ResponseItem,
    RolloutItem,
    SessionMeta,
    TurnItem,
    WorldState,
    bind,
    encode_item,
    redact_item,
    redact_item_by,
    redact_text,
    tracks,
)
from protocol.redact import HOOK_RULE, marker
from tests.protocol.strategies import values

CANARY = 'sk-CANARY "é\n'


def censor(text: str) -> str:
    return text.replace(CANARY, "[gone]")


def scramble(text: str) -> str:
    return f"<{len(text)}>"


def payload_of(item: RolloutItem) -> Any:
    return json.loads(encode_item(item, timestamp="T"))["payload"]


@dataclasses.dataclass
class Note:
    """An object of a caller's own, which JSON has a form for."""

    text: str


ITEMS: list[RolloutItem] = [
    ResponseItem.message("user", f"key {CANARY}"),
    ResponseItem.message("user", [{"type": "other", "deep": [{"text": CANARY, "n": None}]}]),
    ResponseItem.function_call(name="shell", arguments={"cmd": CANARY, "id": CANARY}, call_id="c"),
    ResponseItem.function_call_output(call_id="c", output=CANARY),
    ResponseItem.function_call_output(call_id="c", output={"nested": {CANARY: [CANARY]}}),
    ResponseItem.function_call_output(call_id="c", output=[{"type": "input_text", "text": CANARY}]),
    ResponseItem.custom_tool_call(name="n", input=CANARY, call_id="c"),
    ResponseItem.reasoning([CANARY], encrypted_content="zz"),
    ResponseItem.local_shell_call(call_id="c", command=["echo", CANARY]),
    EventMsg.patch_apply_end(
        call_id="c", status="completed", changes={f"/home/{CANARY}": {"type": "add", "content": CANARY}}
    ),
    EventMsg.task_complete("t", last_agent_message=CANARY, error=CANARY),
    EventMsg.plan_update([(CANARY, "pending")]),
    EventMsg.item_completed(
        TurnItem.command_execution(call_id="c", command=[CANARY], cwd="/", output=CANARY)
    ),
    EventMsg.item_completed(
        TurnItem.tool_call(call_id="c", name="n", arguments={"user_id": CANARY, CANARY: 1})
    ),
    Compacted(
        message=CANARY, replacement_history=[ResponseItem.message("user", CANARY), {"content": CANARY}]
    ),
    SessionMeta(
        cwd=f"/srv/{CANARY}", x_task={"prompt": CANARY, "limits": [CANARY]}, source={"custom": CANARY}
    ),
    CallItem(call_id="c", state="failed", error=CANARY, note=CANARY),
    ApprovalItem(approval_id="a", state="declined", reason=CANARY),
    FilesItem(path=CANARY),
    RolloutItem.raw("x_note", {"text": CANARY, "input": {"id": CANARY}, "list": (CANARY, [CANARY])}),
    RolloutItem.raw("x_note", json.dumps({"text": CANARY, "n": 1}).encode()),
    RolloutItem.raw("x_note", Raw(json.dumps([CANARY, {"a": CANARY}]).encode())),
    RolloutItem.raw("x_note", CANARY),
    WorldState(full=True, state={"environment": {"note": CANARY}}),
    RolloutItem.raw("x_note", {"type": {"text": CANARY}, "role": CANARY, "user_id": CANARY}),
    RolloutItem.raw("x_note", {"args": {"signature": "x", "text": CANARY, "encrypted_content": CANARY}}),
    RolloutItem.raw("x_note", {"set": {CANARY}, "object": Note(CANARY), "list": [Note(CANARY)]}),
    RolloutItem.raw("x_note", {"raw": Raw(json.dumps([CANARY, 1.5]).encode()), "n": Raw(b"1.50")}),
    *tracks.user_message(CANARY, images=[f"https://x/{CANARY}"]),
    *tracks.agent_message(CANARY),
    *tracks.tool_call(call_id="c", name="n", arguments=json.dumps({"token": CANARY, "id": [CANARY]})),
    *tracks.mcp_result(call_id="c", server="s", tool="t", arguments={"id": CANARY}, output={"a": CANARY}),
    *tracks.plan_update([(CANARY, "pending")], explanation=CANARY)[:2],
    RolloutItem.raw("x_note", {"id": {"text": CANARY}, "ids": [{"text": CANARY}]}),
]


@pytest.mark.case("B102")
@pytest.mark.parametrize("item", ITEMS)
def test_canary_is_in_no_byte_of_the_record(item: RolloutItem) -> None:
    """A secret is gone from every text of every kind of item, however deep, escaped or nested."""
    assert escaped_forms(encode_item(item, timestamp="T"))
    line = encode_item(redact_item(item, censor), timestamp="T")
    assert not escaped_forms(line)
    assert b"[gone]" in line


def escaped_forms(line: bytes) -> list[str]:
    return re.findall("CANARY", line.decode())


@pytest.mark.case("B102")
@pytest.mark.parametrize("item", ITEMS)
def test_redacted_item_is_of_the_same_class(item: RolloutItem) -> None:
    """The redactor changes texts, never what an item is; the given item stays as it was."""
    before = encode_item(item, timestamp="T")
    changed = redact_item(item, censor)
    assert type(changed) is type(item)
    assert changed.record_type == item.record_type
    assert encode_item(item, timestamp="T") == before


@pytest.mark.parametrize("item", ITEMS)
def test_redactor_that_changes_nothing_gives_the_same_item(item: RolloutItem) -> None:
    """Without a change there is no copy, and encoded payloads keep their bytes."""
    assert redact_item(item, lambda text: text) is item


ENCRYPTED = "gAAAAABo-signed"
SIGNED = {"type": "thinking", "thinking": "secret plan", "signature": "c2ln", "nested": {"text": "x"}}
KEPT: list[tuple[RolloutItem, dict[str, Any]]] = [
    (
        ResponseItem.function_call(name="n", arguments="{}", call_id="call_1"),
        {"type": "function_call", "call_id": "call_1"},
    ),
    (
        ResponseItem.reasoning(["x"], encrypted_content=ENCRYPTED, item_id="rs_1"),
        {"type": "reasoning", "id": "rs_1", "encrypted_content": ENCRYPTED},
    ),
    (
        ResponseItem.message("assistant", "x", phase="commentary"),
        {"role": "assistant", "phase": "commentary"},
    ),
    (
        bind(EventMsg.item_completed(TurnItem.agent_message("x", item_id="i1")), "T", "t1"),
        {"type": "item_completed", "thread_id": "T", "turn_id": "t1"},
    ),
    (
        SessionMeta(
            id="01960000",
            cwd="/",
            timestamp="2026-11-29T10:11:12.345Z",
            model_provider="openai",
            forked_from_id="f",
            git=GitInfo(commit_hash="c0ffee"),
            history_base=HistoryBase("r", 1, 2, "ab" * 32),
            x_pad="    ",
        ),
        {
            "id": "01960000",
            "timestamp": "2026-11-29T10:11:12.345Z",
            "model_provider": "openai",
            "forked_from_id": "f",
            "history_mode": "paginated",
            "git": {"commit_hash": "c0ffee"},
            "history_base": {
                "thread_id": "r",
                "end_ordinal_exclusive": 1,
                "end_byte_offset": 2,
                "x_base_sha256": "ab" * 32,
            },
            "x_pad": "    ",
        },
    ),
    (
        CallItem(
            call_id="c",
            turn_id="t",
            state="started",
            kind="custom",
            effect="unsafe",
            key="m-17",
            args_sha256="ab",
        ),
        {
            "call_id": "c",
            "turn_id": "t",
            "state": "started",
            "kind": "custom",
            "effect": "unsafe",
            "key": "m-17",
            "args_sha256": "ab",
        },
    ),
    (
        RolloutItem.raw(
            "x_import",
            {
                "type": "assistant",
                "id": "m",
                "uuid": "u",
                "parentUuid": "p",
                "sessionId": "s",
                "sha256": "ab",
                "call_ids": ["c"],
            },
        ),
        {
            "type": "assistant",
            "id": "m",
            "uuid": "u",
            "parentUuid": "p",
            "sessionId": "s",
            "sha256": "ab",
            "call_ids": ["c"],
        },
    ),
    (RolloutItem.raw("x_import", {"content": [SIGNED]}), {"content": [SIGNED]}),
    (
        RolloutItem.raw("x_import", json.dumps({"content": [SIGNED], "n": "text"}).encode()),
        {"content": [SIGNED]},
    ),
    (RolloutItem.raw("x_import", {"encrypted_content": ENCRYPTED}), {"encrypted_content": ENCRYPTED}),
]


@pytest.mark.case("B103")
@pytest.mark.case("B47")
@pytest.mark.parametrize(("item", "kept"), KEPT)
def test_ids_hashes_and_sealed_blocks_are_kept(item: RolloutItem, kept: dict[str, Any]) -> None:
    """Even a redactor that changes every text leaves what names, proves or seals."""
    payload = payload_of(redact_item(item, scramble))
    assert {key: payload[key] for key in kept} == kept


def test_every_text_goes_through_the_redactor() -> None:
    """What isn't kept is changed, all of it."""
    item = RolloutItem.raw("x", {"a": "1", "b": ["22", {"c": "333"}], "d": 4, "e": None})
    assert payload_of(redact_item(item, scramble)) == {
        "a": "<1>",
        "b": ["<2>", {"c": "<3>"}],
        "d": 4,
        "e": None,
    }


def test_numbers_of_encoded_payloads_keep_their_text() -> None:
    """Redacting one text of an encoded payload leaves its numbers as they were written."""
    item = RolloutItem.raw("x", b'{ "n": 1.50, "big": %b, "text": "a", "none": null }' % (b"9" * 5000))
    line = encode_item(redact_item(item, scramble), timestamp="T")
    assert line.endswith(b'{"n":1.50,"big":%b,"text":"<1>","none":null}}\n' % (b"9" * 5000))


def test_keys_that_become_one_lose_no_value() -> None:
    """Texts used as keys are redacted too; two that become the same stay two."""
    item = EventMsg.item_completed(TurnItem.tool_call(call_id="c", name="n", arguments={"ab": 1, "cd": 2}))
    arguments = payload_of(redact_item(item, scramble))["item"]["arguments"]
    assert arguments == {"<2>": 1, "<2>'": 2}


def test_text_that_is_json_is_redacted_inside_and_outside() -> None:
    """Escapes inside a JSON text hide nothing, and what is no JSON is simply a text."""
    escaped = json.dumps({"key": CANARY})
    item = ResponseItem.function_call_output(call_id="c", output=escaped)
    assert json.loads(payload_of(redact_item(item, censor))["output"]) == {"key": "[gone]"}
    for text in ('{"key": oops', "[1, \ud800", "{}"):
        item = ResponseItem.function_call_output(call_id="c", output=text)
        assert redact_item(item, censor) is item


@pytest.mark.parametrize("gives", [None, 7, b"bytes"])
def test_redactor_that_gives_no_text_is_an_error(gives: Any) -> None:
    """A broken redactor must not let anything through."""
    with pytest.raises(ItemNotEncodable):
        redact_item(ResponseItem.message("user", "x"), lambda text: gives)


def test_failing_hook_is_an_error_that_tells_nothing_of_the_text() -> None:
    """The caller learns that the hook failed, and how; the hook's own error may hold the secret."""

    def broken(text: str) -> str:
        raise LookupError(text)

    with pytest.raises(RedactionFailed) as caught:
        redact_item(ResponseItem.message("user", CANARY), broken)
    error = caught.value
    assert error.cause_type == "LookupError"
    assert error.__cause__ is None
    assert error.__context__ is None
    assert "CANARY" not in f"{error}{error!r}{error.__dict__}"


def test_interrupt_inside_of_a_hook_is_no_failure() -> None:
    """Ctrl-C comes through as it is."""

    def interrupted(text: str) -> str:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        redact_item(ResponseItem.message("user", "x"), interrupted)


@pytest.mark.case("B102")
@pytest.mark.parametrize(
    "item",
    [
        RolloutItem.raw("x", b'{"a":"CANARY","a":"x"}'),
        RolloutItem.raw("x", {"raw": Raw(b'[{"a":"CANARY","a":"x"}]')}),
        ResponseItem.function_call(name="n", arguments='{"a":"CAN\\u0041RY","a":"x"}', call_id="c"),
        RolloutItem.raw("x", {"sk_CANARY_0123456789": 1}),
        RolloutItem.raw("x", {"a": {"CANARYCANARY" * 9: 1}}),
    ],
)
def test_secret_does_not_hide_behind_a_name(item: RolloutItem) -> None:
    """As one itself, or as the value of one that comes again and is the only one that counts."""
    line = encode_item(redact_item(item, lambda text: text.replace("CANARY", "[gone]")), timestamp="T")
    payload = json.loads(line)["payload"]
    assert "CANARY" not in json.dumps(payload)
    assert b"CANARY" not in line
    assert b"CAN" not in line


@pytest.mark.case("B103")
@pytest.mark.parametrize(
    "arguments", ['{"a": "x SECRET", "b": 1}', ' [ "SECRET" ]', '{"a":{"b":"\\"SECRET\\""}}']
)
@pytest.mark.parametrize("taken", ["SECRET", 'SECRET"', 'SECRET"}', '"SECRET', ":"])
def test_json_text_stays_json(arguments: str, taken: str) -> None:
    """Whatever a redactor takes out of the arguments of a call, they stay JSON without the secret."""
    item = ResponseItem.function_call(name="n", arguments=arguments, call_id="c")
    redacted = payload_of(redact_item(item, lambda text: text.replace(taken, "").replace("SECRET", "")))
    json.loads(redacted["arguments"])
    assert "SECRET" not in redacted["arguments"]


def test_replacements_are_counted_by_rule() -> None:
    """By the markers that the hook put there; those that stood there already don't count."""
    tally: Counter[str] = Counter()
    old = marker("old")
    item = ResponseItem.message(
        "user", [{"type": "input_text", "text": text} for text in ("q q", f"q {old}", old)]
    )
    redact_item(item, lambda text: text.replace("q", marker("letter")), tally=tally)
    assert tally == {"letter": 3}
    redact_item(item, lambda text: text.replace("q", "*"), tally=tally)
    assert tally == {"letter": 3, HOOK_RULE: 2}


def test_text_of_no_item_is_redacted_alike() -> None:
    """A title goes through the same door."""
    assert redact_text(json.dumps({"key": CANARY}), censor) == '{"key":"[gone]"}'


def test_hook_on_items_may_change_texts() -> None:
    """It sees the item and returns another one."""
    item = ResponseItem.message("user", CANARY)
    changed = redact_item_by(item, lambda item: ResponseItem.message("user", "[gone]"))
    assert payload_of(changed)["content"][0]["text"] == "[gone]"
    assert redact_item_by(item, lambda item: item) is item


@pytest.mark.case("B103")
@pytest.mark.parametrize(
    ("item", "changed"),
    [
        (
            ResponseItem.function_call(name="n", arguments="{}", call_id="c"),
            ResponseItem.function_call(name="n", arguments="{}", call_id="d"),
        ),
        (
            ResponseItem.reasoning(["x"], encrypted_content="a"),
            ResponseItem.reasoning(["x"], encrypted_content="b"),
        ),
        (
            RolloutItem.raw("x", {"c": [SIGNED]}),
            RolloutItem.raw("x", {"c": [{**SIGNED, "thinking": "[gone]"}]}),
        ),
        (ResponseItem.message("user", "x"), EventMsg.user_message("x")),
        (ResponseItem.message("user", "x"), None),
    ],
)
def test_hook_on_items_may_not_change_what_names_or_proves(item: RolloutItem, changed: Any) -> None:
    """Another id, another sealed block, another type or no item: refused, and nothing is recorded."""
    with pytest.raises(RedactionFailed):
        redact_item_by(item, lambda item: changed)


def test_hook_on_items_that_changes_the_item_itself_is_judged_too() -> None:
    """Though it gives back the very item that it was given."""

    def change(item: Any) -> Any:
        item.call_id = "another"
        return item

    with pytest.raises(RedactionFailed):
        redact_item_by(ResponseItem.function_call(name="n", arguments="{}", call_id="c"), change)


def test_quick_redactor_is_asked_first() -> None:
    """Where it says that nothing changes, no text is put through it."""

    class Quick:
        def __call__(self, text: str) -> str:
            raise AssertionError(text)

        def may_change(self, payload: bytes) -> bool:
            return b"CANARY" in payload

    item = ResponseItem.message("user", "x")
    assert redact_item(item, Quick()) is item
    with pytest.raises(RedactionFailed):
        redact_item(ResponseItem.message("user", CANARY), Quick())


@given(values)
def test_any_value_can_be_redacted(value: Any) -> None:
    """Whatever a payload holds, its redacted form can be written and holds no other structure."""
    item = RolloutItem.raw("x", {"v": value, "text": "canary"})
    changed = redact_item(item, lambda text: text.replace("canary", "gone"))
    assert payload_of(changed)["text"] == "gone"
    encoded = RolloutItem.raw("x", encode_item(item, timestamp="T"))
    assert b"canary" not in encode_item(
        redact_item(encoded, lambda text: text.replace("canary", "gone")), timestamp="T"
    )
