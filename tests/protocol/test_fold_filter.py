"""The fold's filter: what is passed over really says nothing, and most lines are."""

from __future__ import annotations

import json
from typing import Any

import pytest

from protocol import RolloutItem, RolloutLine, decode_line, encode_item, item_matters, matters, tracks
from protocol.fold_filter import EVENTS, ITEMS, RESPONSES, TYPES
from tests.protocol.folding import event, item, line, recorded, response

IDS = {"thread_id": "T", "turn_id": "t"}

PAYLOADS: list[tuple[str, dict[str, Any]]] = [
    *((each, {}) for each in sorted(TYPES)),
    *(("response_item", {"type": each, "call_id": "c"}) for each in sorted(RESPONSES)),
    *(("event_msg", {"type": each, "call_id": "c"}) for each in sorted(EVENTS)),
    *(
        ("event_msg", {"type": "item_completed", **IDS, "item": {"type": each, "id": "i"}})
        for each in sorted(ITEMS)
    ),
    ("response_item", {"type": "message", "role": "user", "content": []}),
]

SILENT = [
    response("message", role="assistant", content=[]),
    response("message", role="developer", content=[]),
    response("reasoning", summary=[]),
    response("web_search_call", status="completed"),
    event("agent_message", message='{"type":"function_call"}'),
    event("agent_reasoning", text="hm"),
    event("context_compacted"),
    item("AgentMessage", "i", content=[]),
    item("Reasoning", "i", summary_text=[]),
    line("world_state", {"full": True, "state": {}}),
    line("x_memory", {"version": 1}),
    line("x_source", {"format": "pi", "record": {"type": "function_call"}}),
    line("unheard_of", {"type": "function_call"}),
]


def written(record_type: str, payload: dict[str, Any], **how: Any) -> RolloutLine:
    return decode_line(json.dumps({"type": record_type, "payload": payload}, **how).encode())


@pytest.mark.parametrize(("record_type", "payload"), PAYLOADS)
def test_line_that_speaks_of_the_thread_matters_however_it_is_written(
    record_type: str, payload: dict[str, Any]
) -> None:
    """Compact or spaced, the tag first or last."""
    for each in (payload, dict(reversed(payload.items()))):
        assert matters(written(record_type, each))
        assert matters(written(record_type, each, separators=(",", ":")))
        assert matters(written(record_type, each, separators=(",\t", " : \r")))


@pytest.mark.parametrize("silent", SILENT)
def test_line_that_says_nothing_is_passed_over(silent: RolloutLine) -> None:
    """What the agent says and thinks is the history's, not the fold's."""
    assert not matters(silent)


def test_payload_whose_tag_cannot_be_read_is_left_to_the_fold() -> None:
    """In doubt it matters."""
    assert matters(decode_line(b'{"type":"response_item","payload":{"type":5}}'))
    assert matters(decode_line(b'{"type":"event_msg","payload":[1]}'))
    assert matters(decode_line(b'{"type":"event_msg","payload":{"x":NaN,"type":"agent_message"}}'))
    assert not matters(decode_line(b'{"type":"event_msg","payload":{}}'))
    assert item_matters(RolloutItem.raw("event_msg", {"type": ["a"]}))
    assert item_matters(RolloutItem.raw("event_msg", [1]))


def test_message_of_the_agent_as_a_recorder_writes_it_is_never_decoded() -> None:
    """The frequent records are told by their first bytes."""
    pairs = recorded([*tracks.agent_message("hello"), *tracks.agent_reasoning("hm")])
    assert [matters(each) for each, _ in pairs] == [False] * len(pairs)
    pairs = recorded(tracks.user_message("hello"))
    assert [matters(each) for each, _ in pairs] == [True] * 3


@pytest.mark.parametrize("each", [*(written(*payload) for payload in PAYLOADS), *SILENT])
def test_item_and_the_line_made_of_it_are_judged_alike(each: RolloutLine) -> None:
    """Typed, raw as a dict, and raw as bytes: a writer may ask before or after it encodes."""
    raw = RolloutItem.raw(each.type or "", each.payload_object())
    for item_ in (each.item(), raw, RolloutItem.raw(each.type or "", bytes(each.payload))):
        line_of_item = decode_line(encode_item(item_, timestamp="2026-11-29T10:11:12.345Z"))
        if matters(line_of_item):
            assert item_matters(item_)
    assert item_matters(each.item()) == matters(each)


@pytest.mark.parametrize(
    "items",
    [
        tracks.user_message("a"), tracks.agent_message("a"), tracks.agent_reasoning("a"),
        tracks.command_call(call_id="c", command=["ls"], cwd="/"),
        tracks.command_result(call_id="c", command=["ls"], cwd="/", output="", exit_code=0),
        tracks.patch_result(call_id="c", changes={}, output=""), tracks.turn_started("t"),
        tracks.turn_completed("t"), tracks.compaction("m", []), tracks.plan_update([("a", "pending")]),
    ],
)  # fmt: skip
def test_items_of_the_tracks_are_judged_as_their_lines(items: list[RolloutItem]) -> None:
    """What a recorder is given most."""
    assert [item_matters(each) for each in items] == [matters(each) for each, _ in recorded(items)]
