"""Pruning: what the limits take, what nobody may take, and that a look changes nothing."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import ThreadReferenced
from tests.thread_store.histories import place_of, turns, uuid, write_thread
from tests.thread_store.upkeep.works import threads_in
from thread_store.forks.fork import make_fork
from thread_store.home import Home
from thread_store.locks import ThreadLocks
from thread_store.upkeep.prune import carry_out, look_at_home
from thread_store.upkeep.prune_plan import KnownThread, PruneLimits, plan_prune
from thread_store.upkeep.threads import Place

A, B, C, D = uuid(0xA), uuid(0xB), uuid(0xC), uuid(0xD)
DAY = 86_400.0
NOW = 1_700_000_000.0


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture
def place(home: Home) -> Place:
    return Place.of(home)


def known(*ages: float, size: int = 100) -> list[KnownThread]:
    """Threads "0", "1", … that were changed so many days ago."""
    return [
        KnownThread(thread_id=str(number), bytes=size, changed=NOW - age * DAY)
        for number, age in enumerate(ages)
    ]


def going(threads: Iterable[KnownThread], limits: PruneLimits, **how: object) -> list[str]:
    plan = plan_prune(threads, limits, now=NOW, **how)  # type: ignore[arg-type]
    return [each.thread_id for each in plan.going]


# The plan


def test_age_takes_what_was_not_changed_for_so_long() -> None:
    """The oldest first."""
    assert going(known(1, 40, 30, 29), PruneLimits(older_than_seconds=30 * DAY)) == ["1", "2"]


def test_number_alone_takes_all_but_the_newest() -> None:
    """Which are told by their last change."""
    assert going(known(5, 1, 3, 2), PruneLimits(keep=2)) == ["0", "2"]


def test_newest_stay_whatever_else_is_said() -> None:
    """However old or large they are."""
    limits = PruneLimits(older_than_seconds=DAY, bytes_max=0, keep=3)
    assert going(known(50, 40, 30, 20), limits) == ["0"]


def test_size_takes_the_oldest_until_it_fits() -> None:
    """And no more than that."""
    assert going(known(4, 3, 2, 1), PruneLimits(bytes_max=250)) == ["0", "1"]
    assert going(known(4, 3, 2, 1), PruneLimits(bytes_max=400)) == []


@pytest.mark.parametrize("why", ["live", "pinned"])
def test_nothing_takes_what_is_live_or_pinned(why: str) -> None:
    """The plan says why it stays."""
    plan = plan_prune(known(9, 8), PruneLimits(keep=0), now=NOW, **{why: {"1"}})  # type: ignore[arg-type]
    assert [each.thread_id for each in plan.going] == ["0"]
    assert plan.staying == {"1": why}


def test_what_others_rest_on_stays_unless_they_go_too() -> None:
    """And then it goes behind them."""
    threads = known(9, 8, 1)
    children = {"0": {"1"}, "1": {"2"}}
    plan = plan_prune(threads, PruneLimits(older_than_seconds=5 * DAY), now=NOW, children=children)
    assert plan.going == ()
    assert plan.staying == {"0": "referenced", "1": "referenced"}
    assert going(threads, PruneLimits(keep=0), children=children) == ["2", "1", "0"]


IDS = st.sampled_from([str(number) for number in range(8)])


@given(
    st.lists(st.tuples(st.floats(0, 99), st.integers(0, 99)), max_size=8),
    st.one_of(st.none(), st.floats(0, 99)),
    st.one_of(st.none(), st.integers(0, 9)),
    st.one_of(st.none(), st.integers(0, 500)),
    st.sets(IDS),
    st.dictionaries(IDS, st.sets(IDS)),
)
def test_plan_never_breaks_its_promises(
    made: list[tuple[float, int]],
    days: float | None,
    keep: int | None,
    bytes_max: int | None,
    live: set[str],
    children: dict[str, set[str]],
) -> None:
    """Whatever the home looks like, also where threads rest on each other in a ring."""
    threads = [
        KnownThread(thread_id=str(number), bytes=size, changed=NOW - age * DAY)
        for number, (age, size) in enumerate(made)
    ]
    limits = PruneLimits(
        older_than_seconds=None if days is None else days * DAY, keep=keep, bytes_max=bytes_max
    )
    plan = plan_prune(threads, limits, now=NOW, live=live, children=children)
    gone = [each.thread_id for each in plan.going]
    assert len(set(gone)) == len(gone)
    assert not set(gone) & live
    newest = sorted(threads, key=lambda each: (each.changed, each.thread_id), reverse=True)[: keep or 0]
    assert not {each.thread_id for each in newest} & set(gone)
    for thread_id in gone:
        assert children.get(thread_id, set()) <= set(gone)
    assert not set(gone) & set(plan.staying)


# The home


def aged(path: Path, days: float) -> Path:
    os.utime(path, (time.time() - days * DAY,) * 2)
    return path


@pytest.mark.case("B106")
def test_look_changes_nothing(home: Home, place: Place) -> None:
    """Not even a lock file is made."""
    for each, days in ((A, 40), (B, 1)):
        aged(write_thread(home, each, turns(1)), days)
    before = {path: path.stat().st_mtime_ns for path in home.path.rglob("*")}
    look = look_at_home(place, PruneLimits(older_than_seconds=30 * DAY))
    assert [each.thread_id for each in look.plan.going] == [A]
    assert look.bytes == home.find_thread(A).stat().st_size
    assert {path: path.stat().st_mtime_ns for path in home.path.rglob("*")} == before


@pytest.mark.case("B106")
def test_without_a_limit_no_thread_goes(home: Home, place: Place) -> None:
    """Only what is nobody's."""
    path = aged(write_thread(home, A, turns(1)), 9999)
    left = aged(_written(path.with_name(f".{path.name}.0123456789ab.tmp")), 3)
    done = carry_out(place, look_at_home(place, None))
    assert (done.threads, done.leftovers) == ((), 1)
    assert path.exists()
    assert not left.exists()


def _written(path: Path, data: bytes = b"x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def test_prune_takes_what_the_look_said(home: Home, place: Place) -> None:
    """And the rest is whole."""
    for each, days in ((A, 40), (B, 1), (C, 50)):
        aged(write_thread(home, each, turns(1)), days)
    done = carry_out(place, look_at_home(place, PruneLimits(older_than_seconds=30 * DAY)))
    assert done.threads == (C, A)
    assert list(threads_in(home)) == [B]


def test_thread_that_changes_behind_the_look_stays(home: Home, place: Place) -> None:
    """It isn't old any more."""
    path = aged(write_thread(home, A, turns(1)), 40)
    look = look_at_home(place, PruneLimits(older_than_seconds=30 * DAY))
    with path.open("ab") as file:
        file.write(turns(1, first=2, ordinal=9))
    assert carry_out(place, look).threads == ()
    assert path.exists()


def test_thread_that_is_opened_or_forked_behind_the_look_stays(home: Home, place: Place) -> None:
    """It is told why; the others go."""
    for each in (A, B, C):
        write_thread(home, each, turns(1))
    look = look_at_home(place, PruneLimits(keep=0))
    make_fork(home.find_thread(A), place_of(home, D), thread_id=D, home=home, mode="reference")
    lock = ThreadLocks(home.path).acquire(B)
    try:
        done = carry_out(place, look)
    finally:
        lock.release()
    assert done.threads == (C,)
    assert any(isinstance(each, ThreadReferenced) for each in done.skipped)
    assert len(done.skipped) == 2


def test_live_and_labelled_threads_stay(home: Home, place: Place) -> None:
    """The last word of the labels counts; lines that can't be read say nothing."""
    for each in (A, B, C):
        write_thread(home, each, turns(1))
    _written(
        home.path / "thread-store" / "labels.jsonl",
        b'broken\n{"id":"%s","add":["keep"]}\n{"id":"%s","add":["pinned","x"]}\n{"id":"%s","remove":["pinned"]}\n'
        % (A.encode(), B.encode(), B.encode()),
    )
    lock = ThreadLocks(home.path).acquire(C)
    try:
        look = look_at_home(place, PruneLimits(keep=0))
    finally:
        lock.release()
    assert look.plan.staying == {A: "pinned", C: "live"}
    assert [each.thread_id for each in look.plan.going] == [B]


def test_leftovers_are_told_by_name_and_age(home: Home, place: Place) -> None:
    """What was written today may still be somebody's; what has another name isn't ours; what was moved aside
    and never replaced is the only copy."""
    path = write_thread(home, A, turns(1))
    folder = path.parent
    ours = [
        folder / f".{path.name}.0123456789ab.tmp",
        folder / f".{path.name}.zst.0123456789ab.tmp",
        folder / f"{path.name}.0123456789ab.taken",
        folder / f".{path.name}.0123456789ab.aside",
        home.path / "thread-store" / "derived" / f".{A}.snapshot.0123456789ab.tmp",
        home.path / "thread-store" / "kept" / ".x.torn.tmp",
        home.path / "thread-store" / "deleting" / ".0123456789abcdef.json.0123456789ab.tmp",
        home.path / ".session_index.jsonl.0123456789ab.tmp",
    ]
    for each in ours:
        aged(_written(each), 2)
    others = [
        folder / f"{path.name}.bak.tmp",
        folder / "notes.tmp",
        home.path / "state.tmp",
        folder / f".rollout-x-{B}.jsonl.0123456789ab.aside",
    ]
    for each in others:
        aged(_written(each), 2)
    young = _written(folder / f".{path.name}.aaaaaaaaaaaa.tmp")
    look = look_at_home(place, None)
    assert sorted(each.path for each in look.leftovers) == sorted(map(str, ours))
    carry_out(place, look)
    assert not any(each.exists() for each in ours)
    assert all(each.exists() for each in (*others, young, path))


# Blobs


def blob(home: Home, letter: str, days: float = 2) -> Path:
    return aged(_written(home.path / "blobs" / (letter * 64), b"content"), days)


def test_blob_that_no_record_names_goes(home: Home, place: Place) -> None:
    """Named in a plain, compressed or archived rollout, or in a kept file, it stays."""
    path = write_thread(home, A, turns(1) + b'{"x":"blob:sha256:%s"}\n' % (b"a" * 64))
    _written(Path(f"{place_of(home, B)}.zst"), zstandard.compress(b'"blob sha256:%s"' % (b"b" * 64)))
    _written(place_of(home, C, archived=True), b"blob:sha256:" + b"c" * 64 + b"\n")
    _written(
        home.path / "thread-store" / "kept" / f"{path.name}.1-1-00000000.torn", b"blob:sha256:" + b"d" * 64
    )
    named = [blob(home, letter) for letter in "abcd"]
    unnamed, young = blob(home, "e"), blob(home, "f", days=0.5)
    look = look_at_home(place, None)
    assert [each.path for each in look.blobs.blobs] == [str(unnamed)]
    assert unnamed.exists()
    assert carry_out(place, look).blobs == 1
    assert not unnamed.exists()
    assert all(each.exists() for each in (*named, young))


def test_blob_that_is_named_behind_the_look_stays(home: Home, place: Place) -> None:
    """What was written meanwhile is looked at again."""
    found = blob(home, "a")
    look = look_at_home(place, None)
    write_thread(home, A, b'{"x":"blob:sha256:%s"}\n' % (b"a" * 64))
    carry_out(place, look)
    assert found.exists()


@pytest.mark.parametrize("offset", [-80, -76, -64, -63, -1, 0, 1])
def test_name_across_the_border_of_two_blocks_is_found(home: Home, place: Place, offset: int) -> None:
    """A file is read in blocks of a MiB."""
    found = blob(home, "a")
    path = write_thread(home, A, b"")
    data = path.read_bytes()
    path.write_bytes(data + b" " * ((1 << 20) + offset - len(data)) + b"blob:sha256:" + b"a" * 64 + b'"\n')
    assert look_at_home(place, None).blobs.blobs == ()
    assert found.exists()


def test_damaged_rollout_lets_all_blobs_stay(home: Home, place: Place) -> None:
    """It may have named them. The rest of the prune goes on."""
    blob(home, "a")
    packed = zstandard.compress(os.urandom(1000))
    _written(Path(f"{place_of(home, A)}.zst"), packed[:-20])
    look = look_at_home(place, None)
    assert look.blobs.blobs == ()
    assert look.blobs.passed_over
    carry_out(place, look)


def test_many_threads_go_in_batches(home: Home, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Children before what they rest on, across the batches."""
    monkeypatch.setattr("thread_store.upkeep.prune.BATCH_MAX", 2)
    source = write_thread(home, A, turns(1))
    for number in range(5):
        child = uuid(0x100 + number)
        source = Path(
            make_fork(source, place_of(home, child), thread_id=child, home=home, mode="reference").path
        )
    done = carry_out(place, look_at_home(place, PruneLimits(keep=0)))
    assert len(done.threads) == 6
    assert threads_in(home) == {}


def test_home_that_is_not_there_has_nothing_to_prune(home: Home, place: Place) -> None:
    """And isn't made."""
    look = look_at_home(place, PruneLimits(keep=0))
    assert look.bytes == 0
    assert carry_out(place, look).threads == ()
    assert not home.path.exists()
