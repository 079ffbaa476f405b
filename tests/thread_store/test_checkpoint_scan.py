"""The scan back: where it stops, which checkpoint counts, what it says of damage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import zstandard

from tests.thread_store.histories import Script, base_of, meta, place_of, uuid, write_thread
from thread_store.chain import open_rollout
from thread_store.chain.lineage import Lineage, Place
from thread_store.context.checkpoint_scan import MEMORY_REACH_RECORDS, PROBLEMS_MAX, CheckpointScan, scan_back
from thread_store.home import Home

A, B, C = (uuid(number) for number in (0xA, 0xB, 0xC))


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def scan(path: Path, home: Home, **options: Any) -> CheckpointScan:
    with Lineage.resolve(path, home) as lineage:
        return scan_back(lineage, **options)


def memory(script: Script, **changes: Any) -> bytes:
    return script.add("x_memory", {"version": 1, "upto_offset": 0, **changes})


def offset_of(path: Path, line: bytes) -> Place:
    """The border before a line of a file that is alone."""
    data = path.read_bytes()
    assert data.count(line) == 1
    return Place(0, data.index(line))


def filled(script: Script, records: int) -> None:
    """Records that mean nothing to a scan."""
    for number in range(records):
        script.event("agent_reasoning", text=f"thought {number}")


# Where it stops


def test_scan_stops_at_the_newest_checkpoint_that_a_memory_follows(home: Home) -> None:
    """What is older isn't read, and everything is known all the same."""
    script = Script()
    script.turn(1)
    script.compacted("older")
    newest = script.compacted("newest")
    snapshot = memory(script)
    script.turn(2)
    path = write_thread(home, A, script.bytes)
    found = scan(path, home)
    assert found.tail.base is not None
    assert found.tail.base.checkpoint.message == "newest"
    assert found.tail.base.place == found.examined_from == offset_of(path, newest)
    assert found.memory is not None
    assert found.memory.place == offset_of(path, snapshot)
    assert found.whole


def test_scan_goes_on_from_a_checkpoint_without_memory_to_the_memory_before_it(home: Home) -> None:
    """A kill between the two writes costs a longer scan; the checkpoint counts."""
    script = Script()
    script.compacted("older")
    snapshot = memory(script)
    script.turn(1)
    script.compacted("newest")
    path = write_thread(home, A, script.bytes)
    found = scan(path, home)
    assert found.tail.base is not None
    assert found.tail.base.checkpoint.message == "newest"
    assert found.examined_from == offset_of(path, snapshot)
    assert found.whole


def test_scan_without_any_memory_ends_and_says_from_where_it_read(home: Home) -> None:
    """The rest of a file of Codex's own is unknown, until a deep scan reads it."""
    script = Script()
    filled(script, 100)
    first_read = script.event("agent_reasoning", text="the first that is read")
    script.compacted("only")
    filled(script, MEMORY_REACH_RECORDS - 2)
    path = write_thread(home, A, script.bytes)
    found = scan(path, home)
    assert found.tail.base is not None
    assert found.examined_from == offset_of(path, first_read)
    assert not found.whole
    deep = scan(path, home, deep=True)
    assert deep.tail.base == found.tail.base
    assert deep.examined_from == (0, 0)
    assert deep.whole


@pytest.mark.case("B73")
def test_scan_reads_only_what_it_needs(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a long rollout whose checkpoint lies near the end, a few blocks."""
    script = Script()
    filled(script, 30_000)
    script.compacted("near the end")
    memory(script)
    script.turn(1)
    path = write_thread(home, A, script.bytes)
    read = count_bytes(monkeypatch)
    found = scan(path, home)
    assert found.tail.base is not None
    assert path.stat().st_size > 3_000_000
    assert sum(read) < 500_000


def count_bytes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    read: list[int] = []
    read_at = open_rollout.ByteSource.read_at

    def counting(source: Any, size: int, offset: int) -> bytes:
        data = read_at(source, size, offset)
        read.append(len(data))
        return data

    monkeypatch.setattr(open_rollout.ByteSource, "read_at", counting)
    return read


def test_scan_goes_on_into_the_files_that_a_thread_rests_on(home: Home) -> None:
    """The checkpoint of the parent counts, places name the file of the chain."""
    script = Script()
    checkpoint = script.compacted("of the parent")
    memory(script)
    script.turn(1)
    parent = write_thread(home, A, script.bytes)
    end = script.next_ordinal
    assert end is not None
    base = base_of(parent, A, parent.stat().st_size, end)
    child = write_thread(home, B, Script(end + 1).turn(2), ordinal=end, history_base=base)
    found = scan(child, home)
    assert found.tail.base is not None
    assert found.tail.base.place == offset_of(parent, checkpoint)
    assert found.memory is not None
    assert found.memory.segment == 0


def test_scan_of_a_compressed_rollout_finds_the_same(home: Home) -> None:
    """Places count decompressed bytes."""
    script = Script()
    script.compacted("c")
    memory(script)
    script.turn(1)
    plain = write_thread(home, A, script.bytes)
    expected = scan(plain, home)
    packed = plain.with_name(f"{plain.name}.zst")
    packed.write_bytes(zstandard.compress(plain.read_bytes()))
    plain.unlink()
    found = scan(packed, home)
    assert found.tail.base == expected.tail.base
    assert found.tail.entries == expected.tail.entries


def test_scan_of_a_broken_chain_says_that_it_is_not_whole(home: Home) -> None:
    """Without the parent the child's own part is all there is."""
    base = {"thread_id": C, "end_ordinal_exclusive": 5, "end_byte_offset": 500}
    child = write_thread(home, B, Script(6).turn(2), ordinal=5, history_base=base)
    found = scan(child, home)
    assert found.tail.base is None
    assert not found.whole


# Which checkpoint counts


@pytest.mark.case("B48")
def test_checkpoint_inside_a_rolled_back_turn_leaves_the_one_before(home: Home) -> None:
    """Both a checkpoint in the turn and one behind it were taken back with it."""
    script = Script()
    script.turn(1)
    kept = script.compacted("kept")
    script.start("t2")
    script.user("question 2")
    inside = script.compacted("inside")
    script.complete("t2")
    behind = script.compacted("behind")
    script.event("thread_rolled_back", num_turns=1)
    path = write_thread(home, A, script.bytes)
    found = scan(path, home)
    assert found.tail.base is not None
    assert found.tail.base.place == offset_of(path, kept)
    assert found.tail.rolled_back == [offset_of(path, behind), offset_of(path, inside)]
    assert found.problems == []


def test_checkpoint_behind_a_rollback_counts(home: Home) -> None:
    """A rollback concerns what stands before it."""
    script = Script()
    script.turn(1)
    script.turn(2)
    script.event("thread_rolled_back", num_turns=2)
    kept = script.compacted("later")
    script.turn(3)
    path = write_thread(home, A, script.bytes)
    found = scan(path, home)
    assert found.tail.base is not None
    assert found.tail.base.place == offset_of(path, kept)


def test_rollback_of_more_turns_than_there_are_leaves_the_checkpoint_before_the_first(home: Home) -> None:
    """What stood there before anybody typed something is never rolled back."""
    script = Script()
    first = script.compacted("first")
    script.turn(1)
    script.compacted("second")
    script.event("thread_rolled_back", num_turns=9)
    path = write_thread(home, A, script.bytes)
    found = scan(path, home)
    assert found.tail.base is not None
    assert found.tail.base.place == offset_of(path, first)


@pytest.mark.parametrize(
    "payload",
    [
        {"replacement_history": []},
        {"message": None, "replacement_history": []},
        {"message": "m", "replacement_history": {}},
        {"message": "m", "replacement_history": ["text"]},
        {"message": "m", "replacement_history": [{"role": "user"}]},
        {"message": "m", "replacement_history": [{"type": "message", "role": "user", "content": "bare"}]},
        {"message": "m", "replacement_history": [], "replacement_history_metadata": [None]},
        ["message"],
    ],
)
@pytest.mark.case("B49")
def test_invalid_checkpoint_leaves_the_one_before_and_is_told(home: Home, payload: Any) -> None:
    """What Codex would pass over is passed over, not taken half."""
    script = Script()
    kept = script.compacted("kept")
    bad = script.add("compacted", payload)
    path = write_thread(home, A, script.bytes)
    found = scan(path, home)
    assert found.tail.base is not None
    assert found.tail.base.place == offset_of(path, kept)
    (problem,) = found.problems
    assert (problem.place, problem.reason, problem.checkpoint) == (
        offset_of(path, bad),
        "invalid_checkpoint",
        True,
    )


@pytest.mark.parametrize("cut", [1, 2, 30, 45])
@pytest.mark.parametrize("terminated", [True, False])
@pytest.mark.case("B49")
def test_torn_checkpoint_leaves_the_one_before_and_is_told(home: Home, cut: int, terminated: bool) -> None:
    """Also one whose write never came to its end, or is under way."""
    script = Script()
    kept = script.compacted("kept")
    torn = script.compacted("torn")[: -1 - cut] + b"\n" * terminated
    path = write_thread(home, A, b"".join(script.lines[:-1]) + torn)
    found = scan(path, home)
    assert found.tail.base is not None
    assert found.tail.base.place == offset_of(path, kept)
    (problem,) = found.problems
    assert problem.checkpoint
    assert problem.reason == ("not_json" if terminated else "torn_tail")


@pytest.mark.case("B50")
def test_checkpoint_cut_at_any_byte_leaves_the_state_before_or_after(home: Home) -> None:
    """A kill inside the write of a checkpoint never gives a mix."""
    script = Script()
    script.turn(1)
    checkpoint = script.compacted("new")
    before = b"".join(script.lines[:-1])
    path = write_thread(home, A, before)
    without = scan(path, home)
    header = path.read_bytes()[: -len(before)]
    for size in range(1, len(checkpoint) + 1):
        path.write_bytes(header + before + checkpoint[:size])
        found = scan(path, home)
        if size >= len(checkpoint) - 1:  # whole but for its newline
            assert found.tail.base is not None
            assert found.tail.entries == []
        else:
            assert found.tail.base is None
            assert found.tail.entries == without.tail.entries


# What is known besides


def test_memory_of_a_rolled_back_turn_leaves_the_one_before(home: Home) -> None:
    """Session memory is folded anew from before the turn."""
    script = Script()
    kept = memory(script, epoch=1)
    script.compacted("c")
    script.turn(1)
    memory(script, epoch=2)
    script.event("thread_rolled_back", num_turns=1)
    path = write_thread(home, A, script.bytes)
    found = scan(path, home)
    assert found.memory is not None
    assert found.memory.place == offset_of(path, kept)


def test_memory_that_cannot_be_read_leaves_the_one_before_and_is_told(home: Home) -> None:
    """It is a problem of the range like a damaged line."""
    script = Script()
    kept = memory(script)
    script.compacted("c")
    bad = script.add("x_memory", {"version": "one"})
    path = write_thread(home, A, script.bytes)
    found = scan(path, home)
    assert found.memory is not None
    assert found.memory.place == offset_of(path, kept)
    assert [(each.place, each.reason) for each in found.problems] == [
        (offset_of(path, bad), "invalid_memory")
    ]


@pytest.mark.guarantee("G5")
def test_damaged_lines_of_the_range_are_listed_newest_first(home: Home) -> None:
    """Each with its place and reason; those before the range are not read."""
    script = Script()
    script.lines.append(b"before the range\n")
    script.compacted("c")
    memory(script)
    script.lines.append(b"\0\0\0\n")
    script.turn(1)
    script.lines.append(b"no json\n")
    path = write_thread(home, A, script.bytes)
    found = scan(path, home)
    assert [(each.place, each.reason, each.checkpoint) for each in found.problems] == [
        (offset_of(path, b"no json\n"), "not_json", False),
        (offset_of(path, b"\0\0\0\n"), "nul_bytes", False),
    ]
    assert scan(path, home, deep=True).problem_count == 3


@pytest.mark.guarantee("G7")
def test_problems_beyond_the_limit_are_counted(home: Home) -> None:
    """A file full of garbage costs no more memory than a list of the newest."""
    path = write_thread(home, A, b"garbage\n" * (PROBLEMS_MAX + 7))
    found = scan(path, home)
    assert len(found.problems) == PROBLEMS_MAX
    assert found.problem_count == PROBLEMS_MAX + 7


def test_damaged_frame_of_a_compressed_file_is_told(home: Home) -> None:
    """Bytes are missing there, so something may be hidden."""
    script = Script()
    script.turn(1)
    path = place_of(home, A)
    packed = zstandard.compress(meta(A) + script.bytes)
    path = path.with_name(f"{path.name}.zst")
    path.write_bytes(packed + zstandard.compress(b"x" * 1000)[:-8])
    found = scan(path, home)
    assert "damaged_frame" in {each.reason for each in found.problems}
