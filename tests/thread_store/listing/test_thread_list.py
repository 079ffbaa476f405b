"""Pages of threads: their order, their cursors, their filters; with the index and without it."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.thread_store.listing.homes import BEGIN_MS, HandMadeHome, encoded, event, meta, stamp, typed, uuid
from thread_store.errors import InvalidCursor
from thread_store.home import Home
from thread_store.listing import thread_list
from thread_store.listing.thread_list import list_thread_ids
from thread_store.listing.thread_query import ThreadQuery
from thread_store.locks import ThreadLocks
from thread_store.titles.session_index import SessionIndex
from thread_store.titles.thread_labels import ThreadLabels

# Order


def test_newest_name_stands_first(made: HandMadeHome) -> None:
    """By creation, whatever was written later; the greater id first where names tie."""
    for number, at in ((1, 10), (2, 20), (3, 20), (4, 0), (5, 200_000)):
        made.add(number, at=at)
    assert made.numbers() == [5, 3, 2, 1, 4]
    assert made.numbers(order="oldest", limit=2) == [4, 1, 2, 3, 5]


def test_last_recorded_stands_first(made: HandMadeHome) -> None:
    """By update: the time in the last record, not the file's."""
    for number, at in ((1, 50), (2, 70), (3, 60)):
        path = made.place(number)
        made.write(path, encoded([meta(number), typed("x", at=at)]), at=100 - number)
    assert made.numbers(sort="updated") == [2, 3, 1]
    assert made.numbers(sort="updated", order="oldest", limit=1) == [1, 3, 2]


def test_time_that_no_record_can_have_counts_as_when_it_was_written(made: HandMadeHome) -> None:
    """A clock that ran ahead doesn't keep a thread on top for years."""
    made.write(made.place(1), encoded([meta(1), typed("x", at=10**9)]), at=5)
    made.write(made.place(2), encoded([meta(2), typed("x", at=6)]), at=6)
    assert made.numbers(sort="updated") == [2, 1]
    assert made.list(sort="updated")[1].updated == stamp(5)


def test_file_time_before_there_were_rollouts_says_nothing(made: HandMadeHome) -> None:
    """Copied by something that sets all times to 1970: the records count."""
    for number, at in ((1, 9), (2, 3)):
        os.utime(made.add(number, meta(number), typed("x", at=at)), (0, 0))
    made.add(3, meta(3), typed("x", at=5))
    os.utime(made.place(3), (BEGIN_MS / 1000 + 5, BEGIN_MS / 1000 + 5))
    assert made.numbers(sort="updated", limit=1) == [1, 3, 2]


def test_size_and_items_order(made: HandMadeHome) -> None:
    """The greatest first."""
    made.add(1, meta(1), typed("x" * 100))
    made.add(2, meta(2), typed("x" * 900))
    made.add(3, {**meta(3), "ordinal": 7})
    made.add(4, {**meta(4), "ordinal": 3})
    assert made.numbers(sort="size", limit=1)[:2] == [2, 1]
    assert made.numbers(sort="items", limit=3)[:2] == [3, 4]


# One entry for each thread


@pytest.mark.case("B124")
def test_twins_are_one_thread(made: HandMadeHome) -> None:
    """Live before archived, plain before compressed, wherever and however often."""
    live = made.add(1, meta(1), typed("live"), at=5)
    made.add(1, meta(1), typed("stale"), at=5, archived=True)
    shutil.copy2(live, f"{live}.zst")
    made.add(1, meta(1), typed("older name"), at=1)
    for sort in ("created", "updated", "size", "items"):
        (found,) = made.list(archived=None, sort=sort)
        assert (found.preview, found.archived, found.compressed) == ("live", False, False)
        assert made.numbers(archived=True, sort=sort) == []


def test_reverted_thread_keeps_its_place_and_shows_the_new_file(made: HandMadeHome) -> None:
    """The last revert is what it goes on in; a clock that was set back changes nothing."""
    made.add(1, meta(1), typed("first"), at=100)
    made.add(1, meta(1, at=50), typed("second"), at=50, rollout=7)
    made.add(1, meta(1, at=300), typed("third"), at=300, rollout=8)
    made.add(2, at=200)
    one, two = reversed(made.list())
    assert (one.preview, one.path[-10:-6]) == ("third", "0008")
    assert two.thread_id == uuid(2)


def test_links_below_the_home_are_not_followed(made: HandMadeHome, tmp_path: Path) -> None:
    """A link to a folder of rollouts is none of this home."""
    other = HandMadeHome(tmp_path / "other")
    other.add(9)
    made.add(1)
    (made.path / "sessions" / "2025").symlink_to(other.path / "sessions" / "2026")
    for sort in ("created", "updated"):
        assert made.numbers(sort=sort) == [1]


def test_names_of_other_programs_are_listed(made: HandMadeHome) -> None:
    """Any stamp, upper case, any folder."""
    for number, name in enumerate(
        ("rollout--{}.jsonl", "rollout-x y-{}.jsonl", "rollout-\udcff-{}.jsonl"), 1
    ):
        path = made.path / "sessions" / "deep" / name.format(uuid(number).upper())
        made.write(path, encoded([meta(number), typed("x")]), at=number)
    made.add(4)
    moved = made.place(4)
    target = made.path / "sessions" / moved.name
    moved.rename(target)
    for sort in ("created", "updated"):
        assert sorted(made.numbers(sort=sort, limit=1)) == [1, 2, 3, 4]
    assert sorted(list_thread_ids(Home(made.path))) == [uuid(each) for each in (1, 2, 3, 4)]


def test_sessions_folder_that_is_a_link_is_listed(made: HandMadeHome, tmp_path: Path) -> None:
    """As the home itself, it is the user's choice: another disk, say."""
    made.add(1)
    (made.path / "sessions").rename(tmp_path / "elsewhere")
    (made.path / "sessions").symlink_to(tmp_path / "elsewhere")
    for sort in ("created", "updated"):
        assert made.numbers(sort=sort) == [1]
    assert len(Home(made.path).current_rollouts()) == 1


def test_thread_of_the_future_is_listed(made: HandMadeHome) -> None:
    """A clock that was wrong hides nothing: neither its records nor its file are of the past."""
    for number in (1, 2, 3):
        made.write(made.place(number), encoded([meta(number, at=4e9), typed("x", at=4e9 + number)]), at=4e9)
    made.add(4)
    for sort in ("created", "updated", "size", "items"):
        assert sorted(made.numbers(sort=sort, limit=1)) == [1, 2, 3, 4]


def test_file_that_goes_away_while_it_is_looked_at_is_left_out(
    made: HandMadeHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no damage."""
    from thread_store.listing import facts_reader

    made.add(1)
    made.add(2)
    real = facts_reader.read_facts

    def read(path: str, thread_id: str) -> Any:
        made.place(2).unlink(missing_ok=True)
        return real(path, thread_id)

    monkeypatch.setattr(facts_reader, "read_facts", read)
    assert [each.thread_id for each in made.page(use_index=False).threads] == [uuid(1)]


@pytest.mark.parametrize("name", ["a?b", "a#b", "a%20b", "a b", "\udcff", "x'y\"z"])
def test_home_of_any_name_is_listed(tmp_path: Path, name: str) -> None:
    """With its index."""
    made = HandMadeHome(tmp_path / name)
    made.add(1)
    assert made.numbers() == [1]
    assert made.index.stat().st_size > 0


@pytest.mark.case("B138")
def test_home_that_is_a_link_is_listed(made: HandMadeHome, tmp_path: Path) -> None:
    """Its own links are the user's choice."""
    made.add(1)
    link = tmp_path / "link"
    link.symlink_to(made.path)
    assert HandMadeHome(link).numbers() == [1]


def test_home_that_is_not_there_is_empty(made: HandMadeHome) -> None:
    """Nothing is made by looking."""
    assert made.list() == made.list(sort="updated") == []
    assert not made.path.exists()


# Filters


@pytest.mark.case("B129")
@pytest.mark.parametrize(
    "stored", ["\\\\?\\C:\\Users\\Dev\\Alpha", "c:\\users\\dev\\alpha", "C:/Users/Dev/Alpha/"]
)
@pytest.mark.parametrize(
    "wanted", ["C:\\Users\\Dev\\Alpha", "c:/users/dev/alpha", "\\\\?\\c:\\users\\DEV\\alpha\\"]
)
def test_spellings_of_a_windows_folder_are_equal(made: HandMadeHome, stored: str, wanted: str) -> None:
    """The text that was stored is shown as it is."""
    made.add(1, meta(1, cwd=stored))
    made.add(2, meta(2, cwd="C:\\Users\\Dev\\Alphabet"))
    assert [each.cwd for each in made.list(cwd=wanted)] == [stored]
    assert made.numbers(under="C:\\Users\\Dev") == [2, 1]


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        ({"cwd": "/srv/demo"}, [1]),
        ({"cwd": "/srv/demo/"}, [1]),
        ({"cwd": "/srv//./demo"}, [1]),
        ({"cwd": "/srv/dem"}, []),
        ({"cwd": "/SRV/demo"}, []),
        ({"under": "/srv"}, [3, 2, 1]),
        ({"under": "/srv/demo"}, [2, 1]),
        ({"under": "/"}, [4, 3, 2, 1]),
        ({"provider": "mock"}, [2]),
        ({"source": "exec"}, [3]),
        ({"source": "exec", "provider": "mock"}, []),
        ({"subagents": True}, [4]),
        ({"subagents": False, "cwd": "/srv/demo"}, [1]),
        ({"title": "PROMPT 3"}, [3]),
        ({"named": "prompt [12]"}, [2, 1]),
        ({"named": "prompt"}, []),
        ({"label": "keep"}, [2]),
        ({"created_since": stamp(2)}, [4, 3, 2]),
        ({"created_since": stamp(2), "created_until": stamp(3)}, [2]),
        ({"updated_since": stamp(4.9)}, [4]),
        ({"updated_until": stamp(3.1)}, [2, 1]),
    ],
)
@pytest.mark.parametrize("sort", ["created", "updated"])
@pytest.mark.case("B89")
def test_filters_hold_together(
    made: HandMadeHome, options: dict[str, Any], numbers: list[int], sort: str
) -> None:
    """What is asked for is given, and nothing else is left out."""
    extra: dict[int, dict[str, Any]] = {
        1: {},
        2: {"cwd": "/srv/demo/below", "model_provider": "mock"},
        3: {"cwd": "/srv/demonstration", "source": "exec"},
        4: {"cwd": "/other", "parent_thread_id": uuid(1)},
    }
    for number, changes in extra.items():
        lines = meta(number, at=number, **changes), typed(f"prompt {number}", at=number + 1)
        made.add(number, *lines, at=number)
    ThreadLabels(made.path).change(uuid(2), add=["keep"])
    assert made.numbers(sort=sort, limit=2, **options) == numbers


def test_folder_that_is_asked_for_by_a_link_is_found(made: HandMadeHome, tmp_path: Path) -> None:
    """By where it leads; what threads state is never looked at."""
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    for number in (1, 2, 3):
        made.add(number, meta(number, cwd=str(real)), at=number)
    made.add(4, meta(4, cwd="/elsewhere"))
    assert made.numbers(cwd=str(link), limit=1) == [3, 2, 1]
    assert made.numbers(under=str(link)) == [3, 2, 1]


@pytest.mark.case("B130")
def test_no_call_is_made_on_a_stored_folder(made: HandMadeHome) -> None:
    """A hung mount can't hold a list up: not one call of the whole process names it."""
    stored = "/mnt/hung-share/alpha"
    made.add(1, meta(1, cwd=stored))
    script = (
        "import sys\n"
        "def watch(event, arguments):\n"
        "    assert not any('hung-share' in str(each) for each in arguments), event\n"
        "from thread_store import Home, ThreadQuery, list_threads\n"
        "import thread_store.listing.facts_reader, os\n"
        "for name in ('stat', 'lstat', 'readlink', 'open', 'access'):\n"
        "    def guarded(path, *rest, real=getattr(os, name), **more):\n"
        "        assert 'hung-share' not in os.fsdecode(path) if not isinstance(path, int) else True\n"
        "        return real(path, *rest, **more)\n"
        "    setattr(os, name, guarded)\n"
        "sys.addaudithook(watch)\n"
        "for sort in ('created', 'updated'):\n"
        "    for wanted in (None, sys.argv[2]):\n"
        "        page = list_threads(Home(sys.argv[1]), ThreadQuery(sort=sort, cwd=wanted))\n"
        "        assert page.threads[0].cwd == sys.argv[2]\n"
    )
    done = subprocess.run([sys.executable, "-c", script, made.path, stored], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_live_threads_are_those_that_somebody_writes(made: HandMadeHome) -> None:
    """By their locks; a lock that was left behind holds nothing."""
    made.add(1)
    made.add(2)
    lock = ThreadLocks(made.path).acquire(uuid(1))
    try:
        live = made.one(live=True)
        assert (live.thread_id, live.state) == (uuid(1), "live")
        assert live.writer is not None
        assert live.writer.pid == os.getpid()
        assert made.numbers(live=False) == [2]
    finally:
        lock.release()
    (made.path / "thread-writer-locks" / f"{uuid(2)}.lock").touch()
    assert made.numbers(live=True) == []


def test_name_is_the_title(made: HandMadeHome) -> None:
    """The last one that it was given; the prompt is still there."""
    made.add(1)
    SessionIndex(made.path).append(uuid(1), "old")
    SessionIndex(made.path).append(uuid(1), "fix the schema")
    found = made.one(title="schema")
    assert (found.name, found.title, found.preview) == ("fix the schema", "fix the schema", "prompt 1")


# Cursors


@pytest.mark.parametrize("text", ["", "x", "e30", "bnVsbA", "W10", "%%%", "é", "W" * 5000, "W1sx"])
def test_text_that_is_no_cursor_is_refused(made: HandMadeHome, text: str) -> None:
    """Before anything is looked at."""
    with pytest.raises(InvalidCursor):
        made.page(cursor=text)


def test_cursor_of_another_order_is_refused(made: HandMadeHome) -> None:
    """It would miss threads."""
    made.add(1)
    made.add(2)
    cursor = made.page(limit=1).cursor
    with pytest.raises(InvalidCursor, match="sorted by created"):
        made.page(sort="updated", cursor=cursor)
    with pytest.raises(InvalidCursor):
        made.page(order="oldest", cursor=cursor)


@pytest.mark.parametrize("limit", [0, -1, 1001])
def test_limit_out_of_range_is_refused(limit: int) -> None:
    with pytest.raises(ValueError, match="limit"):
        ThreadQuery(limit=limit)


CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["append", "make", "archive", "revert", "rename", "delete"]), st.integers(0, 11)
    ),
    max_size=4,
)


@pytest.mark.case("B84")
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    threads=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), min_size=1, max_size=12),
    limit=st.integers(1, 4),
    changes=st.lists(CHANGES, max_size=12),
    sort=st.sampled_from(["created", "updated", "size"]),
    order=st.sampled_from(["newest", "oldest"]),
    use_index=st.booleans(),
)
def test_pages_miss_none_and_give_none_twice(
    tmp_path_factory: pytest.TempPathFactory,
    threads: list[tuple[int, int]],
    limit: int,
    changes: list[list[tuple[str, int]]],
    sort: str,
    order: str,
    use_index: bool,
) -> None:
    """With ties, and with records, threads, archivings and reverts between the pages."""
    made = HandMadeHome(tmp_path_factory.mktemp("home"))
    for number, (created, updated) in enumerate(threads):
        lines = meta(number, at=created), typed("x" * updated, at=10 + updated)
        made.add(number, *lines, at=created)
        os.utime(made.place(number, at=created), (BEGIN_MS / 1000 + 20, BEGIN_MS / 1000 + 20))
    begun, wanted, gone = len(threads), set(range(len(threads))), set[int]()
    before = made.numbers(sort=sort, order=order, archived=None)
    steps, found, cursor = iter(changes), [], None
    later = 1e9  # behind the moment of the first page
    while True:
        page = made.page(
            sort=sort, order=order, limit=limit, cursor=cursor, archived=None, use_index=use_index
        )
        found += [int(each.thread_id[-12:], 16) for each in page.threads]
        cursor = page.cursor
        if cursor is None:
            break
        for what, which in next(steps, ()):
            later += 1
            _change(made, what, which % begun, threads, later, gone)
    assert len(found) == len(set(found))
    assert wanted - set(found) <= gone
    assert [each for each in found if each in wanted] == [each for each in before if each in found]


def _change(
    made: HandMadeHome, what: str, number: int, threads: list[tuple[int, int]], later: float, gone: set[int]
) -> None:
    created = threads[number][0]
    path, archived = made.place(number, at=created), made.place(number, at=created, archived=True)
    there = next((each for each in (path, archived) if each.exists()), None)
    if what == "make":
        made.add(1000 + int(later), meta(1000 + int(later), at=later), typed("new", at=later), at=created)
    elif there is None:
        return
    elif what == "append":
        with there.open("ab") as file:
            file.write(encoded([typed("more" * 20, at=later)]))
    elif what == "archive" and there == path:
        archived.parent.mkdir(exist_ok=True)
        path.rename(archived)
    elif what == "rename":
        SessionIndex(made.path).append(uuid(number), f"name {later}")
    elif what == "delete":
        for each in made.path.rglob(f"rollout-*-{uuid(number)}*"):
            each.unlink()
        gone.add(number)
    elif what == "revert" and there == path:
        content = there.read_bytes()
        made.write(made.place(number, at=later, rollout=int(later)), content, at=20)


def test_thread_that_is_written_while_it_is_paged_keeps_its_place(made: HandMadeHome) -> None:
    """By update: what is recorded behind the first page moves nothing."""
    for number in (1, 2, 3):
        made.add(number, meta(number), event("x", at=number), at=number)
    first = made.page(sort="updated", limit=1)
    assert [each.thread_id for each in first.threads] == [uuid(3)]
    with made.place(1, at=1).open("ab") as file:
        file.write(encoded([typed("now", at=1e9)]))
    rest = made.page(sort="updated", cursor=first.cursor)
    assert [each.thread_id for each in rest.threads] == [uuid(2), uuid(1)]


def test_page_by_creation_looks_into_its_own_files_only(
    made: HandMadeHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many there are."""
    from thread_store.listing import facts_reader

    for number in range(300):
        made.add(number, at=number)
    read = []
    real = facts_reader.read_facts
    monkeypatch.setattr(facts_reader, "read_facts", lambda *given: read.append(given) or real(*given))
    made.page(limit=10, use_index=False)
    assert len(read) <= thread_list._AT_ONCE
    read.clear()
    made.page(limit=10, sort="updated", use_index=False)
    assert len(read) <= thread_list._AT_ONCE


# While names change


@pytest.mark.parametrize("sort", ["created", "updated"])
@pytest.mark.parametrize("move", ["expand", "archive"])
def test_thread_that_gets_another_name_while_it_is_listed_is_listed(
    made: HandMadeHome, monkeypatch: pytest.MonkeyPatch, move: str, sort: str
) -> None:
    """Between the look at the names and that at the file it was expanded, or archived."""
    path = made.add(1, ending=".zst")
    made.add(2)
    content = zstandard.compress(path.read_bytes())
    made.write(path, content, at=1)
    target = path.with_suffix("") if move == "expand" else made.path / "archived_sessions" / path.name
    honest = thread_list.KnownFiles.facts

    def facts(self: Any, status: Any) -> Any:
        if path.exists() and status.name == path.name:
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(zstandard.decompress(content) if move == "expand" else content)
            path.unlink()
        return honest(self, status)

    monkeypatch.setattr(thread_list.KnownFiles, "facts", facts)
    page = made.page(sort=sort, archived=None)
    assert sorted(each.thread_id for each in page.threads) == [uuid(1), uuid(2)]


@pytest.mark.parametrize("sort", ["created", "updated"])
def test_thread_that_is_taken_out_of_the_archive_while_names_are_read_is_listed(
    made: HandMadeHome, monkeypatch: pytest.MonkeyPatch, sort: str
) -> None:
    """It comes into a folder that was looked at, from one that wasn't yet."""
    made.add(1)
    path, target = made.add(2, archived=True), made.place(2)
    scandir = os.scandir

    def scan(folder: Any) -> Any:
        if str(folder).endswith("archived_sessions") and path.exists():
            os.rename(path, target)
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", scan)
    assert sorted(each.thread_id for each in made.page(sort=sort).threads) == [uuid(1), uuid(2)]


def test_file_that_cannot_be_looked_at_is_told(made: HandMadeHome, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that is missing without a word would be taken for one that is gone."""
    made.add(1)
    bad = made.add(2)
    lstat = os.lstat

    def refuse(path: Any, *arguments: Any, **options: Any) -> os.stat_result:
        if str(path) == str(bad):
            raise OSError(errno.EIO, "bad disk")
        return lstat(path, *arguments, **options)

    monkeypatch.setattr(os, "lstat", refuse)
    page = made.page()
    assert [each.thread_id for each in page.threads] == [uuid(1)]
    assert [each.path for each in page.passed_over] == [str(bad)]
