"""What takes a record's place: valid, no longer than it, with its number."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.line import decode_line
from protocol.own import ErasedItem
from rollout.lines import judge_line
from thread_store.erasing.erased_line import erased_line, number_of
from thread_store.erasing.needle import Needle

BEGIN = b'{"timestamp":"2026-03-04T05:06:07.000Z","ordinal":41,"type":"event_msg","payload":{'
AT = "2026-03-04T05:06:07.000Z"


@given(size=st.integers(1, 400), numbered=st.booleans(), reason=st.none() | st.text(max_size=40))
def test_it_fits_and_is_valid_at_any_length(size: int, numbered: bool, reason: str | None) -> None:
    """A line, or blank; the number stays where any line could hold it."""
    ordinal = 41 if numbered else None
    head = erased_line(BEGIN, size, at=AT, reason=reason, needle=None, ordinal=ordinal, was="0" * 16)
    assert head is not None
    assert len(head) <= size
    record = judge_line(head.ljust(size), None, 0)
    if record is None:
        assert not head
        assert not numbered or size < 14
        return
    assert record.line is not None
    assert record.line.number == ordinal


def test_everything_is_in_it_where_there_is_room() -> None:
    """When, why, how many bytes, and what the line was."""
    head = erased_line(BEGIN, 300, at=AT, reason="pasted", needle=None, ordinal=41, was="ab" * 8)
    assert head is not None
    line = decode_line(head)
    assert line.timestamp == "2026-03-04T05:06:07.000Z"
    assert line.ordinal is None
    assert line.item() == ErasedItem(ordinal=41, bytes=300, at=AT, reason="pasted", was="ab" * 8)


@pytest.mark.parametrize("text", ["pasted", "2026-03-04", "x_erased", "timestamp", "payload"])
def test_what_is_erased_does_not_come_back_with_it(text: str) -> None:
    """Parts that hold it are left out, as far as the number can be kept."""
    needle = Needle.text(text)
    head = erased_line(BEGIN, 300, at=AT, reason="pasted", needle=needle, ordinal=41)
    assert head is not None
    assert not needle.is_in(head)
    assert decode_line(head).number == 41


def test_number_that_would_be_lost_is_told() -> None:
    """None: nothing may be put there."""
    needle = Needle.text('"ordinal":41')
    assert erased_line(BEGIN, 300, at=AT, reason=None, needle=needle, ordinal=41) is None


@pytest.mark.parametrize(
    ("data", "number"),
    [
        (BEGIN, 41),
        (BEGIN + b'"type":"x"}}', 41),
        (b'{"timestamp":"t","type":"x_erased","payload":{"ordinal":5,"bytes":9}}   ', 5),
        (b'{"ordinal":7}', 7),
        (b'{"timestamp":"t","type":"x_call","payload":{}}', None),
        (b"\xff", None),
    ],
)
def test_number_is_known_also_of_what_was_never_finished(data: bytes, number: int | None) -> None:
    """And of what was erased before."""
    assert number_of(data) == number
