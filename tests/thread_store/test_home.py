"""The home: which folder it is, what is found in it and how a person may name a thread."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from pathlib import Path

import pytest

from protocol.errors import InvalidThreadId, RolloutUnreadable, ThreadNotFound
from rollout.paths import RolloutName
from thread_store.errors import AmbiguousThread
from thread_store.home import Home
from thread_store.looks import LOOKS_MAX

A = "01960000-aaaa-7000-8000-00000000a001"
B = "01960000-bbbb-7000-8000-00000000b002"
C = "01960000-bbbb-7000-8000-00000000c003"
NOON = datetime(2026, 3, 4, 12, 0, 0)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def place(
    home: Home, thread_id: str, hour: int = 0, *, rollout_id: str | None = None, archived: bool = False
) -> Path:
    """Put an empty file where a rollout of this name belongs."""
    name = RolloutName.make(thread_id, created=NOON.replace(hour=hour), rollout_id=rollout_id)
    path = home.path / ("archived_sessions" if archived else name.folder) / name.text
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


# Which folder


def test_flag_comes_before_the_environment(tmp_path: Path) -> None:
    """`--home` wins over ROLLOUT_HOME, that over XDG_STATE_HOME."""
    environ = {"ROLLOUT_HOME": str(tmp_path / "env")}
    assert Home.resolve(str(tmp_path / "flag"), environ).path == tmp_path / "flag"
    assert Home.resolve(None, environ).path == tmp_path / "env"
    assert Home.resolve("", environ).path == tmp_path / "env"


def test_without_any_the_state_folder_is_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last resort is `$XDG_STATE_HOME/rollout`; an empty ROLLOUT_HOME counts as none."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "linux")
    assert Home.resolve(None, {"ROLLOUT_HOME": ""}).path == tmp_path / "rollout"


@pytest.mark.case("B138")
def test_symlinked_home_is_resolved(tmp_path: Path) -> None:
    """Two ways to one home give the same paths."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    path = place(Home(tmp_path / "real"), A)
    assert Home(tmp_path / "link").path == tmp_path / "real"
    assert Home(tmp_path / "link").find(A) == path


def test_new_rollout_goes_into_its_day(home: Home) -> None:
    """The path of a new rollout is made of its local time and its id, and nothing is made on disk."""
    path = home.new_rollout_path(A, created=NOON)
    assert path == home.path / f"sessions/2026/03/04/rollout-2026-03-04T12-00-00-{A}.jsonl"
    assert not home.path.exists()


@pytest.mark.case("B104")
@pytest.mark.parametrize("text", ["../x", "/abs", "a\0b", "", "@", "01960000"])
def test_id_that_is_no_uuid_is_refused(home: Home, text: str) -> None:
    """Neither a new path nor a look-up takes an id that isn't one."""
    with pytest.raises(InvalidThreadId):
        home.new_rollout_path(text)
    with pytest.raises(InvalidThreadId):
        home.find_thread(text)


@pytest.mark.case("B104")
@pytest.mark.parametrize("text", ["", "a\0b", "\0"])
def test_name_that_can_be_no_path_is_refused(home: Home, text: str) -> None:
    """What the system could not even look for is no name."""
    with pytest.raises(InvalidThreadId):
        home.find(text)


# What is in it


def test_absent_home_holds_nothing(home: Home) -> None:
    """A home need not exist to be looked into."""
    assert list(home.rollouts()) == []
    with pytest.raises(ThreadNotFound) as caught:
        home.find("@")
    assert "holds no threads" in caught.value.hint


def test_home_that_is_a_file_is_an_error(home: Home) -> None:
    """A file where the home should be is not an empty home."""
    home.path.write_text("")
    with pytest.raises(RolloutUnreadable):
        list(home.rollouts())


def test_rollouts_come_newest_first_and_archived_last(home: Home) -> None:
    """The order is that of the names: by time, live before archived."""
    old, new = place(home, A, 1), place(home, B, 2)
    put_away = place(home, C, 3, archived=True)
    assert [each.path for each in home.rollouts()] == [new, old, put_away]
    assert [each.archived for each in home.rollouts()] == [False, False, True]


@pytest.mark.case("B88")
def test_odd_entries_are_passed_over(home: Home, tmp_path: Path) -> None:
    """Folders and pipes named like rollouts, links, and other files are not found."""
    path = place(home, A)
    (path.parent / path.name.replace(A, B)).mkdir()
    (path.parent / path.name.replace(A, C)).symlink_to(path)
    (path.parent / "notes.jsonl").touch()
    os.mkfifo(path.parent / path.name.replace(A, "01960000-dddd-7000-8000-00000000d004"))
    assert [each.path for each in home.rollouts()] == [path]


@pytest.mark.case("B88")
def test_folder_without_permission_is_passed_over_and_named(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that can't be listed hides nothing else, and is told of."""
    path = place(home, A)
    closed = home.path / "sessions" / "2026" / "03" / "05"
    closed.mkdir()
    listing = os.scandir

    def scandir(folder: Path) -> os._ScandirIterator[str]:  # root may read anything, so it is acted out
        if folder == closed:
            raise PermissionError(13, "Permission denied", str(folder))
        return listing(folder)

    monkeypatch.setattr(os, "scandir", scandir)
    assert [each.path for each in home.rollouts()] == [path]
    assert [error.path for error in home.passed_over] == [str(closed)]


@pytest.mark.case("B124")
def test_compressed_twin_is_hidden_by_the_plain_file(home: Home) -> None:
    """A rollout and its compressed copy are one."""
    plain = place(home, A)
    (plain.parent / (plain.name + ".zst")).touch()
    assert [each.path for each in home.rollouts()] == [plain]


@pytest.mark.case("B124")
def test_live_rollout_wins_over_an_archived_one(home: Home) -> None:
    """A thread that is live and archived is found once: the live one."""
    live, _ = place(home, A, 1), place(home, A, 1, archived=True)
    assert home.find(A) == live
    assert list(home.current_rollouts()) == [A]


def test_last_revert_is_the_current_rollout(home: Home) -> None:
    """The plain name is the oldest rollout of a thread; the greatest rollout id is the newest."""
    place(home, A, 9)
    place(home, A, 8, rollout_id=B)
    newest = place(home, A, 7, rollout_id=C)
    assert home.find_thread(A) == newest
    assert home.find(A[:13]) == newest


# How a person names one


def test_id_in_any_case_finds_its_thread(home: Home) -> None:
    """The whole id, its beginning, and its end name a thread."""
    path = place(home, A)
    place(home, B)
    for name in (A, A.upper(), "01960000-a", "a001", "A001"):
        assert home.find(name) == path


def test_beginning_is_tried_before_the_end(home: Home) -> None:
    """What one id begins with does not mean another that ends so."""
    first = place(home, "c0030000-aaaa-7000-8000-000000000001")
    place(home, C)
    assert home.find("c003") == first


def test_beginning_of_several_is_ambiguous(home: Home) -> None:
    """A fragment that fits more than one thread names none, and the error lists them."""
    place(home, A), place(home, B)
    with pytest.raises(AmbiguousThread) as caught:
        home.find("0196")
    assert set(caught.value.matches) == {A, B}


def test_short_fragment_is_refused_though_unique(home: Home) -> None:
    """Less than four characters would mean another thread tomorrow."""
    place(home, A)
    with pytest.raises(AmbiguousThread) as caught:
        home.find("019")
    assert caught.value.matches == (A,)


def test_at_sign_names_the_newest(home: Home) -> None:
    """`@` is the newest live thread, `@2` the second newest; archived ones don't count."""
    old, new = place(home, A, 1), place(home, B, 2)
    place(home, C, 3, archived=True)
    assert home.find("@") == new
    assert home.find("@1") == new
    assert home.find("@2") == old
    for name in ("@3", "@0"):
        with pytest.raises(ThreadNotFound):
            home.find(name)


def test_path_is_taken_as_it_is(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path names the file there, whatever its name and wherever it is."""
    file = tmp_path / "any.jsonl"
    file.touch()
    (tmp_path / "bare").touch()
    monkeypatch.chdir(tmp_path)
    assert home.find(str(file)) == file
    assert home.find("any.jsonl") == Path("any.jsonl")
    assert home.find("bare") == Path("bare")


@pytest.mark.parametrize("name", ["./none", "none.jsonl", "nothing", "ffff", B, "../x"])
def test_absent_name_is_not_found(home: Home, name: str) -> None:
    """What fits nothing is ThreadNotFound, and the hint names the newest threads."""
    place(home, A)
    with pytest.raises(ThreadNotFound) as caught:
        home.find(name)
    assert A in caught.value.hint


def test_file_that_is_moved_while_the_home_is_looked_through_is_found(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What others rest on is told from such a look: missing one that is being taken out of the archive would
    let what it needs be deleted."""
    place(home, A)
    archived, live = place(home, B, archived=True), place(home, B, 1)
    live.unlink()
    scandir = os.scandir

    def scan(folder: str | Path) -> Iterator[os.DirEntry[str]]:
        if os.path.basename(folder) == "archived_sessions" and archived.exists():
            os.rename(archived, live)
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", scan)
    assert {each.name.thread_id for each in home.rollouts()} == {A, B}


def test_folder_that_cannot_be_listed_is_named_however_often_the_home_is_looked_through(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names change meanwhile, so it is looked again; what was refused is refused once more, and told once."""
    place(home, A)
    hidden = place(home, B, archived=True).parent
    scandir = os.scandir
    looks = 0

    def scan(folder: str | Path) -> Iterator[os.DirEntry[str]]:
        nonlocal looks
        if str(folder) == str(hidden):
            looks += 1
            place(home, C, looks)
            raise PermissionError(13, "not yours", str(folder))
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", scan)
    assert {each.name.thread_id for each in home.rollouts()} == {A, C}
    assert looks > 1
    assert [each.path for each in home.passed_over] == [str(hidden)]


@pytest.mark.parametrize("gone", [False, True])
def test_file_that_moves_at_every_look_is_found(
    home: Home, monkeypatch: pytest.MonkeyPatch, gone: bool
) -> None:
    """Each look but the first misses it: it is where it was seen before. One that was deleted is gone."""
    place(home, A)
    moving = place(home, B, 1)
    aside = home.path / "aside"
    scandir, looks = os.scandir, 0

    def scan(folder: str | Path) -> AbstractContextManager[Iterable[os.DirEntry[str]]]:
        nonlocal looks
        if str(folder) != str(moving.parent):
            return scandir(folder)
        looks += 1
        place(home, C, looks)  # so it is never at rest
        if looks > 1:
            os.rename(moving, aside)
        with scandir(folder) as listing:
            entries = list(listing)
        if looks > 1 and not (gone and looks == LOOKS_MAX):
            os.rename(aside, moving)
        place(home, C, 12 + looks)
        return nullcontext(entries)

    monkeypatch.setattr(os, "scandir", scan)
    found = {each.name.thread_id: each.path for each in home.rollouts()}
    assert looks == LOOKS_MAX
    assert found.keys() == ({A, C} if gone else {A, B, C})
    assert all(path.exists() for path in found.values())
