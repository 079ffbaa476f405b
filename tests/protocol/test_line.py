"""The envelope: what was read is written back byte for byte, whatever it holds."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import Raw

from protocol import InvalidLine, Message, RawItem, RolloutLine, decode_line, encode_line
from tests.protocol.judge import judge, same
from tests.protocol.strategies import damaged, json_bytes

LINE = (
    b'{"timestamp":"2026-11-29T10:11:12.345Z","ordinal":7,"type":"response_item",'
    b'"payload":{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"}]}}'
)


def test_current_line_is_decoded() -> None:
    """The envelope is taken apart; the payload is decoded when it is asked for."""
    line = decode_line(LINE + b"\n")
    assert (line.timestamp, line.ordinal, line.type) == ("2026-11-29T10:11:12.345Z", 7, "response_item")
    assert bytes(line.payload).startswith(b'{"type":"message"')
    assert line.upcast_from is None
    item = line.item()
    assert isinstance(item, Message)
    assert item.text == "hi"


@pytest.mark.case("B113")
@settings(max_examples=500)
@given(st.one_of(json_bytes(), damaged()))
@example(LINE)
@example(b'{ "type" : "x" , "payload" : { "n" : 1.50e3 } , "crc" : 7 }\r')
@example(b'{"\\u0074ype":"x","payload":"\\ud83d\\ude00 \\/"}')
@example(b'{"\x7fsource":null,"\x7fupcast_from":null,"type":"a","payload":1}')
def test_valid_line_is_written_back_byte_for_byte(data: bytes) -> None:
    """Unknown keys, any order and spelling, white space, numbers: all stay as they were."""
    if judge(data) is not None:
        for given_data in (data, data + b"\n"):
            assert encode_line(decode_line(given_data)) == data + b"\n"


@settings(max_examples=500)
@given(st.one_of(json_bytes(), damaged()))
@example(b'{"timestamp":1,"ordinal":"7","type":null,"payload":null}')
@example(b'{"ordinal":true,"type":"a","payload":"\\ud800"}')
@example(b'{"type":"a","payload":"x","payload":NaN}')
@example(b'{"ordinal":1.0,"type":"a","payload":{}}')
def test_decoded_fields_are_those_of_the_object(data: bytes) -> None:
    """The fast decoder and plain json read the same fields; those of a wrong type count as absent."""
    value = judge(data)
    if value is None:
        return
    line = decode_line(data)
    assert line.source == data
    if line.upcast_from is not None:
        return
    assert line.timestamp == text_of(value, "timestamp")
    assert line.type == text_of(value, "type")
    ordinal = value.get("ordinal")
    assert line.ordinal == (ordinal if type(ordinal) is int else None)
    assert bool(line.payload) == ("payload" in value)
    assert same(line.payload_object(), value.get("payload"))


def text_of(value: dict[str, Any], key: str) -> str | None:
    found = value.get(key)
    return found if isinstance(found, str) else None


@settings(max_examples=300)
@given(damaged())
@example(b'{"type":"event_msg","payload":{"type":"user_message","message":"\\ud800"}}')
@example(b'{"type":"session_meta","payload":{"id":7,"git":{"commit":1}}}')
@example(b'{"type":"response_item","payload":{"type":"function_call","arguments":1e999}}')
def test_item_of_any_line_is_typed_or_raw(data: bytes) -> None:
    """Asking a valid line for its item never fails."""
    if judge(data) is not None:
        line = decode_line(data)
        item = line.item()
        if isinstance(item, RawItem):
            assert item.payload == bytes(line.payload)


@pytest.mark.case("B113")
@pytest.mark.parametrize(
    "record_type", ["x_unknown", "event_msg", "response_item", "session_meta", "a b/../c"]
)
def test_unknown_record_keeps_its_bytes(record_type: str) -> None:
    """An unknown type or variant comes as a raw item whose payload is what stands in the line."""
    payload = b'{"type":"never_seen","n":1.50,"deep":[{"a":null}]}'
    if record_type == "session_meta":
        payload = b"[1]"
    data = b'{"type":%b,"payload":%b}' % (json.dumps(record_type).encode(), payload)
    line = decode_line(data)
    assert line.item() == RawItem(record_type, payload)
    assert encode_line(line) == data + b"\n"


@pytest.mark.case("B39")
@pytest.mark.parametrize("character", list("\u2028\u2029\x85\x7f"))
def test_separators_of_unicode_do_not_end_a_line(character: str) -> None:
    """Only a newline byte ends a line; other separators are text."""
    data = b'{"type":"event_msg","payload":{"type":"user_message","message":"a%bb"}}' % character.encode()
    line = decode_line(data)
    assert line.payload_object()["message"] == f"a{character}b"
    assert encode_line(line) == data + b"\n"


@pytest.mark.case("B39")
@pytest.mark.parametrize("control", ["\x0b", "\x0c", "\x1c", "\x1d", "\x1e"])
def test_raw_control_characters_are_no_json(control: str) -> None:
    """JSON wants them escaped: escaped they are text, raw they make the line invalid."""
    assert decode_line(b'{"type":"a","payload":"\\u%04x"}' % ord(control)).payload_object() == control
    with pytest.raises(InvalidLine):
        decode_line(b'{"type":"a","payload":"%b"}' % control.encode())


@pytest.mark.case("B136")
def test_carriage_return_before_the_newline_is_white_space() -> None:
    """Lines that end in CRLF are read, and written back as they were."""
    line = decode_line(LINE + b"\r\n")
    assert line.ordinal == 7
    assert encode_line(line) == LINE + b"\r\n"


def test_two_lines_are_not_one() -> None:
    """Bytes with a newline inside are refused, so that no line is ever written as two."""
    with pytest.raises(InvalidLine) as caught:
        decode_line(b'{"a":1,\n"b":2}')
    assert caught.value.reason == "newline"


def test_composed_line_has_the_order_of_the_format() -> None:
    """A line without source bytes is composed: timestamp, ordinal, type, payload."""
    line = RolloutLine(timestamp="T", ordinal=3, type="x_é\ud800", payload=Raw(b'{"a":1.50}'))
    assert (
        encode_line(line)
        == '{"timestamp":"T","ordinal":3,"type":"x_é\\ud800","payload":{"a":1.50}}\n'.encode()
    )
    assert encode_line(RolloutLine(type="x", payload=Raw(b"1"))) == b'{"type":"x","payload":1}\n'


def test_composed_line_never_holds_a_newline() -> None:
    """A raw payload that would break the line is refused."""
    with pytest.raises(InvalidLine):
        encode_line(RolloutLine(type="x", payload=Raw(b'{"a":\n1}')))


def test_no_json_can_set_where_a_line_comes_from() -> None:
    """`source` and `upcast_from` are ours: keys of those names in a line change nothing."""
    names = [each.encode_name for each in msgspec.structs.fields(RolloutLine)][-2:]
    data = json.dumps({"type": "a", "payload": 1, names[0]: "AAAA", names[1]: "bare-item"}).encode()
    line = decode_line(data)
    assert line.source == data
    assert line.upcast_from is None


def test_lines_compare_by_what_they_hold() -> None:
    """Two readings of one line are equal, so that readers can be compared."""
    assert decode_line(LINE) == decode_line(LINE + b"\n")
    assert decode_line(LINE) != decode_line(LINE.replace(b"hi", b"ho"))


def test_line_without_payload_has_none() -> None:
    """A line without a payload gives None, and a raw item without bytes."""
    line = decode_line(b'{"type":"x"}')
    assert line.payload_object() is None
    assert line.item() == RawItem("x", b"")
    assert decode_line(b"{}").type is None
