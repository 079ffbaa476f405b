"""The table of a thread's calls: every call of the whole chain, with its verdict, address and time."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.thread_store.histories import Script, base_of, uuid, write_thread
from thread_store.chain.lineage import Lineage
from thread_store.folding.thread_folding import fold_lineage
from thread_store.home import Home
from thread_store.resume.call_table import ENDED_CALLS_LISTED, CallTable, list_calls

THREAD, CHILD = uuid(0xC1), uuid(0xC2)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def table_of(path: Path, home: Home, *, every: bool = False, with_tail: bool = True) -> CallTable:
    with Lineage.resolve(path, home) as lineage:
        return list_calls(lineage, every=every, with_tail=with_tail)


def ids(table: CallTable) -> tuple[list[str], list[str]]:
    return [each.call.call_id for each in table.open], [each.call.call_id for each in table.ended]


def test_open_calls_stand_apart_from_those_that_ended(home: Home) -> None:
    """A request without an output is open; the others are in the order of their ends."""
    script = Script()
    script.start("t1")
    for call_id in ("a", "b", "c"):
        script.call(call_id)
    script.output("c")
    script.output("a")
    table = table_of(write_thread(home, THREAD, script.bytes), home)
    assert ids(table) == (["b"], ["c", "a"])
    assert [each.call.call_id for each in table.blocking] == ["b"]
    assert table.whole
    assert not table.damage


def test_call_knows_when_and_where_it_was_asked_for(home: Home) -> None:
    """The number and the byte of its request, and the times of its first and last records."""
    script = Script()
    script.start("t1")
    payload = {"type": "function_call", "name": "shell", "arguments": "{}", "call_id": "a"}
    script.add("response_item", payload, stamp="2026-03-04T05:06:08.000Z")
    output = {"type": "function_call_output", "call_id": "a", "output": "ok"}
    script.add("response_item", output, stamp="2026-03-04T05:06:09.000Z")
    path = write_thread(home, THREAD, script.bytes)
    (listed,) = table_of(path, home).ended
    assert (listed.requested_at, listed.last_at) == ("2026-03-04T05:06:08.000Z", "2026-03-04T05:06:09.000Z")
    assert (listed.call.request_ordinal, listed.request_path) == (2, str(path))
    assert path.read_bytes()[listed.call.request_offset or 0 :].startswith(script.lines[1])


def forked(home: Home, *, child_body: bytes = b"") -> tuple[Path, Path, Script]:
    """A thread with an open call, and one that rests on it."""
    script = Script()
    script.turn(1, calls=["a"])
    script.start("t2")
    script.call("b")
    parent = write_thread(home, THREAD, script.bytes)
    assert script.next_ordinal is not None
    base = base_of(parent, THREAD, parent.stat().st_size, script.next_ordinal)
    child = write_thread(home, CHILD, child_body, ordinal=script.next_ordinal, history_base=base)
    return parent, child, script


def test_calls_of_older_files_are_in_the_table(home: Home) -> None:
    """A call that was asked for in the base and answered in the child is one call of both files."""
    body = Script(None)
    parent, child, script = forked(home)
    body.next_ordinal = (script.next_ordinal or 0) + 1
    body.output("b")
    body.call("c")
    child.write_bytes(child.read_bytes() + body.bytes)
    table = table_of(child, home)
    assert ids(table) == (["c"], ["a", "b"])
    of_b, of_c = table.ended[1], table.open[0]
    assert (of_b.request_path, of_b.last_path) == (str(parent), str(child))
    assert parent.read_bytes()[of_b.call.request_offset or 0 :].startswith(script.lines[-1])
    assert child.read_bytes()[of_b.call.last_offset or 0 :].startswith(body.lines[0])
    assert of_c.request_path == str(child)


def test_damage_is_found_where_it_is(home: Home) -> None:
    """In the file in which it stands, by its bytes there."""
    parent, child, _ = forked(home)
    at = child.stat().st_size
    child.write_bytes(child.read_bytes() + b"rubbish\n")
    table = table_of(child, home)
    (found,) = table.damage
    assert (found.path, found.damage.offset, found.damage.end) == (str(child), at, at + 8)
    assert found.blocks
    assert parent.exists()


def test_lost_base_is_damage(home: Home) -> None:
    """What it held is not known, so a call may have stood there."""
    parent, child, _ = forked(home)
    parent.unlink()
    table = table_of(child, home)
    assert not table.whole
    assert [each.damage.reason for each in table.damage] == ["base_missing"]
    assert table.damage[0].path is None
    assert table.damage[0].blocks


@pytest.mark.parametrize("with_tail", [True, False])
def test_unfinished_line_is_damage_unless_somebody_writes_it(home: Home, with_tail: bool) -> None:
    """What Codex never finished writing may have been the request of a call that ran."""
    path = write_thread(home, THREAD, b'{"timestamp":')
    table = table_of(path, home, with_tail=with_tail)
    assert [each.damage.reason for each in table.damage] == ["torn_tail"] * with_tail


@pytest.mark.guarantee("G7")
@pytest.mark.parametrize("extra", [0, 1, 5])
def test_ended_calls_are_bounded_unless_all_are_asked_for(home: Home, extra: int) -> None:
    """The newest of them, and whether there are more is told."""
    script = Script()
    names = [f"c{number}" for number in range(ENDED_CALLS_LISTED + extra)]
    script.turn(1, calls=names)
    path = write_thread(home, THREAD, script.bytes)
    table = table_of(path, home)
    assert (ids(table)[1], table.omitted) == (names[extra:], extra > 0)
    everything = table_of(path, home, every=True)
    assert (ids(everything)[1], everything.omitted) == (names, False)


def test_times_are_known_behind_many_calls(home: Home) -> None:
    """Letting go of times that nobody asks for any more keeps those of the calls that are listed."""
    script = Script()
    script.start("t0")
    script.call("first")
    script.turn(1, calls=[f"c{number}" for number in range(1200)])
    table = table_of(write_thread(home, THREAD, script.bytes), home)
    assert len(table.ended) == ENDED_CALLS_LISTED
    assert all(each.requested_at and each.last_at for each in (*table.open, *table.ended))
    assert table.open[0].call.call_id == "first"


def test_more_open_calls_than_a_resume_keeps_are_damage(home: Home) -> None:
    """All are listed where all are asked for, and the damage is told as the resume has it."""
    script = Script()
    script.start("t0")
    for number in range(515):
        script.call(f"c{number}")
    path = write_thread(home, THREAD, script.bytes)
    assert len(table_of(path, home).open) == 512
    everything = table_of(path, home, every=True)
    assert len(everything.open) == 515
    assert [each.damage.reason for each in everything.damage] == ["too_many_calls"]


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["call", "output", "started", "completed", "aborted", "retry", "rubbish", "turn"]),
        st.sampled_from("abc"),
    ),
    max_size=25,
)


@given(steps=_STEPS)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_open_calls_are_those_of_the_resume(tmp_path: Path, steps: list[tuple[str, str]]) -> None:
    """Whatever stands in the file, the table and the fold that a resume is made from agree."""
    home = Home(tmp_path / "home")
    script = Script()
    for what, call_id in steps:
        if what == "call":
            script.call(call_id)
        elif what == "output":
            script.output(call_id)
        elif what == "retry":
            script.add("x_call", {"call_id": call_id, "state": "resolved", "outcome": "retry"})
        elif what == "rubbish":
            script.lines.append(b"rubbish\n")
        elif what == "turn":
            script.start(f"t{call_id}")
        else:
            script.add("x_call", {"call_id": call_id, "state": what})
    path = write_thread(home, THREAD, script.bytes)
    with Lineage.resolve(path, home) as lineage:
        fold = fold_lineage(lineage, deep=True).fold
        tables = [list_calls(lineage), list_calls(lineage, every=True)]
    for table in tables:
        assert [each.call for each in table.open] == fold.calls.open_calls()
        assert [each.damage for each in table.damage] == fold.damage.ranges
