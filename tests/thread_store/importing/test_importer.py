"""Imports: once, again, when the source has grown, and when it says another thing."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import ActiveWriter
from rollout.check import check_rollout
from tests.thread_store.importing.made import claude, records, said, take, text, write_lines
from thread_store.context.model_context import load_model_context
from thread_store.home import Home
from thread_store.importing.claude_code import ClaudeCodeReader
from thread_store.importing.importer import ImportState
from thread_store.listing.thread_list import list_threads
from thread_store.listing.thread_query import ThreadQuery
from thread_store.locks import ThreadLocks
from thread_store.titles.session_index import SessionIndex
from thread_store.upkeep.compression import compress_thread
from thread_store.upkeep.threads import Place

ROWS = [
    claude(1, "user", "run the tests"),
    claude(2, "assistant", [{"type": "tool_use", "id": "c1", "name": "Bash", "input": {"command": "make"}}]),
    claude(3, "user", [{"type": "tool_result", "tool_use_id": "c1", "content": "ok"}]),
    claude(4, "assistant", text("all green"), message={"stop_reason": "end_turn"}),
    claude(5, "user", "thanks"),
    claude(6, "assistant", text("welcome"), message={"stop_reason": "end_turn"}),
]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def source(tmp_path: Path, rows: list[dict[str, Any]]) -> ClaudeCodeReader:
    return ClaudeCodeReader(str(write_lines(tmp_path / "session.jsonl", rows)))


def test_import_makes_a_rollout_without_damage(tmp_path: Path, home: Path) -> None:
    """With the folder, the times and the words of the source, private, and listed as ended."""
    (done,) = take(source(tmp_path, ROWS), home)
    assert done.state is ImportState.NEW
    path = Home(home).find_thread(done.thread_id)
    assert not check_rollout(path).findings
    assert path.stat().st_mode & 0o777 == 0o600
    lines = records(home, done.thread_id)
    assert lines[0]["payload"]["cwd"] == "/srv/demo"
    assert lines[0]["payload"]["git"] == {"branch": "main"}
    assert [each["timestamp"] for each in lines] == sorted(each["timestamp"] for each in lines)
    assert lines[0]["timestamp"] == "2026-01-01T00:00:01.000Z"
    assert said(home, done.thread_id) == [
        ("user", "run the tests"),
        ("call", ("c1", "Bash", '{"command":"make"}')),
        ("result", ("c1", "ok")),
        ("agent", "all green"),
        ("task_complete", None),
        ("user", "thanks"),
        ("agent", "welcome"),
        ("task_complete", None),
    ]
    (entry,) = list_threads(Home(home), ThreadQuery()).threads
    assert (entry.state, entry.preview) == ("ended", "run the tests")


def test_importing_again_changes_no_byte(tmp_path: Path, home: Path) -> None:
    """Also if the source was touched, or lies elsewhere by now."""
    (done,) = take(source(tmp_path, ROWS), home)
    path = Home(home).find_thread(done.thread_id)
    before = path.read_bytes()
    for rename in (False, True):
        reader = source(tmp_path, ROWS)
        os.utime(reader.path, (1, 1))
        if rename:
            os.rename(reader.path, tmp_path / "moved.jsonl")
            reader = ClaudeCodeReader(str(tmp_path / "moved.jsonl"))
        (again,) = take(reader, home)
        assert (again.state, again.thread_id) == (ImportState.UNCHANGED, done.thread_id)
        assert path.read_bytes() == before


@pytest.mark.parametrize("cut", range(1, len(ROWS)))
def test_grown_source_adds_what_is_new(tmp_path: Path, home: Path, cut: int) -> None:
    """What stood there stays, byte for byte; all in all it is as if it had been imported at once."""
    (first,) = take(source(tmp_path, ROWS[:cut]), home)
    path = Home(home).find_thread(first.thread_id)
    before = path.read_bytes()
    (second,) = take(source(tmp_path, ROWS), home)
    assert second.state is ImportState.GROWN
    assert path.read_bytes().startswith(before)
    (whole,) = take(source(tmp_path, ROWS), home.with_name("other"))
    own = [each for each in records(home, first.thread_id) if each["type"] != "x_import"]
    assert own == [
        each for each in records(home.with_name("other"), whole.thread_id) if each["type"] != "x_import"
    ]


def test_source_that_says_another_thing_leaves_the_thread_alone(tmp_path: Path, home: Path) -> None:
    """Nothing is guessed: it is told from which record on."""
    (first,) = take(source(tmp_path, ROWS), home)
    path = Home(home).find_thread(first.thread_id)
    before = path.read_bytes()
    changed = [*ROWS[:3], claude(4, "assistant", text("all red")), *ROWS[4:]]
    (second,) = take(source(tmp_path, changed), home)
    assert second.state is ImportState.CHANGED
    assert "record" in second.hint
    assert path.read_bytes() == before


def test_dry_run_writes_nothing(tmp_path: Path, home: Path) -> None:
    """And tells the same."""
    (done,) = take(source(tmp_path, ROWS), home, dry_run=True)
    assert done.state is ImportState.NEW
    assert done.bytes > 0
    assert not home.exists()
    take(source(tmp_path, ROWS[:3]), home)
    before = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    (done,) = take(source(tmp_path, ROWS), home, dry_run=True)
    assert done.state is ImportState.GROWN
    assert {path: path.read_bytes() for path in home.rglob("*") if path.is_file()} == before


def test_source_in_which_nobody_spoke_makes_no_thread(tmp_path: Path, home: Path) -> None:
    """Snapshots and summaries alone are no conversation."""
    (done,) = take(source(tmp_path, [{"type": "file-history-snapshot", "messageId": "m"}]), home)
    assert done.state is ImportState.EMPTY
    assert not [*home.rglob("*.jsonl")]
    assert not [*home.rglob("*.tmp")]


def test_records_without_counterpart_are_kept_as_they_are(tmp_path: Path, home: Path) -> None:
    """Each once, and counted by its kind."""
    odd = {"type": "mode", "mode": "plan", "sessionId": "x", "deep": [1, {"a": None}]}
    (done,) = take(source(tmp_path, [*ROWS, odd, odd]), home)
    kept = [each["payload"] for each in records(home, done.thread_id) if each["type"] == "x_source"]
    assert [each["record"] for each in kept] == [odd, odd]
    assert done.kept == {"mode": 2}


@pytest.mark.case("B01")
def test_damaged_lines_hide_no_others(tmp_path: Path, home: Path) -> None:
    """Torn, NUL, a scalar, fused with padding: each is named with its line, and the rest is imported."""
    lines = [json.dumps(each).encode() for each in ROWS]
    lines[1:1] = [b'{"type":"user","mess', b"\0" * 40, b"42", b"\xff\xfe"]
    path = tmp_path / "session.jsonl"
    path.write_bytes(b"\n".join(lines) + b'\n{"type":"assis')
    (done,) = take(ClaudeCodeReader(str(path)), home)
    assert [each.line for each in done.damaged] == [2, 3, 4, 5, 11]
    assert [what for what in said(home, done.thread_id) if what[0] in ("user", "agent")] == [
        ("user", "run the tests"),
        ("agent", "all green"),
        ("user", "thanks"),
        ("agent", "welcome"),
    ]


@pytest.mark.guarantee("G4")
def test_thread_that_is_written_is_left_alone(tmp_path: Path, home: Path) -> None:
    """Somebody goes on with it: the import names them."""
    (done,) = take(source(tmp_path, ROWS[:4]), home)
    path = Home(home).find_thread(done.thread_id)
    before = path.read_bytes()
    lock = ThreadLocks(home).acquire(done.thread_id)
    try:
        with pytest.raises(ActiveWriter):
            take(source(tmp_path, ROWS), home)
    finally:
        lock.release()
    assert path.read_bytes() == before


def test_model_would_see_what_it_saw(tmp_path: Path, home: Path) -> None:
    """Turns that were taken back are not in it."""
    rows = [
        *ROWS[:4],
        claude(5, "user", "delete everything"),
        claude(6, "assistant", text("no"), message={"stop_reason": "end_turn"}),
        claude(7, "user", "thanks", parent=4),
        claude(8, "assistant", text("welcome"), message={"stop_reason": "end_turn"}),
    ]
    (done,) = take(source(tmp_path, rows), home)
    assert ("back", 1) in said(home, done.thread_id)
    context = json.dumps([json.loads(bytes(each)) for each in _model_items(home, done.thread_id)])
    assert "delete everything" not in context
    assert "thanks" in context


def _model_items(home: Path, thread_id: str) -> list[bytes]:
    path = Home(home).find_thread(thread_id)
    return [bytes(each.payload) for each in load_model_context(path, Home(home)).items]


def test_moved_source_is_the_same_whatever_it_holds(tmp_path: Path, home: Path) -> None:
    """Where it lay is no part of what it says: kept records, too."""
    (done,) = take(source(tmp_path, [*ROWS, {"type": "mode", "mode": "plan"}]), home)
    os.rename(tmp_path / "session.jsonl", tmp_path / "elsewhere.jsonl")
    (again,) = take(ClaudeCodeReader(str(tmp_path / "elsewhere.jsonl")), home)
    assert (again.state, again.thread_id) == (ImportState.UNCHANGED, done.thread_id)


def test_source_that_tells_no_time_is_one_thread_however_often_it_is_written(
    tmp_path: Path, home: Path
) -> None:
    """The time of the file is no time of the conversation."""
    rows = [{key: value for key, value in each.items() if key != "timestamp"} for each in ROWS]
    (first,) = take(source(tmp_path, rows[:4]), home)
    reader = source(tmp_path, rows)
    os.utime(reader.path, (9e8, 9e8))
    (second,) = take(reader, home)
    assert (second.state, second.thread_id) == (ImportState.GROWN, first.thread_id)


def test_compressed_thread_is_expanded_only_to_grow(tmp_path: Path, home: Path) -> None:
    """What was touched only is compared as it lies."""
    (done,) = take(source(tmp_path, ROWS[:4]), home)
    compress_thread(Place.of(Home(home)), done.thread_id, older_than_seconds=0)
    reader = source(tmp_path, ROWS[:4])
    os.utime(reader.path, (1, 1))
    assert take(reader, home)[0].state is ImportState.UNCHANGED
    assert str(Home(home).find_thread(done.thread_id)).endswith(".zst")
    assert take(source(tmp_path, ROWS), home, dry_run=True)[0].state is ImportState.GROWN
    assert take(source(tmp_path, ROWS), home)[0].state is ImportState.GROWN
    assert said(home, done.thread_id)[-2] == ("agent", "welcome")


def test_name_that_was_given_here_stays(tmp_path: Path, home: Path) -> None:
    """A source that grows names its thread no more."""
    title = {"type": "custom-title", "customTitle": "theirs"}
    (done,) = take(source(tmp_path, [*ROWS[:4], title]), home)
    index = SessionIndex(home)
    assert index.names()[done.thread_id] == "theirs"
    index.append(done.thread_id, "ours")
    take(source(tmp_path, [*ROWS[:4], title, *ROWS[4:]]), home)
    assert index.names()[done.thread_id] == "ours"


@pytest.mark.parametrize("value", ["[" * 120 + "]" * 120, "NaN", '"\\ud800"'])
def test_record_that_is_hard_to_record_hides_no_other(tmp_path: Path, home: Path, value: str) -> None:
    """Nested deeply, no JSON, a lone surrogate: kept, or named."""
    reader = source(tmp_path, ROWS[:4])
    with open(reader.path, "a") as file:
        file.write(f'{{"type":"mode","value":{value}}}\n')
    (done,) = take(reader, home)
    assert done.state is ImportState.NEW
    assert len(done.damaged) + done.kept.get("mode", 0) == 1
    assert ("agent", "all green") in said(home, done.thread_id)
