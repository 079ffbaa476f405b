"""Bounded storage on items: what is taken out comes back as it was, and the rest was never touched."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import (
    BlobProblem,
    Compacted,
    EventMsg,
    ResponseItem,
    RolloutItem,
    StorageBounds,
    TurnItem,
    encode_item,
    tracks,
)
from protocol.blobs import BLOB_NAME
from protocol.bounding import bound_item
from protocol.inlining import inline_lines, inline_payload

BOUNDS = StorageBounds(text_chars_max=400, text_chars_kept=60, media_chars_min=40)
LONG = "".join(f"line {number} é\n" for number in range(60))
PIXELS = bytes(range(256))
CODE = base64.b64encode(PIXELS).decode()
IMAGE = f"data:image/png;base64,{CODE}"


def payload_of(item: RolloutItem) -> bytes:
    line = encode_item(item, timestamp="T")
    return line[line.index(b'"payload":') + 10 : -2]


def bounded(item: RolloutItem, bounds: StorageBounds = BOUNDS) -> tuple[bytes, dict[str, bytes]]:
    changed, blobs = bound_item(item, bounds)
    assert type(changed) is type(item)
    for each in blobs:
        assert hashlib.sha256(each.data).hexdigest() == each.sha256
    return payload_of(changed), {each.sha256: each.data for each in blobs}


def inlined(payload: bytes, blobs: dict[str, bytes]) -> tuple[bytes, list[BlobProblem]]:
    def read(sha256: str) -> bytes | BlobProblem:
        found = blobs.get(sha256)
        return BlobProblem(sha256, "missing", "gone") if found is None else found

    return inline_payload(payload, read)


BARE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": CODE}}
TAKEN: list[RolloutItem] = [
    ResponseItem.message("user", LONG),
    ResponseItem.message(
        "user", [{"type": "input_text", "text": "look"}, {"type": "input_image", "image_url": IMAGE}]
    ),
    ResponseItem.message("user", [{"type": "other", "text": LONG, "more": [1.50, None]}]),
    ResponseItem.function_call_output(call_id="c", output=LONG),
    ResponseItem.function_call_output(call_id="c", output=[{"type": "input_image", "image_url": IMAGE}]),
    ResponseItem.function_call_output(call_id="c", output=json.dumps([LONG])),
    ResponseItem.function_call(name="write", arguments={"path": "a", "content": LONG}, call_id="c"),
    ResponseItem.function_call(name="write", arguments=LONG, call_id="c"),
    ResponseItem.custom_tool_call(name="n", input=LONG, call_id="c"),
    EventMsg.user_message("x", images=[IMAGE, "https://example.org/a.png"]),
    EventMsg.agent_message(LONG),
    EventMsg.item_completed(TurnItem.command_execution(call_id="c", command=["x"], cwd="/", output=LONG)),
    EventMsg.patch_apply_end(
        call_id="c", status="completed", changes={"/a": {"type": "add", "content": LONG}}
    ),
    Compacted(message=LONG, replacement_history=[ResponseItem.message("user", LONG), {"content": LONG}]),
    RolloutItem.raw("response_item", {"type": "message", "role": "user", "content": [BARE]}),
    RolloutItem.raw("response_item", json.dumps({"type": "x", "text": LONG * 2, "n": 1.50}).encode()),
    RolloutItem.raw("response_item", {"type": "image_generation_call", "status": "done", "result": CODE}),
    RolloutItem.raw("event_msg", {"type": "mcp", "result": {"content": [{"type": "image", "data": CODE}]}}),
]


@pytest.mark.parametrize("item", TAKEN)
def test_what_is_taken_out_comes_back(item: RolloutItem) -> None:
    """The record is small, names its blobs, and reads as it was once they are there."""
    before = payload_of(item)
    payload, blobs = bounded(item)
    assert blobs
    assert len(payload) < len(before)
    assert {found.decode() for found in BLOB_NAME.findall(payload)} == set(blobs)
    back, problems = inlined(payload, blobs)
    assert json.loads(back) == json.loads(before)
    assert not problems


@pytest.mark.parametrize("item", TAKEN)
def test_item_is_left_as_it_was(item: RolloutItem) -> None:
    """What the caller holds doesn't change, and taking out twice takes nothing more."""
    before = payload_of(item)
    changed, _ = bound_item(item, BOUNDS)
    assert payload_of(item) == before
    assert bound_item(changed, BOUNDS) == (changed, [])


@pytest.mark.case("B47")
@pytest.mark.parametrize(
    "item",
    [
        ResponseItem.message("user", "x" * 200),
        ResponseItem.reasoning(["x"], encrypted_content="g" * 5000),
        RolloutItem.raw("response_item", {"type": "x", "content": [{"text": LONG, "signature": "s"}]}),
        RolloutItem.raw("response_item", {"type": "x", "id": "i" * 900, "call_id": LONG, "unknown": LONG}),
        RolloutItem.raw("x_note", {"text": LONG, "image_url": IMAGE}),
        RolloutItem.raw("something_new", {"text": LONG}),
        RolloutItem.raw("turn_context", {"text": LONG}),
        ResponseItem.message("user", [{"type": "input_image", "image_url": "https://x/" + "y" * 500}]),
        ResponseItem.message("user", [{"type": "input_image", "image_url": IMAGE[:39]}]),
        RolloutItem.raw("response_item", {"type": ["image"], "data": CODE}),
    ],
)
def test_what_is_sealed_unknown_or_short_stays(item: RolloutItem) -> None:
    """The very same item, and no blob."""
    changed, blobs = bound_item(item, BOUNDS)
    assert changed is item
    assert not blobs


def test_cut_text_says_how_much_is_gone_and_where_it_is() -> None:
    """Beginning and end stay, for whoever can't follow the blob."""
    text = "a" * 50 + "b" * 400 + "c" * 10
    payload, blobs = bounded(ResponseItem.message("user", text))
    (sha256,) = blobs
    cut = json.loads(payload)["content"][0]["text"]
    marker = f"\n[… 400 characters cut; the whole text is blob sha256:{sha256} …]\n"
    assert cut == "a" * 50 + marker + "c" * 10
    assert blobs[sha256] == text.encode()


def test_arguments_of_a_call_stay_json() -> None:
    """A model's API takes nothing else."""
    payload, _ = bounded(ResponseItem.function_call(name="n", arguments={"text": LONG}, call_id="c"))
    assert isinstance(json.loads(json.loads(payload)["arguments"]), dict)


def test_one_blob_serves_all_records_of_a_fact() -> None:
    """Both tracks name the same one."""
    names = [set(bounded(each)[1]) for each in tracks.user_message(LONG)]
    assert len(set().union(*names)) == 1


@pytest.mark.parametrize("code", [CODE.rstrip("=") + "\n", CODE[:-4] + "@@@@", CODE[:-3]])
def test_media_that_are_no_plain_base64_come_back_as_they_stood(code: str) -> None:
    """Whatever it is, character for character."""
    item = ResponseItem.message(
        "user", [{"type": "input_image", "image_url": f"data:image/png;base64,{code}"}]
    )
    payload, blobs = bounded(item)
    assert json.loads(inlined(payload, blobs)[0]) == json.loads(payload_of(item))


def test_text_that_looks_like_a_cut_one_stays() -> None:
    """A marker is believed only if its blob fits the text around it."""
    payload, blobs = bounded(ResponseItem.message("user", LONG))
    cut = json.loads(payload)["content"][0]["text"]
    for forged in (cut + "!", "!" + cut, cut.replace("line 1", "line 9"), cut.replace("[… ", "[… 1")):
        item = payload_of(ResponseItem.message("user", forged))
        assert inlined(item, blobs) == (item, [])
    binary = cut.replace(next(iter(blobs)), hashlib.sha256(PIXELS).hexdigest())
    item = payload_of(ResponseItem.message("user", binary))
    assert inlined(item, {hashlib.sha256(PIXELS).hexdigest(): PIXELS}) == (item, [])


def test_lookalike_before_the_true_marker_hides_nothing() -> None:
    """A text that quotes another one's marker comes back too."""
    quoted, _ = bounded(ResponseItem.message("user", LONG))
    text = json.loads(quoted)["content"][0]["text"] + "x" * 700
    wide = StorageBounds(text_chars_max=600, text_chars_kept=400, media_chars_min=40)
    payload, blobs = bounded(ResponseItem.message("user", text), wide)
    back, _ = inlined(payload, blobs)
    assert json.loads(back)["content"][0]["text"] == text


def test_missing_blob_leaves_the_rest_and_says_so() -> None:
    """A text stays cut, a picture becomes a text; everything else is put back."""
    content = [
        {"type": "input_text", "text": LONG},
        {"type": "input_image", "image_url": IMAGE},
        {"type": "input_text", "text": LONG + "other"},
    ]
    payload, blobs = bounded(ResponseItem.message("user", content))
    lost = [name for name, data in blobs.items() if not data.endswith(b"other")]
    for name in lost:
        del blobs[name]
    back, problems = inlined(payload, blobs)
    parts = json.loads(back)["content"]
    assert "characters cut" in parts[0]["text"]
    assert parts[1] == {"type": "input_text", "text": f"[input_image: blob {lost[1]} is missing]"}
    assert parts[2]["text"] == LONG + "other"
    assert [each.sha256 for each in problems] == lost


def test_missing_bare_picture_becomes_a_text() -> None:
    """In another API's form too."""
    payload, _ = bounded(RolloutItem.raw("response_item", {"type": "m", "content": [BARE]}))
    back, problems = inlined(payload, {})
    (part,) = json.loads(back)["content"]
    assert part["type"] == "text"
    assert len(problems) == 1


def test_lines_are_made_whole_again() -> None:
    """For who must be able to read them without any blob."""
    item = ResponseItem.message("user", LONG)
    changed, blobs = bound_item(item, BOUNDS)
    plain = encode_item(EventMsg.agent_message("x"), timestamp="T", ordinal=1)
    lines = plain + encode_item(changed, timestamp="T", ordinal=2) + b"torn {"
    whole = inline_lines(lines, {each.sha256: each.data for each in blobs})
    assert whole == plain + encode_item(item, timestamp="T", ordinal=2) + b"torn {"


@given(st.text(st.characters(codec=None), max_size=60), st.integers(0, 150))
def test_any_text_comes_back(text: str, kept: int) -> None:
    """Lone surrogates, NULs, halves of a character side by side: as JSON would give them back."""
    bounds = StorageBounds(text_chars_max=350, text_chars_kept=kept, media_chars_min=40)
    item = ResponseItem.message("user", text * 12)
    payload, blobs = bounded(item, bounds)
    back, problems = inlined(payload, blobs)
    assert json.loads(back) == json.loads(payload_of(item))
    assert not problems


texts = st.text(max_size=60).map(lambda text: text * 9)
json_values: Any = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=60).map(lambda text: text * 9)
    | st.just(IMAGE)
    | st.just(LONG),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["text", "output", "type", "image_url", "x", "content", "data"]), inner
        )
    ),
    max_leaves=12,
)


@given(json_values, st.booleans())
def test_any_payload_comes_back(value: Any, encoded: bool) -> None:
    """Whatever it holds, given as values or as bytes."""
    payload = {"type": "x", "content": value}
    item = RolloutItem.raw("response_item", json.dumps(payload).encode() if encoded else payload)
    changed, blobs = bounded(item)
    assert json.loads(inlined(changed, blobs)[0]) == payload


@pytest.mark.parametrize("kept", [-1, 500_000, 499_900])
def test_bounds_that_bound_nothing_are_refused(kept: int) -> None:
    """A cut text must be shorter than what is cut."""
    with pytest.raises(ValueError, match="text_chars_kept"):
        StorageBounds(text_chars_kept=kept)
