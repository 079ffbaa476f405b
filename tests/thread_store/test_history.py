"""Histories that lie in several files, damaged ones, and bytes that came too late."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import NotARollout
from tests.thread_store.histories import Script, base_of, dump, meta, place_of, turns, uuid, write_thread
from thread_store.chain.history import LateBytes, ThreadHistory, read_history
from thread_store.home import Home

SOURCE, CHILD, OTHER = uuid(0x51), uuid(0x52), uuid(0x53)
TAKEN = {"pid": 4711, "host": "elsewhere", "at": "2026-03-04T05:06:07.000Z"}


@pytest.fixture
def store_home(home: Path) -> Home:
    return Home(home)


def source_of(history: ThreadHistory) -> bytes:
    """The lines of its records, but for its meta."""
    return b"".join(
        (each.line.source or b"") + b"\n" for each in history.records[1:] if each.line is not None
    )


def write_child(home: Home, source: Path, body: bytes, **keys: Any) -> Path:
    """A rollout that rests on all of another one."""
    data = source.read_bytes()
    end = data.count(b'"ordinal":')
    base = base_of(source, SOURCE, len(data), end)
    return write_thread(home, CHILD, body, ordinal=end, history_base=base, **keys)


def test_history_of_several_files_is_read_in_order(store_home: Home) -> None:
    """The metas of the older ones are left out, the oldest file stands first."""
    source = write_thread(store_home, SOURCE, turns(2))
    child = write_child(store_home, source, turns(1, first=3, ordinal=100))
    history = read_history(child, store_home)
    assert (history.thread_id, history.rollouts) == (CHILD, (str(source), str(child)))
    assert source_of(history) == turns(2) + turns(1, first=3, ordinal=100)
    assert (history.problem, history.late, history.warnings) == (None, (), [])


def test_reading_changes_nothing(store_home: Home) -> None:
    """Neither bytes nor times, and no file appears."""
    source = write_thread(store_home, SOURCE, turns(1) + b'{"torn')
    os.utime(source, (1, 1))
    before = sorted(store_home.path.rglob("*"))
    read_history(source, store_home)
    assert sorted(store_home.path.rglob("*")) == before
    assert source.stat().st_mtime == 1
    assert source.read_bytes().endswith(b'{"torn')


@pytest.mark.guarantee("G5")
def test_damaged_line_hides_no_other(store_home: Home) -> None:
    """It is named with its place, in whichever file of the chain it stands."""
    script = Script()
    script.turn(1)
    source = write_thread(store_home, SOURCE, script.bytes)
    damaged = source.read_bytes().replace(b'"answer 1"', b'"ans\xffwer1"')
    source.write_bytes(damaged)
    child = write_child(store_home, source, turns(1, first=2, ordinal=100))
    history = read_history(child, store_home)
    [warned] = history.warnings
    assert damaged[warned.offset : warned.offset + warned.size].startswith(b'{"timestamp"')
    assert b"\xff" in damaged[warned.offset : warned.offset + warned.size]
    assert source_of(history).count(b"\n") == len(damaged.splitlines()) - 2 + turns(1).count(b"\n")


@pytest.mark.guarantee("G5")
def test_missing_base_is_a_problem_and_its_child_is_read(store_home: Home) -> None:
    """What the child holds itself is there, and it is told what isn't."""
    source = write_thread(store_home, SOURCE, turns(1))
    child = write_child(store_home, source, turns(1, first=2, ordinal=100))
    source.unlink()
    history = read_history(child, store_home)
    assert history.problem is not None
    assert SOURCE in history.problem.message
    assert source_of(history) == turns(1, first=2, ordinal=100)
    assert history.rollouts == (str(child),)


def test_items_are_what_was_recorded(store_home: Home) -> None:
    """Without the meta and without what writers note of themselves."""
    note = dump({"timestamp": "2026-03-04T05:06:07.000Z", "type": "x_writer", "payload": {"event": "opened"}})
    path = write_thread(store_home, SOURCE, note + b"\n" + turns(1))
    kinds = [item.record_type for item in read_history(path, store_home).items()]
    assert len(kinds) == turns(1).count(b"\n")
    assert not {"session_meta", "x_writer"} & set(kinds)


def test_rollout_without_a_meta_is_read_by_itself(store_home: Home) -> None:
    """Its id is the one of its name, if none stands in it."""
    path = place_of(store_home, SOURCE)
    path.write_bytes(turns(1))
    history = read_history(path, store_home)
    assert len(history.records) == turns(1).count(b"\n")
    assert history.rollouts == (str(path),)


@pytest.mark.parametrize(
    "data", [b"", b"\n\n", b'{"torn', b"no rollout\n"], ids=["empty", "blank", "torn", "text"]
)
def test_file_without_a_record_is_no_history(store_home: Home, data: bytes) -> None:
    """It is refused with its path."""
    path = place_of(store_home, SOURCE)
    path.write_bytes(data)
    with pytest.raises(NotARollout) as caught:
        read_history(path, store_home)
    assert str(caught.value.path) == str(path)


@pytest.mark.parametrize("taken", [True, False], ids=["taken over", "reverted"])
def test_bytes_behind_the_base_are_late_if_it_was_taken_over(store_home: Home, taken: bool) -> None:
    """Behind a revert stand the turns that it took back."""
    source = write_thread(store_home, SOURCE, turns(1))
    end = source.stat().st_size
    child = write_child(store_home, source, turns(1, first=2), **({"x_takeover": TAKEN} if taken else {}))
    assert read_history(child, store_home).late == ()
    with source.open("ab") as file:
        file.write(b"too late\n" * 3)
    history = read_history(child, store_home)
    assert history.late == ((LateBytes(str(source), end, 27),) if taken else ())
    assert b"too late" not in source_of(history)


def test_late_bytes_of_an_ancestor_are_named_for_its_forks(store_home: Home) -> None:
    """A fork that rests on a thread that was taken over has that thread's history, and its late bytes."""
    source = write_thread(store_home, SOURCE, turns(1))
    child = write_child(store_home, source, b"", x_takeover=TAKEN)
    data = child.read_bytes()
    end = (data + source.read_bytes()).count(b'"ordinal":')
    fork = place_of(store_home, OTHER)
    fork.write_bytes(meta(OTHER, end, history_base=base_of(child, CHILD, len(data), end)) + turns(1, first=3))
    with source.open("ab") as file:
        file.write(b"too late\n")
    history = read_history(fork, store_home)
    assert [each.path for each in history.late] == [str(source)]
    assert history.problem is None


def test_late_bytes_are_counted_in_a_line_that_is_torn(store_home: Home) -> None:
    """Whatever stands behind the base, whole lines or not."""
    source = write_thread(store_home, SOURCE, turns(1))
    child = write_child(store_home, source, b"", x_takeover=TAKEN)
    with source.open("ab") as file:
        file.write(b'{"time')
    [late] = read_history(child, store_home).late
    assert late.size_bytes == 6


def test_rollout_whose_meta_is_no_object_is_read(store_home: Home) -> None:
    """Its records are there; whose they are isn't known."""
    path = place_of(store_home, SOURCE)
    path.write_bytes(b'{"timestamp":"","type":"session_meta","payload":"x"}\n' + turns(1))
    history = read_history(path, store_home)
    assert source_of(history) == turns(1)
    assert history.meta.id is None
