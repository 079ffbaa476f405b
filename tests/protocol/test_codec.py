"""Items to bytes: what reads back the same is written, all else raises and leaves no trace."""

from __future__ import annotations

import json
import math
from typing import Any, ClassVar

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import Raw

from protocol import (
    CODEX_TYPES,
    EventMsg,
    ItemNotEncodable,
    ResponseItem,
    RolloutItem,
    ThreadId,
    TurnItem,
    WriterItem,
    decode_line,
    encode_item,
)
from protocol.codec import encode_payload, encode_value, kind_of
from protocol.validity import nesting_depth
from tests.protocol.judge import judge, same
from tests.protocol.strategies import anything, json_bytes, paired, values

STAMP = "2026-11-29T10:11:12.345Z"


def write(item: RolloutItem) -> bytes:
    return encode_item(item, timestamp=STAMP, ordinal=7)


def payload_of(line: bytes) -> Any:
    return json.loads(line)["payload"]


def test_line_has_the_bytes_of_the_format() -> None:
    """Keys in order, compact, non-ASCII as it is: what Python's json writes compactly."""
    item = ResponseItem.message("user", 'é\u2028\x85\x7f"\\/\t')
    line = write(item)
    value = {
        "timestamp": STAMP,
        "ordinal": 7,
        "type": "response_item",
        "payload": {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": 'é\u2028\x85\x7f"\\/\t'}],
        },
    }
    assert line == json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def test_line_without_ordinal_leaves_it_out() -> None:
    """Own types carry no ordinal."""
    line = encode_item(WriterItem(event="opened", epoch=1), timestamp=STAMP)
    assert (
        line
        == b'{"timestamp":"%b","type":"x_writer","payload":{"event":"opened","epoch":1}}\n' % STAMP.encode()
    )


@settings(max_examples=400)
@given(values)
def test_any_value_reads_back_as_it_was(value: Any) -> None:
    """Whatever JSON can hold is stored and read back the same."""
    line = write(RolloutItem.raw("x", {"v": value}))
    assert judge(line.removesuffix(b"\n")) is not None
    assert same(decode_line(line).payload_object(), {"v": paired(value)})


@settings(max_examples=400)
@given(anything)
@example([None, float("nan")])
@example({"null": float("inf")})
@example({"a": ["null", float("-inf")]})
def test_nan_raises_wherever_it_is(value: Any) -> None:
    """NaN and Infinity never become null: the item is refused, and says why."""
    item = RolloutItem.raw("event_msg", {"v": value})
    if holds_nan(value):
        with pytest.raises(ItemNotEncodable, match="NaN") as caught:
            write(item)
        assert caught.value.item_type == "event_msg"
    else:
        write(item)


def holds_nan(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(holds_nan, value.values()))
    if isinstance(value, list):
        return any(map(holds_nan, value))
    return isinstance(value, float) and not math.isfinite(value)


@pytest.mark.case("B40")
@pytest.mark.parametrize("text", ["\ud800", "a\udfffb", "\udc00\ud800", "é\ud83d"])
def test_lone_surrogates_are_stored_and_read_back(text: str) -> None:
    """Half a character, as cut model output has it, survives; the file stays UTF-8."""
    for item in (
        ResponseItem.message("user", text),
        ResponseItem.function_call(name=text, arguments={text: text}, call_id="c"),
        RolloutItem.raw("x", {text: [text]}),
    ):
        line = write(item)
        line.decode("utf-8", "strict")
        assert b"\\ud" in line
        assert judge(line.removesuffix(b"\n")) is not None
    message = decode_line(write(ResponseItem.message("user", text))).item()
    assert message == ResponseItem.message("user", text)


@pytest.mark.case("B41")
def test_nul_in_text_is_escaped() -> None:
    """A NUL in a text is stored escaped: no NUL byte gets into the file."""
    line = write(EventMsg.user_message("a\0b"))
    assert b"\0" not in line
    assert payload_of(line)["message"] == "a\0b"


@pytest.mark.case("B39")
def test_separators_are_written_as_they_are() -> None:
    """U+2028 and its like are written raw, as Codex writes them; no line break comes of it."""
    text = "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\x1dh\x1ei"
    line = write(EventMsg.user_message(text))
    assert line.count(b"\n") == 1
    assert "\u2028b\u2029c\x85".encode() in line
    assert payload_of(line)["message"] == text


@pytest.mark.parametrize("number", [2**63, -(2**64), 10**300])
def test_integers_beyond_64_bits_are_written(number: int) -> None:
    """Integers have no limit that JSON doesn't have."""
    assert payload_of(write(RolloutItem.raw("x", {"n": number, "s": "\ud800"})))["n"] == number


@pytest.mark.parametrize(
    "text", [b"1.50", b"1e5", b"-0", b"100000000000000000000000000000", b"1E+2", b"9" * 5000]
)
def test_numbers_of_encoded_payloads_keep_their_text(text: bytes) -> None:
    """An encoded payload is compacted, and its numbers stay as they were written."""
    line = write(RolloutItem.raw("x", b' { "n" : %b , "t" : "a  b" }\r\n' % text))
    assert line.endswith(b'"payload":{"n":%b,"t":"a  b"}}\n' % text)


@settings(max_examples=300)
@given(json_bytes(values))
def test_encoded_payload_means_the_same(data: bytes) -> None:
    """Compacting changes white space only."""
    for payload in (data, bytearray(data), memoryview(data), Raw(data)):
        line = write(RolloutItem.raw("x", payload))
        assert same(payload_of(line), json.loads(data))


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b" ",
        b"1 2",
        b'{"a":1 2}',
        b'{"a":NaN}',
        b"[-Infinity]",
        b'"a" "b"',
        b'"\xff"',
        b'"\xed\xa0\x80"',
        b"\xef\xbb\xbf1",
        b'{"a":tru e}',
        b'"NaN\\ud800" NaN',
        b'1,"payload":2',
        b"}",
        b'"a\nb"',
        b"[" * 128 + b"]" * 128,
    ],
)
def test_encoded_payload_that_is_no_json_is_refused(payload: bytes) -> None:
    """Bytes that would damage the line are refused where they were given."""
    with pytest.raises(ItemNotEncodable):
        write(RolloutItem.raw("x", payload))


def test_encoded_payload_may_speak_of_nan() -> None:
    """The words are no constants inside a text."""
    assert payload_of(write(RolloutItem.raw("x", b'"NaN Infinity \\ud800"'))) == "NaN Infinity \ud800"


def nested(depth: int) -> Any:
    value: Any = 1
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    return value


@pytest.mark.parametrize("spoiler", ["", "\ud800"])
def test_payload_may_nest_127_levels(spoiler: str) -> None:
    """With the envelope that is 128: one more, and the line could not be read."""
    line = write(RolloutItem.raw("x", [spoiler, nested(126)]))
    assert nesting_depth(line) == 128
    assert decode_line(line).type == "x"
    for item in (
        RolloutItem.raw("x", [spoiler, nested(127)]),
        RolloutItem.raw("x", json.dumps(nested(128)).encode()),
        ResponseItem.message("user", [{"type": "other", "text": spoiler, "deep": nested(125)}]),
        EventMsg.item_completed(
            TurnItem.tool_call(call_id="c", name=spoiler, arguments=nested(126)), thread_id="t", turn_id="u"
        ),
    ):
        with pytest.raises(ItemNotEncodable, match="nests"):
            write(item)


def test_value_that_holds_itself_is_refused() -> None:
    """A cycle is an error of its own, not a crash."""
    loop: dict[str, Any] = {}
    loop["self"] = loop
    for spoiler in ("", "\ud800"):
        with pytest.raises(ItemNotEncodable):
            write(RolloutItem.raw("x", {"a": spoiler, "loop": loop}))


@pytest.mark.parametrize(
    "value", [object(), {1, object()}, {"a": {None: 1}}, pytest.param(10**5000, id="huge")]
)
def test_value_without_json_form_is_refused(value: Any) -> None:
    """The error is ours, with the reason, whatever the encoder raised."""
    with pytest.raises(ItemNotEncodable):
        write(RolloutItem.raw("x", value))


def test_refused_item_leaves_the_buffer_as_it_was() -> None:
    """Nothing of a refused item stays in the caller's buffer."""
    for bad in ([1, object()], {"a": [None, math.nan]}, b"no", nested(200), ["x" * 100, "\ud800", object()]):
        buffer = bytearray(b"before")
        item = RolloutItem.raw("x", bad)
        with pytest.raises(ItemNotEncodable):
            encode_payload(item, buffer, kind_of(item))
        assert buffer == b"before"


def test_nested_raw_value_is_written_as_it_is() -> None:
    """Raw JSON inside a value keeps its text; one that would break the line is refused."""
    number = RolloutItem.raw("x", {"n": Raw(b"1.50"), "none": None})
    assert b'"n":1.50,' in write(number)
    with pytest.raises(ItemNotEncodable):
        write(RolloutItem.raw("x", {"n": Raw(b"[1,\n2]")}))


def test_subclass_of_a_json_type_is_written_as_that_type() -> None:
    """A `ThreadId` is text to JSON."""
    thread_id = ThreadId.new()
    line = write(RolloutItem.raw("x", {"id": thread_id, "flag": True, "also": "\ud800"}))
    assert payload_of(line)["id"] == str(thread_id)


@pytest.mark.parametrize("thing", [{"type": "x"}, "text", None, 7])
def test_thing_that_is_no_item_is_refused(thing: Any) -> None:
    """What is no item has no type; the error says how to make one."""
    with pytest.raises(ItemNotEncodable, match=r"RolloutItem\.raw"):
        kind_of(thing)


@pytest.mark.parametrize("record_type", ["", None, 7])
def test_raw_item_without_a_type_is_refused(record_type: Any) -> None:
    """Every record has a type."""
    with pytest.raises(ItemNotEncodable):
        kind_of(RolloutItem.raw(record_type, {}))


def test_only_codex_types_are_numbered() -> None:
    """Own types carry no ordinal: Codex would use it again."""
    assert all(kind_of(RolloutItem.raw(each, {})).numbered for each in CODEX_TYPES)
    assert not kind_of(RolloutItem.raw("x_call", {})).numbered
    assert not kind_of(RolloutItem.raw("anything", {})).numbered


def test_kinds_of_raw_items_are_bounded() -> None:
    """Types come from callers: however many there are, they don't pile up."""
    for number in range(3000):
        assert kind_of(RolloutItem.raw(f"t{number}", {})).record_type == f"t{number}"
    line = write(RolloutItem.raw('quote " é', 1))
    assert json.loads(line)["type"] == 'quote " é'


class Loose(RolloutItem):
    """An item of a caller's own, whose values nobody checks."""

    record_type: ClassVar[str] = "x_loose"

    number: int
    text: str | None = None


def test_class_that_checks_nothing_is_searched() -> None:
    """Annotations alone are no proof: a NaN in a field of another type is found."""
    assert not kind_of(Loose(1)).plain
    with pytest.raises(ItemNotEncodable, match="NaN"):
        write(Loose(math.nan))  # type: ignore[arg-type]
    assert payload_of(write(Loose(1))) == {"number": 1}


@given(st.one_of(values, st.text(st.characters(exclude_categories=()))))
def test_single_value_is_encoded_by_the_same_rules(value: Any) -> None:
    """`encode_value` gives what a payload would be."""
    assert same(json.loads(encode_value(value)), paired(value))


def test_single_value_refuses_nan() -> None:
    """Arguments that hold NaN are no JSON either."""
    with pytest.raises(ItemNotEncodable):
        encode_value({"a": [None, math.inf]})
