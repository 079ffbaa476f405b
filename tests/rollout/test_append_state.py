"""What a recorder learns of an existing rollout before it appends to it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import NotARollout
from rollout.append_state import AppendState, scan_for_append
from rollout.source import open_source
from rollout.tail import TailKind, find_tail
from tests.rollout.written import THREAD_ID, dump, line, message, meta, rollout


def scan(
    path: Path, data: bytes, *, block_bytes: int = 1 << 16, record_bytes_max: int = 1 << 20
) -> AppendState:
    path.write_bytes(data)
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.lseek(descriptor, 3, os.SEEK_SET)
        state = scan_for_append(
            descriptor, str(path), block_bytes=block_bytes, record_bytes_max=record_bytes_max
        )
        assert os.lseek(descriptor, 0, os.SEEK_CUR) == 3
    finally:
        os.close(descriptor)
    assert path.read_bytes() == data
    return state


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "r.jsonl"


def memory(max_ordinal: object, upto: int, epoch: object = 4) -> bytes:
    payload = {"version": 1, "upto_offset": upto, "max_ordinal": max_ordinal, "epoch": epoch}
    return line("x_memory", payload)


def test_whole_rollout_goes_on_from_its_maximum(path: Path) -> None:
    """Its thread, its mode, the maximum ordinal, the last time, and a tail that needs nothing."""
    state = scan(path, rollout("one", "two"))
    assert state.thread_id == THREAD_ID
    assert state.history_mode == "paginated"
    assert state.max_ordinal == 2
    assert state.first_line == meta()
    assert state.size == len(rollout("one", "two"))
    assert (state.torn_from, state.needs_newline) == (None, False)
    assert state.last_timestamp_ms == 1795947072345
    assert (state.epoch, state.damaged_lines, state.examined_from) == (0, 0, 0)


@pytest.mark.case("B34")
def test_lower_last_ordinal_leaves_the_maximum(path: Path) -> None:
    """The last line has a lower number than an earlier one: the maximum of all counts."""
    assert scan(path, meta() + message("a", 99_999) + message("b", 7)).max_ordinal == 99_999


@pytest.mark.case("B33")
def test_legacy_rollout_numbers_nothing(path: Path) -> None:
    """No ordinals and no mode: legacy, and no number to go on from."""
    state = scan(path, meta(None, history_mode=None) + message("a"))
    assert (state.history_mode, state.max_ordinal) == ("legacy", None)


def test_base_of_a_fork_bounds_the_numbering(path: Path) -> None:
    """A rollout that goes on from a base never numbers below it, even if its own ordinals are gone."""
    base = {"thread_id": THREAD_ID, "end_ordinal_exclusive": 14, "end_byte_offset": 900}
    assert scan(path, meta(None, history_base=base)).max_ordinal == 13


@pytest.mark.case("B04")
def test_cut_at_every_byte_of_the_last_record_tells_the_tail(path: Path) -> None:
    """Cut anywhere in the last line: torn from its start; only the newline missing: valid."""
    whole = rollout("one", "drei, 三, 🦀")
    start = whole.rindex(b"\n", 0, -1) + 1
    for cut in range(start, len(whole)):
        state = scan(path, whole[:cut])
        if cut == start:
            assert (state.torn_from, state.needs_newline, state.max_ordinal) == (None, False, 1)
        elif cut == len(whole) - 1:
            assert (state.torn_from, state.needs_newline, state.max_ordinal) == (None, True, 2)
        else:
            assert (state.torn_from, state.needs_newline, state.max_ordinal) == (start, False, 1)
            assert state.damaged_lines == 1


@pytest.mark.parametrize(
    ("tail", "kind"),
    [
        (b"", TailKind.WHOLE),
        (b"  \t", TailKind.UNTERMINATED),
        (b"{}", TailKind.UNTERMINATED),
        (b"{}\r", TailKind.UNTERMINATED),
        (b"\0" * 100, TailKind.TORN),
        (b"\0" * (3 << 20), TailKind.TORN),
        (b"[1]", TailKind.TORN),
        (b"x" * (3 << 20), TailKind.TORN),
        (b'{"a":"\xe2\x82', TailKind.TORN),
    ],
)
def test_tail_is_told_by_its_bytes(path: Path, tail: bytes, kind: TailKind) -> None:
    """Whole, unterminated or torn: the quick look and the scan agree, also on what is too long."""
    data = rollout("one")
    state = scan(path, data + tail)
    with path.open("rb") as file:
        found = find_tail(open_source(file), record_bytes_max=1 << 20)
    assert (found.kind, found.offset_bytes, found.size_bytes) == (kind, len(data), len(tail))
    assert state.torn_from == (len(data) if kind is TailKind.TORN else None)
    assert state.needs_newline == (kind is TailKind.UNTERMINATED)


def test_memory_saves_the_rest_of_the_scan(path: Path) -> None:
    """Back to the newest x_memory: what stands before is not looked at, what it carries counts."""
    early = meta() + line("x_writer", {"event": "opened", "epoch": 2}) + message("a", 700) + b"garbage\n"
    head = early + b"".join(message("filling", number) for number in range(1, 2000))
    data = head + memory(800, len(head)) + message("late", 3)
    state = scan(path, data, block_bytes=512)
    assert (state.max_ordinal, state.epoch) == (800, 4)
    assert state.examined_from == len(head)
    assert state.damaged_lines == 0
    assert state.thread_id == THREAD_ID


def test_memory_speaks_only_for_what_stands_before_its_offset(path: Path) -> None:
    """Records between the fold and its record are looked at: their ordinals count."""
    head = meta() + message("folded", 1)
    data = head + message("not folded", 9) + memory(1, len(head)) + message("late", 2)
    assert scan(path, data).max_ordinal == 9


@pytest.mark.parametrize(
    "bad",
    [
        memory("7", 10),
        memory(7, -1),
        memory(7, 10, epoch=None),
        memory(True, 10),
        line("x_memory", ["no", "object"]),
        b'{"type":"x_memory","payload":{"max_ordinal":7,"upto_offset":1,"epoch":1\n',
    ],
)
def test_invalid_memory_is_passed_over(path: Path, bad: bytes) -> None:
    """A memory that can't be trusted changes nothing: the scan goes on to what stands before."""
    state = scan(path, meta() + message("a", 500) + bad + message("b", 3))
    assert state.max_ordinal == 500
    assert state.examined_from == 0


def test_epoch_is_the_greatest_of_the_writers(path: Path) -> None:
    """Epochs only grow; nonsense in their place is passed over."""
    writers = [{"epoch": 3}, {"epoch": 5}, {"epoch": "9"}, {"epoch": -4}, {}, []]
    data = meta() + b"".join(line("x_writer", payload) for payload in writers)
    assert scan(path, data).epoch == 5


def test_last_readable_time_counts(path: Path) -> None:
    """The newest record with a time that can be read; others are passed over."""
    data = meta() + message("a", 1) + line("x_call", {}, stamp="yesterday") + line("x_call", {}, stamp=None)
    assert scan(path, data).last_timestamp_ms == 1795947072345


@pytest.mark.case("B58")
def test_late_header_is_found(path: Path) -> None:
    """With something before its session_meta, that line alone is what heads the file again."""
    first = line("x_unknown", {})
    state = scan(path, first + rollout("one"))
    assert state.thread_id == THREAD_ID
    assert state.first_line == meta()


def test_lone_header_without_newline_is_a_rollout(path: Path) -> None:
    """Its meta line is whole: only the newline is missing."""
    state = scan(path, meta()[:-1])
    assert state.needs_newline
    assert state.first_line == meta()


def test_bom_and_crlf_do_not_disturb(path: Path) -> None:
    """A file that another editor saved is appended to like any other."""
    bom = b"\xef\xbb\xbf"
    data = bom + rollout("one").replace(b"\n", b"\r\n")
    state = scan(path, data)
    assert state.max_ordinal == 1
    assert data.startswith(bom + state.first_line)
    assert not state.needs_newline


@pytest.mark.case("B56")
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "it is empty"),
        (b"\0" * 999, "nothing but NUL bytes"),
        (meta()[:50], "its only line was never finished"),
        (b"garbage\n", "not one of its lines is valid"),
        (dump({"type": "thread.started"}) + b"\n", "codex exec --json"),
        (zstandard.compress(rollout("a")), "it is compressed"),
        (dump({"session": {"id": "s"}, "items": []}), "one JSON document"),
    ],
)
def test_what_is_no_rollout_is_not_appended_to(path: Path, data: bytes, reason: str) -> None:
    """Without one whole line of a rollout there is nothing to go on from; the error says what it is."""
    with pytest.raises(NotARollout, match=reason):
        scan(path, data)


@given(
    ordinals=st.lists(st.none() | st.integers(0, 50), max_size=20),
    block_bytes=st.integers(1, 300),
)
def test_maximum_does_not_depend_on_order_or_blocks(
    tmp_path_factory: pytest.TempPathFactory, ordinals: list[int | None], block_bytes: int
) -> None:
    """Any ordinals in any order, read in blocks of any size: the maximum is found."""
    data = meta() + b"".join(message("m", ordinal) for ordinal in ordinals)
    state = scan(tmp_path_factory.getbasetemp() / "any.jsonl", data, block_bytes=block_bytes)
    assert state.max_ordinal == max(0, *(ordinal or 0 for ordinal in ordinals), 0)
