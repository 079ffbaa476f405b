"""The transcript: each fact once, whatever tracks tell it, in either direction."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout.reader import read_rollout
from rollout.record import RolloutRecord
from tests.thread_store.conftest import Line, encoded, line, meta_line, said
from thread_store.transcript import FactKind, Transcript, TranscriptEntry
from thread_store.transcript.facts import fact_of


def records(lines: Iterable[Line]) -> list[RolloutRecord]:
    return list(read_rollout(io.BytesIO(encoded(list(lines)))))


def entries(*lines: Line) -> list[TranscriptEntry]:
    return list(Transcript(records(lines)))


def spoken(found: Iterable[TranscriptEntry]) -> list[tuple[str, str]]:
    return [(str(each.kind), each.text) for each in found if each.kind is not FactKind.EVENT]


def event(ordinal: int | None, kind: str, **payload: Any) -> dict[str, Any]:
    return line(ordinal, "event_msg", {"type": kind, **payload})


def item(ordinal: int | None, **members: Any) -> dict[str, Any]:
    return event(ordinal, "item_completed", thread_id="t", turn_id="u", item=members)


def answer(ordinal: int | None, **payload: Any) -> dict[str, Any]:
    return line(ordinal, "response_item", payload)


HELLO = (
    answer(1, **said("user", "hello")),
    event(2, "user_message", message="hello"),
    item(3, type="UserMessage", id="i", content=[{"type": "text", "text": "hello"}]),
)


@pytest.mark.case("B125")
@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (2, 1, 0), (1, 2, 0), (0, 1), (1, 0), (2, 0)])
def test_message_on_both_tracks_is_one_entry(order: tuple[int, ...]) -> None:
    """In whatever order its records come, a message is shown once, under the model's record."""
    (found,) = entries(*(HELLO[index] for index in order))
    assert spoken([found]) == [("user", "hello")]
    assert found.record.line is not None
    assert found.record.line.ordinal == 1
    assert len(found.records) == len(order)


@pytest.mark.case("B125")
def test_same_words_said_twice_are_two_entries() -> None:
    """Two equal messages are two, told apart by their forms."""
    twice = entries(*HELLO, answer(4, **said("user", "hello")), event(5, "user_message", message="hello"))
    assert spoken(twice) == [("user", "hello")] * 2


def test_message_of_one_track_only_is_shown() -> None:
    """An event without its twin, and a model's record without one, are both messages."""
    found = entries(event(1, "user_message", message="typed"), answer(2, **said("assistant", "said")))
    assert spoken(found) == [("user", "typed"), ("assistant", "said")]


@pytest.mark.case("B123")
def test_injected_context_is_not_shown_as_typed() -> None:
    """What a program put before the model in the user's name is context, not the user's words."""
    wrapped = "<environment_context>\n<cwd>/x</cwd>\n</environment_context>"
    found = entries(answer(1, **said("user", wrapped)), answer(2, **said("developer", "be good")))
    assert [each.kind for each in found] == [FactKind.CONTEXT, FactKind.CONTEXT]


def test_typed_text_that_looks_like_context_stays_typed() -> None:
    """The reader's track tells that somebody typed it."""
    text = "<b>bold</b>"
    assert spoken(entries(answer(1, **said("user", text)), event(2, "user_message", message=text))) == [
        ("user", text)
    ]


CALL = answer(1, type="function_call", name="shell", arguments='{"cmd":"ls"}', call_id="c1")
OUTPUT = answer(4, type="function_call_output", call_id="c1", output="a\nb")


def test_call_and_its_result_are_one_entry() -> None:
    """Own states, the reader's item and the output join the call that they belong to."""
    (found,) = entries(
        CALL,
        line(None, "x_call", {"call_id": "c1", "state": "started", "name": "shell"}),
        item(
            3,
            type="CommandExecution",
            id="c1",
            command=["ls"],
            status="failed",
            exit_code=2,
            aggregated_output="z",
        ),
        OUTPUT,
        line(None, "x_call", {"call_id": "c1", "state": "failed"}),
    )
    assert (found.kind, found.name, found.text, found.call_id) == (
        FactKind.TOOL,
        "shell",
        '{"cmd":"ls"}',
        "c1",
    )
    assert found.result is not None
    assert (found.result.output, found.result.status, found.result.exit_code) == ("a\nb", "failed", 2)


@pytest.mark.case("B61")
def test_results_out_of_order_join_their_own_calls() -> None:
    """Parallel calls are matched by id, and stand in the order in which they were made."""
    calls = [answer(n, type="function_call", name=f"t{n}", arguments="{}", call_id=f"c{n}") for n in range(3)]
    outputs = [answer(9 + n, type="function_call_output", call_id=f"c{n}", output=f"r{n}") for n in (2, 0, 1)]
    found = entries(*calls, *outputs)
    assert [(each.name, each.result and each.result.output) for each in found] == [
        ("t0", "r0"),
        ("t1", "r1"),
        ("t2", "r2"),
    ]


def test_call_id_used_again_is_another_call() -> None:
    """Programs that number the calls of each turn from one don't lose their later calls."""
    found = entries(CALL, OUTPUT, CALL, answer(5, type="function_call_output", call_id="c1", output="second"))
    assert [each.result and each.result.output for each in found] == ["a\nb", "second"]


@pytest.mark.case("B132")
def test_call_without_result_is_shown_without() -> None:
    """A call that nothing answered is an entry with no result."""
    (found,) = entries(CALL)
    assert found.has_call
    assert found.result is None


@pytest.mark.parametrize(("records_between", "name"), [(100, None), (600, "shell"), (3000, "")])
def test_result_that_comes_very_late_is_an_entry_of_its_own(records_between: int, name: str | None) -> None:
    """The view doesn't wait for ever: the call is shown open, its result where it stands, none is lost."""
    lines = [CALL, *[event(None, "token_count", info=None)] * records_between, OUTPUT]
    all_found = entries(*lines)
    found = [each for each in all_found if each.kind is FactKind.TOOL]
    assert sum(len(each.records) for each in all_found) == len(lines)
    assert found[-1].result is not None
    assert found[-1].result.output == "a\nb"
    assert [each.has_call for each in found] == ([True] if name is None else [True, False])
    assert found[-1].name == ("shell" if name is None else name)


@pytest.mark.parametrize(
    ("output", "text", "code"),
    [
        ("plain", "plain", None),
        ('{"output":"inner","metadata":{"exit_code":3,"duration_seconds":0.25}}', "inner", 3),
        ("Wall time: 1 s\nProcess exited with code 7\nOutput:\nx", None, 7),
        ("exit code 2\n1 failed", None, 2),
        (
            [{"type": "input_text", "text": "one"}, {"type": "input_image", "image_url": "data:"}],
            "one\n[image]",
            None,
        ),
        ({"content": "old form", "success": True}, "old form", None),
        (None, "", None),
        (["bare", 3], None, None),
    ],
)
def test_output_of_any_shape_is_read(output: Any, text: str | None, code: int | None) -> None:
    """Outputs of all versions are text, with the exit code where they tell it."""
    (found,) = entries(CALL, answer(2, type="function_call_output", call_id="c1", output=output))
    assert found.result is not None
    assert found.result.exit_code == code
    if text is not None:
        assert found.result.output == text


def test_thoughts_told_in_parts_are_one() -> None:
    """The reader's track tells each part of a thought, the model's track all of them."""
    whole = answer(3, type="reasoning", summary=[{"type": "summary_text", "text": t} for t in ("one", "two")])
    parts = [event(1, "agent_reasoning", text="one"), event(2, "agent_reasoning", text="two")]
    for lines in ([*parts, whole], [whole, *parts]):
        (found,) = entries(*lines)
        assert spoken([found]) == [("thinking", "one\n\ntwo")]
        assert len(found.records) == 3


def test_compaction_on_both_tracks_is_one_marker() -> None:
    """A compaction is told by up to three records."""
    found = entries(
        line(1, "compacted", {"message": "short", "replacement_history": []}),
        event(2, "context_compacted"),
        item(3, type="ContextCompaction", id="x"),
    )
    assert spoken(found) == [("marker", "context compacted: short")]


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (event(1, "turn_aborted", reason="interrupted"), "turn aborted: interrupted"),
        (event(1, "task_complete", turn_id="t", error={"message": "no money"}), "turn failed: no money"),
        (event(1, "thread_rolled_back", num_turns=2), "rolled back 2 turns; they no longer count"),
        (line(None, "x_gap", {"bytes": 9, "cause": "cut"}), "9 bytes were destroyed by another program: cut"),
        (line(None, "x_check", {"state": "failed", "what": "make"}), "check failed: make"),
        (line(None, "x_writer", {"event": "recovered", "reason": "crash"}), "writer: recovered: crash"),
    ],
)
def test_what_a_reader_must_know_is_a_marker(record: Line, text: str) -> None:
    """Aborts, failures, gaps and checks are seen though nobody said them."""
    assert spoken(entries(record)) == [("marker", text)]


@pytest.mark.case("B113")
@pytest.mark.parametrize(
    "record",
    [
        line(1, "from_the_future", {"type": "x"}),
        line(1, "response_item", {"type": "new_kind"}),
        line(1, "response_item", "no object"),
        line(1, "event_msg", {"type": 7}),
        line(1, "event_msg", {"type": "item_completed", "item": ["odd"]}),
        line(1, "x_call", []),
        line(None, "x_writer", {"event": "opened"}),
        {"no": "type"},
    ],
)
def test_unknown_shape_is_an_event(record: Line) -> None:
    """What isn't known is kept as an event, and nothing fails."""
    (found,) = entries(record)
    assert found.kind is FactKind.EVENT


def test_damage_is_an_entry_in_its_place() -> None:
    """A damaged line stands between its neighbours, with its warning."""
    found = entries(HELLO[0], b"{broken\n", answer(2, **said("assistant", "yes")))
    assert [each.kind for each in found] == [FactKind.USER, None, FactKind.ASSISTANT]
    assert found[1].record.warning is not None


TEXTS = st.sampled_from(["a", "b", ""])
IDS = st.sampled_from(["c1", "c2"])
RECORDS = st.lists(
    st.one_of(
        TEXTS.map(lambda text: answer(None, **said("user", text))),
        TEXTS.map(lambda text: answer(None, **said("assistant", text))),
        TEXTS.map(lambda text: event(None, "user_message", message=text)),
        TEXTS.map(lambda text: event(None, "agent_message", message=text)),
        TEXTS.map(lambda text: event(None, "agent_reasoning", text=text)),
        TEXTS.map(lambda text: answer(None, type="reasoning", summary=[{"text": text}, {"text": "p"}])),
        IDS.map(lambda call: answer(None, type="function_call", name="t", arguments="{}", call_id=call)),
        IDS.map(lambda call: answer(None, type="function_call_output", call_id=call, output="out")),
        IDS.map(lambda call: item(None, type="CommandExecution", id=call, status="completed")),
        IDS.map(lambda call: line(None, "x_call", {"call_id": call, "state": "started"})),
        st.just(b"bad\n"),
        st.just(event(None, "token_count")),
    ),
    max_size=60,
)


@given(RECORDS)
def test_no_fact_is_lost_or_told_twice(lines: list[Line]) -> None:
    """Each record is in one entry; one that is in none says what an entry already said."""
    given_records = records(lines)
    for order in (given_records, given_records[::-1]):
        found = list(Transcript(order))
        offsets = [each.offset for entry in found for each in entry.records]
        assert len(offsets) == len(set(offsets))
        for record in given_records:
            if record.offset not in offsets:
                assert record.line is not None
                fact = fact_of(record.line)
                assert any(fact.keys and fact.kind is entry.kind for entry in found)


CONVERSATION = st.lists(
    st.one_of(
        st.just(list(HELLO)),
        st.permutations(HELLO),
        st.just([event(None, "agent_message", message="yes"), answer(None, **said("assistant", "yes"))]),
        st.just([CALL, OUTPUT]),
        st.just([event(None, "token_count")]),
        st.just([b"bad\n"]),
    ),
    max_size=12,
).map(lambda turns: [each for turn in turns for each in turn])


@given(CONVERSATION)
def test_both_directions_tell_the_same(lines: list[Line]) -> None:
    """Read from the newest on, a transcript is the same, newest first."""
    given_records = records([meta_line(), *lines])
    forward = list(Transcript(given_records))
    backward = list(Transcript(given_records[::-1]))[::-1]
    assert [told(each) for each in forward] == [told(each) for each in backward]


def told(entry: TranscriptEntry) -> tuple[Any, ...]:
    return (entry.record.offset, entry.kind, entry.name, entry.text, entry.result)
