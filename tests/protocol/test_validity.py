"""The validity rule: decided by the bytes alone, the same for every reader."""

from __future__ import annotations

import inspect
import json
import sys

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from protocol import InvalidLine, decode_line
from protocol.validity import NESTING_MAX, is_blank, nesting_depth, parse_object, parse_value
from tests.protocol.judge import judge, same
from tests.protocol.strategies import damaged, json_bytes


def accepted(data: bytes) -> bool:
    try:
        decode_line(data)
    except InvalidLine:
        return False
    return True


def arrays(depth: int) -> bytes:
    return b'{"type":"a","payload":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"


def objects(depth: int) -> bytes:
    return b'{"a":' * (depth - 1) + b"{}" + b"}" * (depth - 1)


@settings(max_examples=500)
@given(damaged())
@example(b'{"a":NaN,"b":-Infinity}')
@example(b'{"payload":"\\ud800"}')
@example(b'{"a":1,"a":[2,{"a":3}]}')
@example(b'{"type":1,"type":"b","payload":1,"payload":2}')
@example(b"{}\x00")
@example(b'{"a":' + b"9" * 5000 + b"}")
@example(b'{"payload":"\xed\xa0\x80"}')
@example(b'{"\x7fsource":"AAAA","\x7fupcast_from":"x"}')
def test_a_line_is_valid_by_the_rule_and_by_nothing_else(data: bytes) -> None:
    """Exactly the lines that plain Python's json takes are valid, whatever the fast path says."""
    assert accepted(data) == (judge(data) is not None)


@settings(max_examples=500)
@given(st.one_of(json_bytes(), damaged()))
def test_both_ways_of_judging_give_the_same_object(data: bytes) -> None:
    """The rule's own parser gives what plain Python's json gives."""
    expected = judge(data)
    if expected is None or b"\n" in data:
        return
    assert same(parse_object(data), expected)


@given(st.binary(max_size=40))
def test_any_bytes_are_judged_without_another_error(data: bytes) -> None:
    """No bytes make the reader raise anything but `InvalidLine`."""
    assert accepted(data) == (judge(data.removesuffix(b"\n")) is not None)


@pytest.mark.parametrize("make", [arrays, objects])
@pytest.mark.parametrize(("depth", "valid"), [(127, True), (128, True), (129, False), (50_000, False)])
def test_nesting_is_bounded_at_128(make: object, depth: int, valid: bool) -> None:
    """128 levels pass and 129 don't, whatever the brackets are."""
    data = make(depth)  # type: ignore[operator]
    assert nesting_depth(data) == depth
    assert accepted(data) is valid
    if not valid:
        with pytest.raises(InvalidLine) as caught:
            decode_line(data)
        assert caught.value.reason == "too_deep"


@pytest.mark.parametrize("arrays_inside", range(0, 121, 8))
@pytest.mark.parametrize("depth", [128, 129])
def test_mixed_nesting_is_bounded_at_128(arrays_inside: int, depth: int) -> None:
    """The shortest lines that nest so deep, of objects and arrays in any share, are judged right."""
    around = depth - 1 - arrays_inside
    data = b'{"":' * around + b"[" * arrays_inside + b"{}" + b"]" * arrays_inside + b"}" * around
    assert nesting_depth(data) == depth
    assert accepted(data) is (depth == 128)
    assert accepted(data.replace(b"{}", b"[]")) is (depth == 128)


def test_brackets_in_strings_do_not_nest() -> None:
    """Only brackets outside strings count, escaped quotes notwithstanding."""
    text = json.dumps({"a": '\\"[{' * 200, "b": "]}" * 200}).encode()
    assert nesting_depth(text) == 1
    assert accepted(text)


def test_used_up_stack_never_makes_a_line_invalid() -> None:
    """Where the caller's own calls are too deep that is said, and not that the line is bad."""
    data = b'{"type":"a","payload":[NaN,' + b"[" * 100 + b"]" * 100 + b"]}"
    outcomes = set()

    def dive(levels: int) -> None:
        if levels:
            dive(levels - 1)
        try:
            outcomes.add(decode_line(data).type)
        except RecursionError:
            outcomes.add("recursion")

    room = sys.getrecursionlimit() - len(inspect.stack(0))
    dive(room - 60)
    assert "a" in outcomes
    assert outcomes <= {"a", "recursion"}


def test_depth_hidden_by_a_doubled_key_counts() -> None:
    """What a later key of the same name hides must be parsed all the same."""
    hidden = b'{"type":"a","payload":' + b"[" * 130 + b"]" * 130 + b',"payload":1}'
    assert not accepted(hidden)


def test_many_shallow_brackets_are_valid() -> None:
    """How many brackets a line has doesn't matter, only how deep they nest."""
    assert accepted(b'{"type":"a","payload":[' + b"[{}]," * 5000 + b"1]}")


@pytest.mark.parametrize("size", [100_000, 400_000])
def test_unterminated_strings_cost_linear_time(size: int) -> None:
    """A broken line of quotes and brackets can't make the depth count go quadratic."""
    assert not accepted(b'{"a":"' + b'\\"[' * size)
    assert not accepted(b"[" * size + b'"' + b"\\" * (2 * size))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty"),
        (b" \t\r", "empty"),
        (b"\0" * 512, "nul_bytes"),
        (b'{"a":\0}', "nul_bytes"),
        (b'{"a":"\xff"}', "not_utf8"),
        (b'\xef\xbb\xbf{"a":1}', "bom"),
        (b"[1]", "not_an_object"),
        (b'"a"', "not_an_object"),
        (b"1", "not_an_object"),
        (b"null", "not_an_object"),
        (b'{"a":1', "not_json"),
        (b'{"a":1}{"b":2}', "not_json"),
        (b'{"a":1\n}', "newline"),
    ],
)
def test_refused_line_says_why(data: bytes, reason: str) -> None:
    """The reason is a code of a closed set, and the message is for people."""
    with pytest.raises(InvalidLine) as caught:
        decode_line(data)
    assert caught.value.reason == reason
    assert str(caught.value)


@pytest.mark.parametrize(
    ("data", "offset"),
    [(b'{"a":"\xff"}', 6), ('{"é":"x" 1}'.encode(), 10), (b'{"a":1}\0', 7)],
)
def test_refused_line_says_where(data: bytes, offset: int) -> None:
    """The place of the damage is counted in bytes, also behind non-ASCII text."""
    with pytest.raises(InvalidLine) as caught:
        decode_line(data)
    assert caught.value.offset_bytes == offset


def test_integers_of_any_length_are_valid() -> None:
    """The length of a number is no reason to lose a line; past `int`'s limit its text is kept."""
    digits = "9" * 5000
    line = decode_line(b'{"type":"a","payload":{"n":%b},"ordinal":%b}' % (digits.encode(), digits.encode()))
    assert line.payload_object() == {"n": digits}
    assert line.ordinal is None
    assert parse_value(b"123456789012345678901234567890") == 123456789012345678901234567890


def test_blank_is_json_white_space_only() -> None:
    """Other white space of Unicode doesn't make a line blank."""
    assert is_blank(b" \t\r\n")
    assert not is_blank(b"\x0b")
    assert not is_blank("\u2028".encode())
    assert NESTING_MAX == 128
