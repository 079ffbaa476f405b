"""The fold of a thread: from the newest snapshot that fits, and always what all lines from the start give."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from protocol.own import MemoryItem
from protocol.thread_fold import ThreadFold
from protocol.tool_verdicts import ToolVerdict
from tests.thread_store.histories import Script, dump, line, turns, uuid, write_thread
from thread_store.chain.fork_point import ForkPoint
from thread_store.chain.lineage import Lineage, LineageRecord, Place
from thread_store.folding.fold_range import take_record
from thread_store.folding.thread_folding import FoldedThread, fold_lineage, line_hash
from thread_store.forks.fork import make_fork
from thread_store.home import Home

A, B, C = uuid(0xA), uuid(0xB), uuid(0xC)
CALL = {"type": "function_call", "name": "send_mail", "arguments": "{}", "call_id": "c9"}
UNREAD = {"version": 1, "upto_offset": 1, "last_line": "0" * 16}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def fold(path: str | Path, home: Home, **options: Any) -> FoldedThread:
    with Lineage.resolve(path, home) as lineage:
        return fold_lineage(lineage, **options)


def told(folded: FoldedThread) -> MemoryItem:
    """All that a fold knows."""
    return folded.fold.snapshot(0)


def snapshot_line(path: Path, home: Home, **changes: Any) -> bytes:
    """The `x_memory` that a writer would put behind these lines."""
    folded = fold(path, home, deep=True)
    item = folded.fold.snapshot(folded.upto.offset)
    with Lineage.resolve(path, home) as lineage, lineage.open(lineage.end.segment) as file:
        item.last_line = line_hash(file.last_line(folded.upto.offset))
    return line("x_memory", {**msgspec.to_builtins(item), **changes})


def is_snapshot(found: LineageRecord) -> bool:
    return found.record.line is not None and found.record.line.type == "x_memory"


def append(path: str | Path, data: bytes) -> None:
    with Path(path).open("ab") as file:
        file.write(data)


def thread_with_snapshot(home: Home, **changes: Any) -> Path:
    """Two turns, a snapshot with a record before it that it doesn't cover, and a call that is open."""
    path = write_thread(home, A, turns(2))
    snapshot = snapshot_line(path, home, **changes)
    script = Script(17)
    script.start("t3")
    append(path, script.bytes + snapshot)
    script = Script(18)
    script.user("question 3")
    script.call("c3")
    script.add("x_call", {"call_id": "c3", "turn_id": "t3", "state": "started", "name": "send_mail"})
    append(path, script.bytes)
    return path


@pytest.mark.guarantee("G9")
def test_snapshot_and_what_follows_give_what_all_lines_give(home: Home) -> None:
    """The call in the suffix is known, and so is what only the snapshot tells; less is read."""
    path = thread_with_snapshot(home)
    short, whole = fold(path, home), fold(path, home, deep=True)
    assert told(short) == told(whole)
    assert (short.whole, short.examined_from, short.upto) == (True, Place(0, 0), whole.upto)
    verdicts = {call.call_id: call.verdict for call in short.fold.calls.calls()}
    assert verdicts == {
        "c1": ToolVerdict.COMPLETED,
        "c2": ToolVerdict.COMPLETED,
        "c3": ToolVerdict.UNCERTAIN,
    }


def test_snapshot_is_what_the_fold_begins_from(home: Home) -> None:
    """It is really used: what it says of older lines is believed."""
    path = thread_with_snapshot(home, epoch=77)
    assert fold(path, home).fold.calls.epoch == 77
    assert fold(path, home, deep=True).fold.calls.epoch is None


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 2},
        {"last_line": None},
        {"last_line": "0" * 16},
        {"open_calls": "none"},
        {"memory": {"goals": 3}},
        {"upto_offset": "x"},
    ],
    ids=str,
)
def test_snapshot_that_does_not_fit_is_passed_over(home: Home, changes: dict[str, Any]) -> None:
    """Of another version, without its last line, of another shape: the fold begins further back."""
    path = thread_with_snapshot(home, **changes)
    assert told(fold(path, home)) == told(fold(path, home, deep=True))


def test_snapshot_before_the_damaged_one_counts(home: Home) -> None:
    """An older one will do."""
    path = thread_with_snapshot(home, epoch=77)
    append(path, line("x_memory", UNREAD))
    assert fold(path, home).fold.calls.epoch == 77


@pytest.mark.parametrize("mode", ["copy", "reference"])
def test_snapshot_holds_in_forks(home: Home, mode: Any) -> None:
    """In a copy its lines stand elsewhere: they are found, and the places in it move along."""
    source = thread_with_snapshot(home)
    target = home.path / f"sessions/2031/01/02/rollout-2031-01-02T03-04-05-{B}.jsonl"
    made = make_fork(source, target, thread_id=B, home=home, mode=mode)
    from_snapshot, whole = fold(made.path, home), fold(made.path, home, deep=True)
    assert told(from_snapshot) == told(whole)
    assert from_snapshot.upto == whole.upto
    # It was really used: without it nothing is known of what stands before the place where to begin.
    with Lineage.resolve(made.path, home) as lineage:
        unknown = fold_lineage(lineage, memories=[], examined_from=lineage.end)
        (memory,) = [each for each in lineage.backward() if is_snapshot(each)]
        assert (
            told(fold_lineage(lineage, [memory], examined_from=lineage.end)) == told(whole) != told(unknown)
        )


def test_no_ordinal_is_missing_in_a_chain_or_in_its_copy(home: Home) -> None:
    """The numbered metas in between are no records, and none is lost with them."""
    paths = [str(write_thread(home, A, turns(2)))]
    for number, thread_id in enumerate((B, C)):
        target = home.path / f"sessions/2031/01/02/rollout-2031-01-02T03-04-05-{thread_id}.jsonl"
        made = make_fork(paths[-1], target, thread_id=thread_id, home=home, mode="reference")
        append(made.path, turns(1, first=10 + number, ordinal=(made.border.end_ordinal or 0) + 1))
        paths.append(made.path)
    copy = home.path / f"sessions/2031/01/02/rollout-2031-01-02T03-04-05-{uuid(0xD)}.jsonl"
    make_fork(paths[-1], copy, thread_id=uuid(0xD), home=home, point=ForkPoint.end())
    for path in (*paths, copy):
        folded = fold(path, home, deep=True)
        assert folded.fold.damage.ranges == []
        assert folded.whole


def test_missing_base_is_damage(home: Home) -> None:
    """What stood in a file that is gone is not known: the fold says so, and a resume is not automatic."""
    source = write_thread(home, A, turns(2))
    target = home.path / f"sessions/2031/01/02/rollout-2031-01-02T03-04-05-{B}.jsonl"
    made = make_fork(source, target, thread_id=B, home=home, mode="reference")
    append(made.path, turns(1, first=10, ordinal=(made.border.end_ordinal or 0) + 1))
    source.unlink()
    folded = fold(made.path, home)
    assert not folded.whole
    assert [each.reason for each in folded.fold.damage.blocking] == ["base_missing"]


def test_fold_that_did_not_begin_at_the_start_says_so(home: Home) -> None:
    """And so does one that went on from its snapshot."""
    path = write_thread(home, A, turns(4))
    with Lineage.resolve(path, home) as lineage:
        places = [found.place for found in lineage.forward()]
    half = places[len(places) // 2]
    folded = fold(path, home, memories=[], examined_from=half)
    assert (folded.whole, folded.examined_from) == (False, half)
    append(path, snapshot_line(path, home, examined_from=half.offset, epoch=5))
    later = fold(path, home)
    assert (later.whole, later.examined_from, later.fold.calls.epoch) == (False, half, 5)


def test_damaged_lines_are_damage_in_the_fold(home: Home) -> None:
    """One that can't be read may have hidden a call."""
    path = write_thread(home, A, turns(1) + b'{"broken\n' + turns(1, first=2, ordinal=9))
    (damage,) = fold(path, home).fold.damage.blocking
    assert (damage.reason, damage.hides_calls) == ("not_json", True)


def test_unfinished_last_line_is_not_folded(home: Home) -> None:
    """It may be a write in flight."""
    path = write_thread(home, A, turns(1))
    before = told(fold(path, home))
    append(path, dump({"type": "x_call", "payload": {"call_id": "z", "state": "started"}}))
    folded = fold(path, home)
    assert told(folded) == before
    assert folded.upto.offset == path.read_bytes().rfind(b"\n") + 1


@pytest.mark.guarantee("G8")
def test_unfinished_last_line_of_another_writer_may_hide_a_call(home: Home) -> None:
    """Our own writer syncs that a call started before it does; of others nobody knows that."""
    foreign = write_thread(home, A, turns(1) + b'{"timestamp":"20')
    assert fold(foreign, home).tail_hides_calls
    opened = line("x_writer", {"event": "opened", "epoch": 1})
    ours = write_thread(home, B, turns(1) + opened + b'{"timestamp":"20')
    assert not fold(ours, home).tail_hides_calls
    assert not fold(write_thread(home, C, turns(1)), home).tail_hides_calls


@pytest.mark.guarantee("G9")
def test_snapshot_of_a_chain_is_passed_over_in_its_copy(home: Home) -> None:
    """Its places in the older file moved by another distance; all of the copy is folded, and is known."""
    source = write_thread(home, A, turns(1) + line("response_item", CALL, 9))
    target = home.path / f"sessions/2031/01/02/rollout-2031-01-02T03-04-05-{B}.jsonl"
    chain = Path(make_fork(source, target, thread_id=B, home=home, mode="reference").path)
    append(chain, turns(1, first=10, ordinal=11))
    with Lineage.resolve(chain, home) as lineage, lineage.open(1) as file:
        folded = fold_lineage(lineage)
        memory = folded.snapshot(line_hash(file.last_line(folded.upto.offset)))
    append(chain, line("x_memory", msgspec.to_builtins(memory)))
    assert told(fold(chain, home)) == told(fold(chain, home, deep=True))
    target = home.path / f"sessions/2031/01/02/rollout-2031-01-02T03-04-05-{C}.jsonl"
    copy = make_fork(chain, target, thread_id=C, home=home).path
    with Lineage.resolve(copy, home) as lineage:
        found = fold_lineage(lineage, examined_from=lineage.end)
    assert found.whole
    assert told(found) == told(fold(copy, home, deep=True))


def test_snapshot_whose_last_line_stands_twice_is_passed_over_in_a_copy(home: Home) -> None:
    """Nobody knows which of the two it means."""
    twice = line("x_files", {"path": "/a"})
    path = write_thread(home, A, turns(1) + twice)
    snapshot = snapshot_line(path, home, epoch=77)
    append(path, twice + snapshot)
    assert fold(path, home).fold.calls.epoch == 77
    target = home.path / f"sessions/2031/01/02/rollout-2031-01-02T03-04-05-{B}.jsonl"
    assert fold(make_fork(path, target, thread_id=B, home=home).path, home).fold.calls.epoch is None


def test_ordinals_that_are_missing_behind_the_meta_are_damage(home: Home) -> None:
    """The meta is numbered too."""
    path = write_thread(home, A, turns(1, ordinal=4))
    assert [each.detail for each in fold(path, home).fold.damage.ranges] == ["1 to 3"]


@pytest.mark.guarantee("G9")
def test_fold_from_every_record_on_is_the_same(home: Home) -> None:
    """Wherever a snapshot was taken, what comes out at the end is one state."""
    path = thread_with_snapshot(home)
    whole = told(fold(path, home, deep=True))
    with Lineage.resolve(path, home) as lineage:
        records = [found.record for found in lineage.forward()]
    for cut in range(len(records)):
        begun = ThreadFold()
        for record in records[:cut]:
            take_record(begun, record)
        again = ThreadFold.restore(json.loads(json.dumps(msgspec.to_builtins(begun.snapshot(0)))))
        assert again is not None
        for record in records[cut:]:
            take_record(again, record)
        assert again.snapshot(0) == whole
