"""What a list shows of one rollout, whatever that is like. Each is asked with the index and without it."""

from __future__ import annotations

import errno
import gzip
import json
import os
import socket
import time
from typing import Any

import pytest
import zstandard

from protocol.plain_values import squeezed
from tests.thread_store.listing.homes import (
    HandMadeHome,
    encoded,
    event,
    meta,
    record,
    seen,
    stamp,
    typed,
    uuid,
)
from thread_store.listing import facts_reader
from thread_store.listing.first_prompt import shown_prompt
from thread_store.listing.rollout_facts import HEAD_BYTES_MAX, TAIL_BYTES_MAX

CONTEXT = "<environment_context>\n  <cwd>/from/context</cwd>\n</environment_context>"
FILLER = [record("event_msg", {"type": "token_count", "info": None, "pad": "x" * 500}) for _ in range(400)]


def user_item(text: str) -> dict[str, Any]:
    item = {"type": "UserMessage", "id": "1", "content": [{"type": "text", "text": text}]}
    return record("event_msg", {"type": "item_completed", "thread_id": uuid(1), "turn_id": "t", "item": item})


@pytest.mark.case("B81")
@pytest.mark.parametrize(
    "lines",
    [
        [typed("fix the bug")],
        [seen("fix the bug")],
        [user_item("fix the bug")],
        [seen(CONTEXT), seen("fix the bug"), typed("fix the bug")],
        [*FILLER, typed("fix the bug")],
        [*FILLER, seen("fix the bug")],
        [record("turn_context", {"cwd": "/x", "pad": "x" * 3_000_000}), typed("fix the bug")],
        [
            record("response_item", {"type": "reasoning", "summary": [], "pad": "y" * 9_000_000}),
            typed("fix the bug"),
        ],
        [*FILLER * 9, user_item("fix the bug")],
        [b"not json\n", typed("fix the bug")],
        [b"\0" * 4096 + b"\n", typed("fix the bug")],
        [b"\r\n", b"[1]\n", typed(" fix \n the\tbug ")],
        [typed("# Context from my IDE\n\n## My request for Codex:\nfix the bug\n")],
    ],
)
def test_first_prompt_is_found_wherever_it_stands(made: HandMadeHome, lines: list[Any]) -> None:
    """Early or late, alone or behind megabytes, as an event, an item or what the model saw."""
    made.add(1, meta(1), *lines)
    assert made.one().preview == made.one().title == "fix the bug"


@pytest.mark.case("B81")
@pytest.mark.parametrize("before", [[], FILLER], ids=["early", "late"])
@pytest.mark.parametrize("make", [typed, seen, user_item])
def test_huge_prompt_gives_its_beginning(made: HandMadeHome, before: list[Any], make: Any) -> None:
    """A prompt of megabytes is shown cut, and not read whole."""
    text = 'fix \\ "the" bug é ' * 400_000
    made.add(1, meta(1), *before, make(text))
    assert made.one().preview == squeezed(text, 200)


@pytest.mark.parametrize(
    ("lines", "title"),
    [
        ([], None),
        ([seen(CONTEXT)], None),
        ([seen("Shall I begin?", role="assistant")], "Shall I begin?"),
    ],
)
def test_thread_without_a_prompt_is_listed(made: HandMadeHome, lines: list[Any], title: str | None) -> None:
    """Its title is what else it says, if it says anything."""
    made.add(1, meta(1), *lines)
    found = made.one()
    assert (found.preview, found.title, found.problem) == (None, title, None)


def test_task_is_the_title_where_nothing_was_typed(made: HandMadeHome) -> None:
    """An agent that was started by a program has a contract."""
    made.add(1, meta(1, x_task={"prompt": "migrate the schema"}), seen("ok", role="assistant"))
    assert made.one().title == "migrate the schema"


@pytest.mark.case("B123")
def test_injected_context_is_no_prompt(made: HandMadeHome) -> None:
    """Neither at the start nor where it is put in again."""
    injected = [seen("# AGENTS.md instructions for /srv\n\nbe nice"), seen(CONTEXT)]
    made.add(1, meta(1), *injected, *injected, seen("one"), typed("one"))
    assert made.one().preview == "one"


@pytest.mark.case("B125")
@pytest.mark.parametrize("lines", [[seen("item"), typed("event")], [typed("event"), seen("item")]])
def test_event_counts_before_what_the_model_saw(made: HandMadeHome, lines: list[Any]) -> None:
    """In either order."""
    made.add(1, meta(1), *lines)
    assert made.one().preview == "event"


@pytest.mark.parametrize(
    ("header", "lines", "cwd"),
    [
        ({}, [record("turn_context", {"cwd": "/from/turn"})], "/srv/demo"),
        ({"cwd": None}, [record("turn_context", {"cwd": "/from/turn"}), seen(CONTEXT)], "/from/turn"),
        ({"cwd": None}, [seen(CONTEXT), seen("hi")], "/from/context"),
        ({"cwd": None}, [typed("hi")], None),
    ],
)
def test_folder_is_the_one_of_the_meta_else_of_the_first_turn(
    made: HandMadeHome, header: dict[str, Any], lines: list[Any], cwd: str | None
) -> None:
    """As other tools take it."""
    made.add(1, meta(1, **header), *lines)
    assert made.one().cwd == cwd


@pytest.mark.case("B121")
@pytest.mark.case("B122")
def test_first_meta_is_the_threads_own(made: HandMadeHome) -> None:
    """A copied fork repeats its parent's, and its prompt."""
    made.add(1, meta(1, cwd="/beta", forked_from_id=uuid(9)), meta(9, cwd="/alpha"), typed("of the parent"))
    found = made.one()
    assert (found.cwd, found.forked_from, found.preview, found.notes) == (
        "/beta",
        uuid(9),
        "of the parent",
        (),
    )


def test_fork_by_reference_shows_what_its_history_begins_with(made: HandMadeHome) -> None:
    """Nobody has typed into the fork yet."""
    parent = made.add(1, meta(1), typed("the question"))
    base = {"thread_id": uuid(1), "end_ordinal_exclusive": 2, "end_byte_offset": parent.stat().st_size}
    made.add(2, meta(2, at=5, forked_from_id=uuid(1), history_base=base), at=5)
    child, _ = made.list()
    assert (child.preview, child.forked_from, child.fork_ordinal) == ("the question", uuid(1), 1)


def test_ring_of_bases_ends(made: HandMadeHome) -> None:
    """A file that rests on itself is listed all the same."""
    base = {"thread_id": uuid(1), "end_ordinal_exclusive": 2, "end_byte_offset": 10}
    made.add(1, meta(1, history_base=base), typed("mine"))
    assert made.one().preview == "mine"


@pytest.mark.parametrize(
    ("lines", "state"),
    [
        ([event("task_started"), event("task_complete")], "ended"),
        ([event("task_started"), event("turn_aborted")], "ended"),
        ([event("task_complete"), event("task_started")], "crashed"),
        ([record("x_writer", {"event": "opened"}), typed("x")], "crashed"),
        ([record("x_writer", {"event": "opened"}), record("x_writer", {"event": "closed"})], "ended"),
        ([b'{"timestamp":"2026-'], "crashed"),
        ([b"\0" * 1000], "crashed"),
        ([], "ended"),
    ],
)
def test_state_is_what_the_end_tells(made: HandMadeHome, lines: list[Any], state: str) -> None:
    """A writer that ended says so; a turn that is open, or half a line, says the opposite."""
    made.add(1, meta(1), *lines)
    assert made.one().state == state


def test_open_calls_are_counted(made: HandMadeHome) -> None:
    """Those without an answer, of each kind."""
    calls = [
        record("response_item", {"type": "function_call", "name": "a", "call_id": "1", "arguments": "{}"}),
        record("response_item", {"type": "custom_tool_call", "name": "b", "call_id": "2", "input": ""}),
        record("response_item", {"type": "function_call_output", "call_id": "1", "output": "ok"}),
        record("x_call", {"call_id": "3", "state": "started"}),
    ]
    made.add(1, meta(1), *calls)
    assert made.one().open_calls == 2


def test_items_are_counted_by_the_last_ordinals(made: HandMadeHome) -> None:
    """One more than the greatest; records of our own have none."""
    made.add(1, meta(1), record("event_msg", {"type": "x"}, ordinal=41), record("x_state", {"to": "done"}))
    assert made.one().items == 42


@pytest.mark.case("B82")
def test_less_than_128_kib_of_a_large_file_are_read(
    made: HandMadeHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The head, and the tail."""
    big = [seen("y" * 1000, role="assistant") for _ in range(3000)]
    made.add(1, meta(1), typed("hi"), *big, typed("last", at=99))
    read: list[int] = []
    real = os.pread

    def count(descriptor: int, size: int, offset: int) -> bytes:
        data = real(descriptor, size, offset)
        read.append(len(data))
        return data

    monkeypatch.setattr(facts_reader.os, "pread", count)
    found = made.page(use_index=False).threads[0]
    assert found.preview == "hi"
    assert 0 < sum(read) < 128 << 10
    assert HEAD_BYTES_MAX + TAIL_BYTES_MAX + (16 << 10) <= 136 << 10


@pytest.mark.case("B135")
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"type":"thread.started","thread_id":"x"}\n', "the event stream that `codex exec --json` prints"),
        (b'{"model":"m","messages":[]}\n', "a log of requests to a model"),
        (b"", "it is empty"),
        (b"\0" * 5000, "nothing but NUL bytes"),
        (b"\n\n  \r\n", "it is blank"),
        (b"hello\n", "not one of its lines is valid"),
        (b'{"a":1}\n', "no line has the envelope"),
        (gzip.compress(b"x"), "not one of its lines is valid"),
    ],
)
def test_what_is_no_rollout_says_what_it_is(made: HandMadeHome, content: bytes, said: str) -> None:
    """It is listed under its name, damaged, and found as broken."""
    made.write(made.place(1), content, at=0)
    found = made.one()
    assert found.state == "damaged"
    assert said in (found.problem or "")
    assert made.numbers(broken=True) == [1]
    assert made.numbers(broken=False) == []


@pytest.mark.case("B88")
def test_odd_entries_are_passed_over(made: HandMadeHome) -> None:
    """A folder, a pipe, a socket and a link with the names of rollouts; the rest is listed."""
    good = made.add(1)
    made.place(2).mkdir()
    os.mkfifo(made.place(3))
    made.place(5).symlink_to(good)
    with socket.socket(socket.AF_UNIX) as server:
        before = os.getcwd()
        os.chdir(good.parent)  # the path of a socket is short
        try:
            server.bind(made.place(4).name)
        finally:
            os.chdir(before)
        for sort in ("created", "updated"):
            assert made.numbers(sort=sort) == [1]


@pytest.mark.case("B88")
def test_file_without_permission_is_listed_as_broken(
    made: HandMadeHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is there, and it says why nothing is known of it."""
    made.add(1)

    def refuse(path: str, flags: int) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    monkeypatch.setattr(facts_reader.os, "open", refuse)
    (found,) = made.page(use_index=False, broken=True).threads
    assert "Permission denied" in (found.problem or "")


@pytest.mark.case("B113")
@pytest.mark.case("B136")
def test_old_formats_are_listed(made: HandMadeHome) -> None:
    """Lines without an envelope, with CRLF, and one document that holds it all."""
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "old question"}]}
    header = {"id": uuid(1), "timestamp": stamp(0), "instructions": None}
    context = {**item, "content": [{"type": "input_text", "text": CONTEXT}]}
    lines = [header, {"record_type": "state"}, context, item]
    content = b"\r\n".join(json.dumps(each).encode() for each in lines)
    made.write(made.place(1), content, at=0)
    document = {"session": {"timestamp": stamp(5), "id": uuid(2), "cwd": "/tmp/g"}, "items": [item]}
    made.write(made.place(2, at=5), json.dumps(document, indent=2).encode(), at=5)
    second, first = made.list()
    assert (first.preview, first.cwd, first.created) == ("old question", "/from/context", stamp(0))
    assert (second.preview, second.cwd, second.problem) == ("old question", "/tmp/g", None)


def test_records_without_times_leave_the_files_own(made: HandMadeHome) -> None:
    """Created is what the name says, updated is when it was written."""
    made.add(1, meta(1, at=None), typed("hi", at=None))
    found = made.one()
    assert found.updated == stamp(1)
    assert found.created is not None


@pytest.mark.case("B133")
@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("cli", "cli"),
        ("atlas", "atlas"),
        ({"custom": "atlas"}, "atlas"),
        ({"subagent": {"thread_spawn": {"depth": 1}}}, "subagent"),
        ({"subagent": "review"}, "subagent"),
        (["odd"], "unknown"),
        (None, "unknown"),
    ],
)
def test_no_source_hides_a_thread(made: HandMadeHome, source: Any, shown: str) -> None:
    """A rollout of any client is a rollout."""
    made.add(1, meta(1, source=source, originator="t3code_desktop"), typed("hi"))
    found = made.one()
    assert (found.source, found.originator, found.preview) == (shown, "t3code_desktop", "hi")
    assert made.numbers(source=shown) == [1]
    assert made.numbers(source="other") == []


def test_id_that_is_not_the_one_in_the_name_is_told(made: HandMadeHome) -> None:
    """A renamed copy is listed under its name, with a remark."""
    made.add(1, meta(2), typed("hi"))
    found = made.one()
    assert (found.thread_id, found.meta_id) == (uuid(1), uuid(2))
    assert uuid(2) in found.notes[0]
    assert made.numbers(broken=True) == [1]


@pytest.mark.parametrize("size", [1, 60_000])
def test_compressed_rollout_is_listed(made: HandMadeHome, size: int) -> None:
    """As much of it is expanded as it takes."""
    content = encoded(
        [meta(1), typed("hi"), *[seen("z" * 100, role="assistant")] * size, typed("last", at=9)]
    )
    made.write(made.place(1, ending=".zst"), zstandard.compress(content), at=9)
    found = made.one()
    assert (found.preview, found.compressed, found.updated) == ("hi", True, stamp(9))
    assert found.content_bytes in (len(content), None)


@pytest.mark.parametrize("number", [1 << 64, -5, 10**400])
def test_numbers_beyond_all_measure_are_listed(made: HandMadeHome, number: int) -> None:
    """As an ordinal, as the end of a base."""
    base = {"thread_id": uuid(9), "end_ordinal_exclusive": number, "end_byte_offset": number}
    made.add(1, {**meta(1, history_base=base), "ordinal": number}, typed("hi"))
    assert made.one().preview == "hi"
    assert made.numbers(sort="items") == [1]


@pytest.mark.parametrize(
    "time", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59Z", "yesterday", "", 7, None, "1e9"]
)
def test_times_that_are_none_are_listed(made: HandMadeHome, time: Any) -> None:
    """The file's own time stands in."""
    header = meta(1)
    header["payload"]["timestamp"] = time
    made.add(1, {**header, "timestamp": time}, {**typed("hi"), "timestamp": time})
    for sort in ("created", "updated"):
        assert made.one(sort=sort).preview == "hi"


def test_lone_surrogates_and_controls_come_through(made: HandMadeHome) -> None:
    """What was recorded is what is told; making it harmless is the terminal's work."""
    made.add(
        1,
        meta(1),
        b'{"timestamp":"%s","type":"event_msg","payload":{"type":"user_message","message":"a\\ud800\\u001b[31mb"}}\n'
        % stamp(1).encode(),
    )
    assert made.one().preview == "a\ud800\x1b[31mb"


@pytest.mark.parametrize("text", ["x" * 65_536, "\n" * 65_536, "## My request for Codex" * 2_900])
def test_prompt_of_any_text_takes_one_look(text: str) -> None:
    """The heading of an editor is searched for in linear time: a list of long prompts took seconds."""
    begin = time.thread_time()
    for _ in range(10):
        shown_prompt(text)
    assert time.thread_time() - begin < 1
    assert shown_prompt(f"{text}\n## My request for Codex: mend it") in ("mend it", shown_prompt(text))
    assert shown_prompt("a\n## My request for Codex: b\n## My request for Codex:\nc") == "c"
