"""Archiving: one rename a file, back and forth, and never of a thread that somebody writes."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from protocol.errors import ActiveWriter, NotARollout, RolloutExists, RolloutWriteError, ThreadNotFound
from rollout.barrier import Goal
from rollout.file_lock import lock_rollout
from tests.thread_store.histories import history, meta, place_of, turns, uuid, write_thread
from tests.thread_store.upkeep.interrupted import Cut, raises
from tests.thread_store.upkeep.works import place_with
from thread_store.folding.derived_snapshot import DerivedSnapshots
from thread_store.home import Home
from thread_store.local_threads import LocalThreads
from thread_store.locks import ThreadLocks
from thread_store.open_threads import hand_over
from thread_store.upkeep.archive import archive_thread, unarchive_thread
from thread_store.upkeep.threads import Place

A, B = uuid(0xA), uuid(0xB)
REVERTED = uuid(0xA2)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture
def place(home: Home) -> Place:
    return Place.of(home)


def test_thread_is_moved_with_bytes_mode_and_time(home: Home, place: Place) -> None:
    """Into the one flat folder, by its own name; unarchived, it stands where it stood."""
    path = write_thread(home, A, turns(1))
    os.chmod(path, 0o640)
    os.utime(path, ns=(7, 1_600_000_000_000_000_001))
    before, data = path.stat(), path.read_bytes()
    moved = archive_thread(place, A)
    assert moved.path == str(home.path / "archived_sessions" / path.name)
    assert not path.exists()
    assert unarchive_thread(place, A).path == str(path)
    after = path.stat()
    assert (after.st_ino, after.st_mode, after.st_mtime_ns) == (
        before.st_ino,
        before.st_mode,
        before.st_mtime_ns,
    )
    assert path.read_bytes() == data
    assert stat.S_IMODE((home.path / "archived_sessions").stat().st_mode) == 0o700


@pytest.mark.case("B109")
def test_done_twice_it_is_done_once(home: Home, place: Place) -> None:
    """The second call finds nothing to do, both ways."""
    write_thread(home, A, turns(1))
    first, second = archive_thread(place, A), archive_thread(place, A)
    assert (len(first.paths), second.paths, second.path) == (1, (), first.path)
    first, second = unarchive_thread(place, A), unarchive_thread(place, A)
    assert (len(first.paths), second.paths, second.path) == (1, (), first.path)


@pytest.mark.case("B109")
def test_live_thread_is_refused_and_its_writer_named(home: Home) -> None:
    """Nothing is moved."""
    with LocalThreads(home) as threads:
        opened = threads.create()
        opened.core.pending.append(_said())
        hand_over(opened, Goal.FLUSH)
        with pytest.raises(ActiveWriter) as caught:
            archive_thread(Place.of(home), opened.core.thread_id)
        assert caught.value.holder.pid == os.getpid()
        assert os.path.exists(opened.core.path)


def _said() -> object:
    from protocol.response_items import ResponseItem

    return ResponseItem.message("user", "a")


@pytest.mark.case("B109")
def test_file_that_a_recorder_of_its_own_writes_is_refused(home: Home, place: Place) -> None:
    """It knows nothing of a home's locks and locks the file alone."""
    path = write_thread(home, A, turns(1))
    with open(path, "rb") as file:
        lock_rollout(file.fileno(), str(path))
        with pytest.raises(ActiveWriter):
            archive_thread(place, A)
    assert path.exists()
    archive_thread(place, A)


def test_all_rollouts_of_a_reverted_thread_go(home: Home, place: Place) -> None:
    """Nobody finds the older one in its stead."""
    write_thread(home, A, turns(2))
    current = write_thread(home, A, turns(1), rollout_id=REVERTED)
    before = history(current, home)
    moved = archive_thread(place, A)
    assert len(moved.paths) == 2
    assert all(each.archived for each in home.rollouts())
    assert history(home.find_thread(A), home) == before


def test_snapshot_moves_along(home: Home) -> None:
    """The list needs no look into the rollout, before as after."""
    with LocalThreads(home) as threads:
        opened = threads.create()
        opened.core.pending.append(_said())
    thread_id, derived = opened.core.thread_id, DerivedSnapshots(home)
    before = derived.summary(opened.core.path)
    assert before is not None
    moved = archive_thread(Place.of(home), thread_id)
    assert derived.summary(moved.path) == before
    moved = unarchive_thread(Place.of(home), thread_id)
    assert derived.summary(moved.path) == before


@pytest.mark.case("B124")
def test_twin_in_the_archive_that_is_an_older_copy_gives_way(home: Home, place: Place) -> None:
    """It holds nothing that the live one doesn't."""
    path = write_thread(home, A, turns(2))
    twin = place_of(home, A, archived=True)
    twin.write_bytes(path.read_bytes()[:-100])
    data = path.read_bytes()
    archive_thread(place, A)
    assert twin.read_bytes() == data
    assert [each.path for each in home.rollouts()] == [twin]


@pytest.mark.case("B124")
def test_other_rollout_of_the_same_name_is_never_replaced(home: Home, place: Place) -> None:
    """Two files that differ are both left alone."""
    path = write_thread(home, A, turns(2))
    twin = place_of(home, A, archived=True)
    twin.write_bytes(meta(A) + b"something else\n")
    with pytest.raises(RolloutExists):
        archive_thread(place, A)
    assert path.exists()
    assert twin.read_bytes().endswith(b"something else\n")


@pytest.mark.case("B96")
def test_archive_on_another_disk_is_reached_by_a_copy(home: Home) -> None:
    """Checked before the original goes; mode and time stay."""
    path = write_thread(home, A, turns(1))
    before, data = path.stat(), path.read_bytes()
    cut = Cut(0, raises(errno.EXDEV))
    cut.calls.rename = raises_xdev  # type: ignore[method-assign]
    place = place_with(home, cut)
    moved = archive_thread(place, A)
    after = os.stat(moved.path)
    assert (after.st_mode, after.st_mtime_ns) == (before.st_mode, before.st_mtime_ns)
    assert Path(moved.path).read_bytes() == data
    assert not path.exists()


def raises_xdev(source: str, target: str) -> None:
    raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), source, None, target)


def test_thread_that_there_is_not_gets_no_lock(home: Home, place: Place) -> None:
    """And no folder is made for it."""
    with pytest.raises(ThreadNotFound):
        archive_thread(place, A)
    assert not home.path.exists()


def test_name_without_a_time_goes_back_by_the_day_of_its_change(home: Home, place: Place) -> None:
    """Another program wrote something else there."""
    path = home.path / "archived_sessions" / f"rollout-yesterday-{A}.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(meta(A) + turns(1))
    os.utime(path, (1_600_000_000, 1_600_000_000))
    moved = unarchive_thread(place, A)
    assert Path(moved.path).name == path.name
    assert Path(moved.path).relative_to(home.path).parts[:3] == ("sessions", "2020", "09")
    assert home.find_thread(A) == Path(moved.path)


def test_name_in_capitals_is_the_same_thread(home: Home, place: Place) -> None:
    """The file keeps the name that it has."""
    path = write_thread(home, A, turns(1))
    loud = path.with_name(path.name.replace(A, A.upper()))
    path.rename(loud)
    assert Path(archive_thread(place, A).path).name == loud.name
    assert Path(unarchive_thread(place, A).path) == loud


def test_folder_that_is_a_link_is_refused(home: Home, place: Place) -> None:
    """Nobody who lists the home looks through it: the thread would be lost."""
    path = write_thread(home, A, turns(1))
    archive_thread(place, A)
    day = path.parent
    day.rmdir()
    (home.path / "elsewhere").mkdir()
    day.symlink_to(home.path / "elsewhere")
    with pytest.raises(NotARollout, match="link"):
        unarchive_thread(place, A)
    assert home.find_thread(A).parent.name == "archived_sessions"


def test_lock_is_free_and_gone_afterwards(home: Home, place: Place) -> None:
    """Also after a failure."""
    write_thread(home, A, turns(1))
    with pytest.raises(RolloutWriteError):
        cut = Cut(0, raises(errno.EIO))
        cut.calls.rename = raises_io  # type: ignore[method-assign]
        archive_thread(place_with(home, cut), A)
    assert ThreadLocks(home.path).holders() == []
    assert os.listdir(home.path / "thread-writer-locks") == [".coordination.lock"]


def raises_io(source: str, target: str) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_revert_that_came_meanwhile_goes_too(home: Home, place: Place) -> None:
    """What was known of the thread is looked at again under its lock."""
    from datetime import datetime

    from thread_store.upkeep.thread_files import files_of_thread

    write_thread(home, A, turns(2))
    known = files_of_thread(home, A)
    day = home.path / "sessions" / datetime.now().strftime("%Y/%m/%d")
    day.mkdir(parents=True, exist_ok=True)
    later = day / f"rollout-{datetime.now():%Y-%m-%dT%H-%M-%S}-{A}_{REVERTED}.jsonl"
    later.write_bytes(meta(A) + turns(1))
    assert len(archive_thread(place, A, known=known).paths) == 2


def test_threads_beside_it_are_left_alone(home: Home, place: Place) -> None:
    """Also their leftovers: their writer may be at it."""
    path, other = write_thread(home, A, turns(1)), write_thread(home, B, turns(1))
    theirs = other.parent / f".{other.name}.0123456789ab.tmp"
    mine = path.parent / f".{path.name}.0123456789ab.tmp"
    backup = path.parent / f"{path.name}.bak.tmp"
    for each in (theirs, mine, backup):
        each.write_bytes(b"x")
    archive_thread(place, A)
    assert (theirs.exists(), mine.exists(), backup.exists(), other.exists()) == (True, False, True, True)
