"""Fold blocks: what is told of many lines at once is what each of them alone tells."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol import decode_line, encode_line, matters
from protocol.fold_block import scan_block
from tests.protocol.folding import event, item, placed, response
from tests.protocol.histories import random_history


def message(ordinal: int | None, **keys: Any) -> bytes:
    """A line that says nothing to the fold."""
    number = {} if ordinal is None else {"ordinal": ordinal}
    payload = {"type": "message", "role": "assistant", "content": []}
    value = {"timestamp": "t", **number, "type": "response_item", "payload": payload, **keys}
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32))
def test_lines_that_matter_are_those_of_the_filter(seed: int) -> None:
    """And each comes with the greatest ordinal before it."""
    lines = [line for line, _ in placed(random_history(random.Random(seed), aside=True, lines_max=30))]
    found = scan_block(b"".join(map(encode_line, lines)), None)
    if found is None:
        return
    ordinals = [line.ordinal for line in lines]

    def greatest(before: int) -> int | None:
        return max((each for each in ordinals[:before] if each is not None), default=None)

    assert {number for number, _ in found[:-1]} >= {n for n, line in enumerate(lines) if matters(line)}
    assert all(before == greatest(number) for number, before in found)
    assert found[-1][0] == len(lines)


def test_block_of_messages_is_passed_over_at_once() -> None:
    """With the display's form of them, which is the half of a paginated rollout."""
    shown = [item("AgentMessage", "i", content=[]), event("agent_message", message="hm")]
    lines = [response("message", role="assistant", content=[]), *shown, response("reasoning", summary=[])]
    pairs = [line for line, _ in placed(lines * 8)]
    assert scan_block(b"".join(map(encode_line, pairs)), None) == [(32, 31)]
    assert scan_block(message(7) + message(None) + message(8), 6) == [(3, 8)]


@pytest.mark.guarantee("G8")
@pytest.mark.parametrize(
    "data",
    [
        message(8) + message(10),
        message(9),
        message(7) + message(7),
        message(-1),
        message(7) + b"\n" + message(8),
        message(7) + b"{broken\n" + message(8),
        message(7) + b"\0\0\0\n",
        message(7)[:-3] + b"\n" + message(8),
        message(7).replace(b"assistant", b"assist\xffnt"),
        message(7).replace(b'"content":[]', b'"content":' + b"[" * 130 + b"]" * 130),
        message(7, payload=5),
        message(7, payload=[]),
        message(7, type=5),
        message(7, type=""),
        message(7).replace(b'"ordinal":7', b'"ordinal":"7"'),
        message(7).replace(b'"ordinal":7', b'"ordinal":1' + b"0" * 30),
        message(7).replace(b'"message"', b'["message"]'),
        b'{"record_type":"state"}\n',
        message(7)[:-1] + message(8) + message(9).replace(b'"content":[]', b'"content":[\n]'),
        message(7)[:-1] + message(8) + message(9).replace(b"assistant", b"assis}\n{tant"),
        message(7)[:-1] + message(8) + message(9).replace(b"[]", b'[{},\n{"timestamp":"x"}]'),
        b'\xef\xbb\xbf' + message(7),
    ],
)  # fmt: skip
def test_block_with_anything_odd_is_none(data: bytes) -> None:
    """Gaps, damage, strange values: such lines are decoded one by one."""
    assert scan_block(data, 6) is None


@pytest.mark.parametrize("nested", [b'{"a":' * 100 + b"1" + b"}" * 100, b"[" * 100 + b"]" * 100])
def test_line_that_nests_as_deep_as_it_may_is_taken_somehow(nested: bytes) -> None:
    """Alone it is no block, or one; in both cases it is valid."""
    line = message(7).replace(b'"content":[]', b'"content":' + nested)
    assert decode_line(line).ordinal == 7
    assert scan_block(line, 6) in (None, [(1, 7)])
