"""Old formats: each line judged by itself, its bytes kept, its meaning raised to the envelope."""

from __future__ import annotations

import json
from typing import Any

import pytest

from protocol import (
    FunctionCall,
    GitInfo,
    Message,
    RawItem,
    SessionMeta,
    decode_line,
    encode_line,
    place_document,
    upcast_document,
)

# A rollout from before the envelope, lines ended by CRLF, with lines of the present format between.
OLD = (
    b'{"id":"df0e5f0a-5547-4be2-a895-73c6536b3d6b","timestamp":"2025-09-27T18:58:38.331Z",'
    b'"instructions":"# be brief\\r\\n","git":{"commit_hash":"667d31f","branch":"main"}}\r\n'
    b'{"record_type":"state"}\r\n'
    b'{"type":"message","role":"user","content":[{"type":"input_text","text":"hi \xe2\x80\xa8 there"}]}\r\n'
    b'{"timestamp":"2025-10-01T00:00:00.000Z","type":"event_msg","payload":{"type":"agent_reasoning","text":"hm"}}\r\n'
    b'{"type":"reasoning","id":"rs_1","summary":[],"content":null,"encrypted_content":"zz=="}\r\n'
    b'{"type":"function_call","name":"shell","arguments":"{\\"command\\":[\\"ls\\"]}","call_id":"c1"}\r\n'
    b'{"type":"function_call_output","call_id":"c1","output":"a.txt","n":1.50}\r\n'
    b'{ "type" : "local_shell_call" , "status" : "completed" , "action" : { "type" : "exec" } }'
)

DOCUMENT = b"""{
  "session": {
    "timestamp": "2025-04-23T11:00:00Z",
    "id": "tsam-pxs-472",
    "instructions": "be brief \xc3\xa9"
  },
  "items": [
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a  b\\nc"}]},
    17,
    {"type": "local_shell_call_output", "call_id": "c1", "output": "ok", "took": 1.50}
  ]
}
"""


def old_lines() -> list[bytes]:
    return OLD.split(b"\n")


@pytest.mark.case("B114")
@pytest.mark.case("B136")
def test_old_and_new_lines_mix_in_one_file() -> None:
    """Each line is read by its own format; what has an envelope is untouched."""
    lines = [decode_line(each) for each in old_lines()]
    assert [line.type for line in lines] == [
        "session_meta",
        "state",
        "response_item",
        "event_msg",
        "response_item",
        "response_item",
        "response_item",
        "response_item",
    ]
    assert [line.upcast_from for line in lines] == [
        "bare-header",
        "record-type",
        "bare-item",
        None,
        *["bare-item"] * 4,
    ]


@pytest.mark.case("B113")
def test_old_lines_keep_their_bytes() -> None:
    """Reading an old line and writing it back changes nothing, white space and numbers included."""
    for data in old_lines():
        assert encode_line(decode_line(data)) == data + b"\n"
        assert decode_line(data).source == data


@pytest.mark.case("B114")
def test_old_lines_are_read_the_same_in_any_order() -> None:
    """Nothing of a line depends on its neighbours, so a scan from the end agrees."""
    forward = [decode_line(each) for each in old_lines()]
    backward = [decode_line(each) for each in reversed(old_lines())]
    assert forward == backward[::-1]


def test_bare_header_is_a_meta() -> None:
    """The header gives the thread's id, time, instructions and repository."""
    line = decode_line(old_lines()[0])
    meta = line.item()
    assert isinstance(meta, SessionMeta)
    assert line.timestamp == meta.timestamp == "2025-09-27T18:58:38.331Z"
    assert meta.id == "df0e5f0a-5547-4be2-a895-73c6536b3d6b"
    assert meta.instructions == "# be brief\r\n"
    assert meta.git == GitInfo("667d31f", "main")
    assert meta.history_mode == "legacy"


def test_bare_items_are_items_of_the_model_track() -> None:
    """Messages and calls are typed as ever; they have no time."""
    message, call = decode_line(old_lines()[2]), decode_line(old_lines()[5])
    assert isinstance(message.item(), Message)
    assert isinstance(call.item(), FunctionCall)
    assert message.timestamp is None
    assert message.payload_object()["content"][0]["text"] == "hi \u2028 there"


def test_old_item_without_class_keeps_its_bytes() -> None:
    """The payload of an old line is the object as it stands."""
    line = decode_line(b' {"type":"ghost_snapshot","ghost_commit":{"n":1.50}} \r')
    assert line.item() == RawItem("response_item", b'{"type":"ghost_snapshot","ghost_commit":{"n":1.50}}')


def test_record_type_line_may_have_a_payload() -> None:
    """A payload of its own is kept apart from the mark."""
    line = decode_line(b'{"record_type":"event_msg","payload":{"type":"user_message","message":"x"}}')
    assert (line.type, line.payload_object()["message"]) == ("event_msg", "x")


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"a": 1},
        {"type": "user", "message": {"role": "user", "content": "hi"}, "uuid": "u", "sessionId": "s"},
        {"type": "message", "id": "1", "parentId": None, "message": {"role": "user", "content": "x"}},
        {"type": "session", "version": 3, "id": "x", "timestamp": "t", "cwd": "/"},
        {"type": "thread.started", "thread_id": "t"},
        {"id": "x", "thread_name": "n", "updated_at": "t"},
        {"id": "x", "timestamp": "t"},
        {"type": "function_call", "name": "n"},
        {"type": 7, "record_type": "state"},
        {"record_type": 7},
        {"type": None, "role": "user", "content": []},
        {"session": {"id": "x"}, "items": []},
    ],
)
def test_object_of_no_known_format_is_left_alone(value: dict[str, Any]) -> None:
    """Lines of other programs and later versions are not taken for something they aren't."""
    data = json.dumps(value).encode()
    line = decode_line(data)
    assert line.upcast_from is None
    assert line.type == (value.get("type") if isinstance(value.get("type"), str) else None)
    assert not line.payload
    assert encode_line(line) == data + b"\n"


@pytest.mark.parametrize("payload", [b"null", b"{}", b'""'])
def test_line_with_an_envelope_is_never_raised(payload: bytes) -> None:
    """Type and payload make an envelope, whatever else stands beside them."""
    data = b'{"type":"message","role":"user","content":[],"record_type":"x","payload":%b}' % payload
    line = decode_line(data)
    assert (line.type, line.upcast_from) == ("message", None)


@pytest.mark.case("B40")
def test_old_line_with_a_lone_surrogate_is_raised() -> None:
    """The slow way of reading knows the old formats too."""
    line = decode_line(b'{"type":"message","role":"user","content":[{"type":"input_text","text":"\\ud800"}]}')
    assert line.upcast_from == "bare-item"
    item = line.item()
    assert isinstance(item, Message)
    assert item.text == "\ud800"


@pytest.mark.case("B136")
def test_one_document_becomes_lines() -> None:
    """The oldest rollouts are one JSON document: its session is the meta, its items are records."""
    lines = upcast_document(DOCUMENT)
    assert lines is not None
    meta = lines[0].item()
    assert isinstance(meta, SessionMeta)
    assert (meta.id, lines[0].timestamp) == ("tsam-pxs-472", "2025-04-23T11:00:00Z")
    assert [line.type for line in lines] == ["session_meta", "response_item", "response_item"]
    assert {line.upcast_from for line in lines} == {"one-document"}
    assert isinstance(lines[1].item(), Message)


def test_lines_of_a_document_can_be_written() -> None:
    """They are whole lines of the present format, numbers and texts as they were."""
    lines = upcast_document(DOCUMENT)
    assert lines is not None
    assert encode_line(lines[2]) == (
        b'{"type":"response_item","payload":{"type":"local_shell_call_output","call_id":"c1",'
        b'"output":"ok","took":1.50}}\n'
    )
    assert lines[1].payload_object()["content"][0]["text"] == "a  b\nc"


def test_lines_of_a_document_have_places() -> None:
    """Each line's offset and size lead to its own bytes in the document."""
    placed = place_document(DOCUMENT)
    assert placed is not None
    for line, offset, size in placed:
        assert json.loads(DOCUMENT[offset : offset + size]) == line.payload_object()


@pytest.mark.parametrize("spoiler", [b"NaN", b'"\\ud800"', b"9" * 5000, b"1e999", '"é"'.encode()])
def test_document_with_awkward_values_is_read(spoiler: bytes) -> None:
    """What a line may hold, a document may hold."""
    data = b'{"items":[{"a":%b}],"session":{"timestamp":7,"b": %b}}' % (spoiler, spoiler)
    lines = upcast_document(data)
    assert lines is not None
    assert bytes(lines[1].payload) == b'{"a":%b}' % spoiler
    assert lines[0].timestamp is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        OLD,
        b"[]",
        b'{"session":{},"items":{}}',
        b'{"session":[],"items":[]}',
        b'{"messages":[]}',
        b'{"session":{},"items":[',
        b"\xff",
        b'{"session":{},"items":[' + b"[" * 200 + b"]" * 200 + b"]}",
    ],
)
def test_anything_else_is_no_document(data: bytes) -> None:
    """Rollouts, damaged documents and other JSON are left to the line reader."""
    assert upcast_document(data) is None
