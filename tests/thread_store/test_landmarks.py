"""Which records decide where a thread may be cut."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.items import CODEX_TYPES
from protocol.line import decode_line
from tests.thread_store.histories import dump
from thread_store.chain.landmarks import CallKey, Landmark, Mark, landmark_of


def mark(record_type: str, payload: Any) -> Landmark | None:
    return landmark_of(decode_line(dump({"timestamp": "t", "type": record_type, "payload": payload})))


@pytest.mark.parametrize(
    ("record_type", "payload", "expected"),
    [
        ("event_msg", {"type": "task_started", "turn_id": "t"}, Landmark(Mark.TURN_START)),
        ("event_msg", {"type": "turn_complete"}, Landmark(Mark.TURN_END)),
        ("event_msg", {"type": "turn_aborted", "reason": "replaced"}, Landmark(Mark.TURN_END)),
        ("event_msg", {"type": "user_message", "message": "x"}, Landmark(Mark.USER_EVENT)),
        ("event_msg", {"type": "item_completed", "item": {"type": "UserMessage"}}, Landmark(Mark.USER_ITEM)),
        ("event_msg", {"type": "item_completed", "item": {"type": "Plan"}}, None),
        ("event_msg", {"type": "item_completed", "item": "x"}, None),
        ("event_msg", {"type": "thread_rolled_back", "num_turns": 3}, Landmark(Mark.ROLLBACK, turns=3)),
        ("event_msg", {"type": "thread_rolled_back", "num_turns": "3"}, None),
        ("event_msg", {"type": "thread_rolled_back", "num_turns": -1}, None),
        ("response_item", {"type": "message", "role": "user", "content": []}, Landmark(Mark.USER_RESPONSE)),
        ("response_item", {"type": "message", "role": "assistant", "content": []}, None),
        ("compacted", {"message": ""}, Landmark(Mark.CHECKPOINT)),
        ("compacted", None, Landmark(Mark.CHECKPOINT)),
        ("x_call", {"call_id": "c", "state": "intended"}, Landmark(Mark.REQUEST, CallKey("x_call", "c"))),
        ("x_call", {"call_id": "c", "state": "declined"}, Landmark(Mark.RESULT, CallKey("x_call", "c"))),
        ("x_call", {"call_id": "c", "state": "resolved"}, None),
        ("x_call", {"call_id": 7, "state": "started"}, None),
        ("turn_context", {"type": "task_started"}, None),
    ],
)
def test_record_marks_what_it_says(record_type: str, payload: Any, expected: Landmark | None) -> None:
    """And what it doesn't say in the right shape it doesn't mark."""
    assert mark(record_type, payload) == expected


@pytest.mark.parametrize(
    "kind", ["function_call", "custom_tool_call", "local_shell_call", "tool_search_call"]
)
def test_every_kind_of_call_pairs_with_its_output(kind: str) -> None:
    """By its id; a call without one pairs with nothing."""
    key = CallKey("response_item", "c")
    assert mark("response_item", {"type": kind, "call_id": "c"}) == Landmark(Mark.REQUEST, key)
    assert mark("response_item", {"type": f"{kind}_output", "call_id": "c"}) == Landmark(Mark.RESULT, key)
    assert mark("response_item", {"type": kind}) is None


def test_record_that_only_the_rule_reads_is_marked_all_the_same() -> None:
    """Lone surrogates and NaN are none of the fast decoder's, and hide no call."""
    key = CallKey("response_item", "c")
    for text in (
        b'{"timestamp":"t","type":"response_item","payload":{"type":"function_call","call_id":"c","name":"\\ud800"}}',
        b'{"timestamp":"t","type":"response_item","payload":{"type":"function_call","call_id":"c","role":NaN}}',
    ):
        assert landmark_of(decode_line(text)) == Landmark(Mark.REQUEST, key)
    payload = b'{"type":"item_completed","role":"\\ud800","item":{"type":"UserMessage"}}'
    line = b'{"timestamp":"t","type":"event_msg","payload":' + payload + b"}"
    assert landmark_of(decode_line(line)) == Landmark(Mark.USER_ITEM)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)
_KEYS = st.sampled_from(["type", "call_id", "role", "state", "num_turns", "item"])
_WORDS = st.sampled_from(["task_started", "item_completed", "message", "function_call", "thread_rolled_back"])


@given(
    st.sampled_from(sorted(CODEX_TYPES | {"x_call"})),
    _JSON | st.dictionaries(_KEYS, _WORDS | _JSON, max_size=6),
)
def test_no_payload_makes_it_fail(record_type: str, payload: Any) -> None:
    """Whatever another program wrote."""
    found = mark(record_type, payload)
    assert found is None or isinstance(found, Landmark)
