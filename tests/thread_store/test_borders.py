"""Where fork points are in a thread, and which are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import ForkPointInvalid
from tests.thread_store.histories import Script, base_of, meta, turns, uuid, write_thread
from thread_store.chain import open_rollout
from thread_store.chain.borders import Border, resolve_border
from thread_store.chain.call_pairs import find_open_call
from thread_store.chain.fork_point import ForkPoint
from thread_store.chain.lineage import Lineage, Place
from thread_store.home import Home

A, B = uuid(0xA), uuid(0xB)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def border(path: Path, point: ForkPoint, home: Home) -> Border:
    return resolve_border(point, Lineage.resolve(path, home))


def taken(path: Path, point: ForkPoint, home: Home) -> bytes:
    """The bytes of the (only) file that a point takes."""
    return path.read_bytes()[: border(path, point, home).offset]


# The end


@pytest.mark.parametrize("tail", [b"", b'{"timestamp":"x"', b'{"whole":1}', b"\0" * 300_000, b"\xf0\x9f"])
def test_end_is_behind_the_last_whole_line(home: Home, tail: bytes) -> None:
    """What was never finished is no part of a fork, however long it is."""
    whole = meta(A) + turns(2)
    path = write_thread(home, A, turns(2) + tail)
    found = border(path, ForkPoint.end(), home)
    assert path.read_bytes()[: found.offset] == whole
    assert found.end_ordinal == whole.count(b'"ordinal"')


def test_end_takes_an_open_call(home: Home) -> None:
    """A fork at the end may hold a call without result: there it is uncertain."""
    script = Script()
    script.start()
    script.call("c1")
    path = write_thread(home, A, script.bytes)
    assert taken(path, ForkPoint.end(), home) == path.read_bytes()


def test_end_of_a_meta_alone_is_behind_it(home: Home) -> None:
    """A thread in which nothing was recorded yet has one border."""
    path = write_thread(home, A, b"")
    for point in (
        ForkPoint.end(),
        ForkPoint.turn(0),
        ForkPoint.before_ordinal(0),
        ForkPoint.before_ordinal(1),
    ):
        assert border(path, point, home) == Border(Place(0, path.stat().st_size), 1)


def test_ordinal_at_the_end_passes_over_own_and_damaged_lines(home: Home) -> None:
    """Own records carry no number, and a damaged line hides none."""
    script = Script()
    script.turn(1)
    newest = script.next_ordinal
    script.add("x_check", {"check_id": "k", "state": "passed"})
    path = write_thread(home, A, script.bytes + b"\0\0\0\n\n")
    assert border(path, ForkPoint.end(), home).end_ordinal == newest


# Turns


@pytest.mark.case("B72")
@pytest.mark.parametrize("kind", ["task_started", "turn_started"])
def test_turns_begin_with_task_started(home: Home, kind: str) -> None:
    """The first n turns end where the next one begins; what stands between two belongs to the earlier."""
    script = Script()
    starts = []
    for number in range(3):
        starts.append(sum(map(len, script.lines)))
        script.start(f"t{number}", kind)
        script.user(f"q{number}")
        script.user("and by the way")
        script.complete(f"t{number}")
        script.add("x_writer", {"event": "closed"})
    path = write_thread(home, A, script.bytes)
    head = len(meta(A))
    assert [border(path, ForkPoint.turn(n), home).offset for n in range(4)] == [
        head,
        head + starts[1],
        head + starts[2],
        path.stat().st_size,
    ]
    assert [border(path, ForkPoint.before_turn(n + 1), home).offset - head for n in range(3)] == starts


@pytest.mark.case("B72")
@pytest.mark.parametrize(
    "point", [ForkPoint.turn(4), ForkPoint.before_turn(4), ForkPoint.turn(10**9)], ids=str
)
def test_turn_that_is_not_there_is_refused(home: Home, point: ForkPoint) -> None:
    """The error says how many turns there are."""
    path = write_thread(home, A, turns(3))
    with pytest.raises(ForkPointInvalid, match="3 turns") as caught:
        border(path, point, home)
    assert caught.value.path == str(path)


def test_without_task_started_a_user_message_begins_a_turn(home: Home) -> None:
    """All records of what the user typed are one beginning, and context put before the model is none."""
    script = Script(None)
    script.response("user", "<environment_context>…</environment_context>")
    starts = []
    for number in range(3):
        starts.append(len(meta(A, None)) + len(script.bytes))
        script.user(f"q{number}")
        script.response("assistant", "done")
    path = write_thread(home, A, script.bytes, ordinal=None)
    found = [border(path, ForkPoint.before_turn(n), home) for n in (1, 2, 3)]
    assert [each.offset for each in found] == starts
    assert found[0].end_ordinal is None


def test_event_before_the_models_form_begins_the_turn(home: Home) -> None:
    """Whichever record of the fact comes first is in the turn; the same text typed twice is two turns."""
    script = Script(None)
    starts = []
    for _ in range(2):
        starts.append(len(meta(A, None)) + len(script.bytes))
        script.event("user_message", message="again")
        script.response("user", "again")
    path = write_thread(home, A, script.bytes, ordinal=None)
    assert [border(path, ForkPoint.before_turn(n), home).offset for n in (1, 2)] == starts


def test_rollback_takes_turns_of_a_legacy_thread_out(home: Home) -> None:
    """A turn in which nobody typed isn't counted by the rollback, and goes with the one before it."""
    script = Script(None)
    for number in (1, 2):
        script.turn(number)
    script.start("compaction")
    script.complete("compaction")
    script.event("thread_rolled_back", num_turns=1)
    third = len(meta(A, None)) + len(script.bytes)
    script.turn(3)
    path = write_thread(home, A, script.bytes, ordinal=None)
    assert border(path, ForkPoint.turn(1), home).offset == third
    assert border(path, ForkPoint.turn(2), home).offset == path.stat().st_size
    with pytest.raises(ForkPointInvalid, match="2 turns"):
        border(path, ForkPoint.turn(3), home)


def test_rollback_in_a_paginated_thread_changes_nothing(home: Home) -> None:
    """As Codex has it: there the turns stay."""
    script = Script()
    script.turn(1)
    script.event("thread_rolled_back", num_turns=1)
    script.turn(2)
    path = write_thread(home, A, script.bytes)
    assert border(path, ForkPoint.turn(2), home).offset == path.stat().st_size


# Offsets and ordinals


@pytest.mark.case("B72")
def test_every_offset_is_a_border_or_refused(home: Home) -> None:
    """Only the beginnings of lines, and the end, can be taken."""
    script = Script()
    script.turn(1)
    path = write_thread(home, A, script.bytes + b"{torn")
    data = path.read_bytes()
    head, borders = len(meta(A)), {0}
    borders |= {at + 1 for at, byte in enumerate(data) if byte == 10}
    for offset in range(len(data) + 2):
        if offset in borders:
            assert border(path, ForkPoint.before_offset(offset), home).offset == max(offset, head)
        else:
            with pytest.raises(ForkPointInvalid):
                border(path, ForkPoint.before_offset(offset), home)


def test_border_before_an_ordinal_is_before_its_line(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each number finds its line, whatever the file is searched in."""
    monkeypatch.setattr("thread_store.chain.borders.PROBE_BYTES", 64)
    script = Script()
    for number in range(12):
        script.turn(number)
        script.add("x_state", {"from": "a", "to": "b"})
    path = write_thread(home, A, script.bytes)
    data = path.read_bytes()
    for ordinal in range(1, script.next_ordinal or 0):
        offset = border(path, ForkPoint.before_ordinal(ordinal), home).offset
        assert json.loads(data[offset:].split(b"\n")[0])["ordinal"] == ordinal
    assert border(path, ForkPoint.before_ordinal(script.next_ordinal or 0), home).offset == len(data)


def test_ordinals_out_of_order_are_found_all_the_same(home: Home) -> None:
    """Another program's numbers may step back: then every line is looked at."""
    lines = [meta(A)]
    for ordinal in (7, 8, 9, 1, 2, 3):
        script = Script(ordinal)
        script.response("assistant", f"said {ordinal}")
        lines += script.lines
    path = write_thread(home, A, b"".join(lines[1:]))
    for place, ordinal in enumerate((7, 8, 9, 1, 2, 3), 1):
        offset = border(path, ForkPoint.before_ordinal(ordinal), home).offset
        assert offset == sum(map(len, lines[:place]))


@pytest.mark.parametrize("ordinal", [100, 10**30])
def test_ordinal_that_is_not_there_is_refused(home: Home, ordinal: int) -> None:
    """So is one of a legacy thread, which has none."""
    numbered = write_thread(home, A, turns(1))
    legacy = write_thread(home, B, turns(1, ordinal=None), ordinal=None)
    for path in (numbered, legacy):
        with pytest.raises(ForkPointInvalid, match="no record has that ordinal"):
            border(path, ForkPoint.before_ordinal(ordinal), home)


@pytest.mark.case("B73")
def test_points_near_the_end_of_a_large_file_read_little(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """End, newest checkpoint, offset and ordinal read what is around the border, not the file."""
    script = Script()
    for number in range(4000):
        script.turn(number)
    script.start("last")
    script.compacted("short")
    script.complete("last")
    path = write_thread(home, A, script.bytes)
    size, read = path.stat().st_size, 0
    original = open_rollout.OpenRollout.read_at

    def counted(self: open_rollout.OpenRollout) -> Callable[[int, int], bytes]:
        def read_at(size: int, offset: int) -> bytes:
            nonlocal read
            data = original.fget(self)(size, offset)  # type: ignore[attr-defined]
            read += len(data)
            return data

        return read_at

    monkeypatch.setattr(open_rollout.OpenRollout, "read_at", property(counted))
    newest = (script.next_ordinal or 0) - 1
    for point in (
        ForkPoint.end(),
        ForkPoint.at_checkpoint(),
        ForkPoint.before_ordinal(newest // 3),
        ForkPoint.before_offset(len(meta(A))),
    ):
        read = 0
        border(path, point, home)
        assert read < size / 2, point


# Checkpoints


@pytest.mark.case("B72")
def test_checkpoints_are_counted_from_both_ends(home: Home) -> None:
    """The border is right behind the `compacted` record."""
    script = Script()
    ends = []
    for number in range(3):
        script.turn(number)
        script.start("c")
        script.compacted(f"summary {number}")
        ends.append(len(meta(A)) + len(script.bytes))
        script.complete("c")
    path = write_thread(home, A, script.bytes)
    assert [border(path, ForkPoint.at_checkpoint(n), home).offset for n in (1, 2, 3)] == ends
    assert [border(path, ForkPoint.at_checkpoint(n), home).offset for n in (-3, -2, -1)] == ends
    for number in (4, -4):
        with pytest.raises(ForkPointInvalid, match="no such checkpoint"):
            border(path, ForkPoint.at_checkpoint(number), home)


# Calls


def call_script() -> tuple[Script, list[int]]:
    """A turn with two calls whose results come in the other order, and the border before each line."""
    script = Script()
    script.turn(0)
    script.start("t1")
    script.user("go")
    for step in (script.call, script.call, script.output, script.output):
        step({0: "c1", 1: "c2", 2: "c2", 3: "c1"}[sum(b"call_id" in each for each in script.lines)])
    script.complete("t1")
    script.turn(2)
    borders = [len(meta(A))]
    for each in script.lines:
        borders.append(borders[-1] + len(each))
    return script, borders


@pytest.mark.case("B72")
@pytest.mark.parametrize("track", ["response_item", "x_call"])
def test_border_between_call_and_result_is_refused(home: Home, track: str) -> None:
    """The error names a call and the nearest borders on both sides, which can be taken."""
    script, borders = call_script()
    if track == "x_call":
        script.lines = [each.replace(b'"response_item"', b'"x_call"') for each in script.lines]
        script.lines = [_as_own_call(each) for each in script.lines]
        borders = [len(meta(A))]
        for each in script.lines:
            borders.append(borders[-1] + len(each))
    path = write_thread(home, A, script.bytes)
    calls = [at for at, each in enumerate(script.lines) if b'"call_id"' in each]
    for at, offset in enumerate(borders):
        point = ForkPoint.before_offset(offset)
        if not calls[0] < at <= calls[-1]:
            assert border(path, point, home).offset == offset
            continue
        with pytest.raises(ForkPointInvalid, match=r"between the call 'c[12]' and its result") as caught:
            border(path, point, home)
        assert caught.value.call_id in ("c1", "c2")
        assert caught.value.nearest == (
            ForkPoint.before_offset(borders[calls[0]]),
            ForkPoint.before_offset(borders[calls[-1] + 1]),
        )


def _as_own_call(data: bytes) -> bytes:
    value = json.loads(data)
    if value["type"] == "x_call" and "call_id" in value["payload"]:
        state = "started" if value["payload"]["type"] == "function_call" else "failed"
        value["payload"] = {"call_id": value["payload"]["call_id"], "state": state}
    elif value["type"] == "x_call":
        value["type"] = "response_item"
    return json.dumps(value).encode() + b"\n"


def test_checkpoint_inside_a_call_is_refused(home: Home) -> None:
    """A compaction while a tool runs is no place to fork."""
    script = Script()
    script.start()
    script.call("c1")
    script.compacted("in between")
    script.output("c1")
    path = write_thread(home, A, script.bytes)
    with pytest.raises(ForkPointInvalid, match="'c1'"):
        border(path, ForkPoint.at_checkpoint(), home)


def test_call_of_the_turn_under_way_counts_as_open(home: Home) -> None:
    """Its result will come: only `end` takes it, and only what stands before it is near."""
    script = Script()
    script.turn(1)
    script.start("t2")
    before = len(meta(A)) + len(script.bytes)
    script.call("c9")
    script.response("assistant", "meanwhile")
    path = write_thread(home, A, script.bytes)
    for point in (ForkPoint.turn(2), ForkPoint.before_ordinal((script.next_ordinal or 0) - 1)):
        with pytest.raises(ForkPointInvalid, match="'c9'") as caught:
            border(path, point, home)
        assert caught.value.nearest == (ForkPoint.before_offset(before),)
    assert border(path, ForkPoint.end(), home).offset == path.stat().st_size


def test_call_that_a_later_turn_never_answered_is_closed(home: Home) -> None:
    """A crash left it; the next turn began without its result, so none will come."""
    script = Script()
    script.start("t1")
    script.call("lost")
    border_offset = len(meta(A)) + len(script.bytes)
    script.turn(2, calls=["c2"])
    path = write_thread(home, A, script.bytes)
    assert border(path, ForkPoint.turn(1), home).offset == border_offset
    assert border(path, ForkPoint.turn(2), home).offset == path.stat().st_size


def test_results_without_a_call_are_no_pair(home: Home) -> None:
    """An orphan, or a second result, parts nothing; an id that is used again is another call."""
    script = Script()
    script.start()
    script.call("c")
    script.output("c")
    first = len(meta(A)) + len(script.bytes)
    script.output("c")
    script.output("orphan")
    script.call("c")
    inside = len(meta(A)) + len(script.bytes)
    script.output("c")
    script.complete()
    path = write_thread(home, A, script.bytes)
    assert border(path, ForkPoint.before_offset(first), home).offset == first
    with pytest.raises(ForkPointInvalid, match="'c'"):
        border(path, ForkPoint.before_offset(inside), home)


def test_late_result_in_the_turn_behind_the_border_counts(home: Home) -> None:
    """A border where a turn begins parts a call from a result that comes within that turn."""
    script = Script()
    script.start("t1")
    script.call("slow")
    script.complete("t1")
    at = len(meta(A)) + len(script.bytes)
    script.start("t2")
    script.output("slow")
    script.complete("t2")
    path = write_thread(home, A, script.bytes)
    with pytest.raises(ForkPointInvalid, match="'slow'"):
        border(path, ForkPoint.before_offset(at), home)


@given(
    st.lists(st.tuples(st.sampled_from(["start", "call", "output", "end"]), st.integers(0, 3)), max_size=25)
)
def test_nearest_borders_are_always_possible(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    """Whatever is refused, the borders that the error names are not, and none lies nearer."""
    home = Home(tmp_path_factory.mktemp("home"))
    script = Script()
    for name, number in steps:
        if name == "start":
            script.start()
        elif name == "end":
            script.complete()
        else:
            getattr(script, name)(f"c{number}")
    path = write_thread(home, A, script.bytes)
    lineage = Lineage.resolve(path, home)
    offsets = [len(meta(A))]
    for each in script.lines:
        offsets.append(offsets[-1] + len(each))
    possible = [each for each in offsets if find_open_call(lineage, Place(0, each)) is None]
    for offset in set(offsets) - set(possible):
        with pytest.raises(ForkPointInvalid) as caught:
            resolve_border(ForkPoint.before_offset(offset), lineage)
        nearest = [each.value for each in caught.value.nearest]
        assert set(nearest) <= set(possible)
        assert max(each for each in possible if each < offset) == nearest[0]


# Chains


def test_points_reach_into_the_base(home: Home) -> None:
    """Turns and ordinals count through the whole history; the start of a child is the end of its base."""
    parent = write_thread(home, A, turns(3))
    data = parent.read_bytes()
    cut = border(parent, ForkPoint.turn(2), home)
    base = base_of(parent, A, cut.offset, cut.end_ordinal or 0)
    child = write_thread(
        home,
        B,
        turns(1, first=9, ordinal=(cut.end_ordinal or 0) + 1),
        ordinal=cut.end_ordinal,
        history_base=base,
    )
    assert border(child, ForkPoint.turn(2), home) == Border(Place(0, cut.offset), cut.end_ordinal)
    assert border(child, ForkPoint.turn(1), home) == border(parent, ForkPoint.turn(1), home)
    assert border(child, ForkPoint.turn(0), home) == border(parent, ForkPoint.turn(0), home)
    assert border(child, ForkPoint.turn(3), home).place == Place(1, child.stat().st_size)
    assert border(child, ForkPoint.before_ordinal(5), home) == border(
        parent, ForkPoint.before_ordinal(5), home
    )
    assert border(child, ForkPoint.before_ordinal(cut.end_ordinal or 0), home).place == Place(0, cut.offset)
    assert border(child, ForkPoint.before_offset(0), home).place == Place(0, cut.offset)
    first = len(meta(A)) + data[len(meta(A)) :].index(b"\n") + 1
    named = ForkPoint.before_offset(first, rollout_id=A)
    assert border(child, named, home).place == Place(0, first)
    with pytest.raises(ForkPointInvalid, match="no part of the thread's history"):
        border(child, ForkPoint.before_offset(first, rollout_id=uuid(0xFF)), home)


def test_pair_across_two_files_is_kept_together(home: Home) -> None:
    """A call left open at the end of a base may get its result in the child."""
    script = Script()
    script.start()
    script.call("c1")
    parent = write_thread(home, A, script.bytes)
    end = script.next_ordinal or 0
    rest = Script(end + 1)
    rest.output("c1")
    rest.complete()
    base = base_of(parent, A, parent.stat().st_size, end)
    child = write_thread(home, B, rest.bytes, ordinal=end, history_base=base)
    with pytest.raises(ForkPointInvalid, match="'c1'") as caught:
        border(child, ForkPoint.before_offset(0), home)
    request = parent.stat().st_size - len(script.lines[-1])
    assert caught.value.nearest == (
        ForkPoint.before_offset(request, rollout_id=A),
        ForkPoint.before_offset(child.stat().st_size - len(rest.lines[-1])),
    )
