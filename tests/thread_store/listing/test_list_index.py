"""The derived index: whatever becomes of it, a list says the same."""

from __future__ import annotations

import os
import random
import sqlite3
import stat
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.thread_store.listing.homes import HandMadeHome, encoded, meta, typed, uuid
from thread_store.listing import facts_reader, list_index, migrations
from thread_store.listing.index_guard import remove_index
from thread_store.listing.migrations import APPLICATION_ID, MIGRATIONS, IndexNotUsable, Migration, migrate

THREADS = 30


@pytest.fixture
def filled(made: HandMadeHome) -> HandMadeHome:
    """A home of 30 threads, some of them in several files, with an index that knows all of it."""
    for number in range(THREADS):
        made.add(number, at=number * 20_000)
    made.add(3, meta(3, at=99), typed("reverted"), at=99, rollout=9)
    made.add(4, meta(4), typed("twin"), at=80_000, archived=True)
    sessions = made.path / "sessions"
    for folder in [made.path / "archived_sessions", sessions, *sessions.rglob("*")]:
        if folder.is_dir():
            os.utime(folder, (1, 1))  # settled long ago
    assert len(made.list()) == THREADS
    return made


def said(made: HandMadeHome, **options: object) -> list[str]:
    """The previews of all threads, by way of the index; whatever becomes of that, they are right."""
    page = made.page(limit=1000, **options)
    assert page.threads == made.page(limit=1000, use_index=False, **options).threads
    return [f"{each.thread_id} {each.preview}" for each in page.threads]


def test_unchanged_home_is_neither_listed_nor_read_again(
    filled: HandMadeHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index knows it all."""
    before = filled.page().threads

    def refuse(*given: object) -> None:
        raise AssertionError(given)

    monkeypatch.setattr(facts_reader, "read_facts", refuse)
    monkeypatch.setattr(os, "scandir", refuse)
    assert filled.page().threads == before


@pytest.mark.case("B26")
@pytest.mark.parametrize(
    "change",
    [
        lambda home: home.add(5, meta(5), typed("grew"), typed("more"), at=100_000),
        lambda home: home.place(6, at=120_000).unlink(),
        lambda home: home.add(99, at=33),
        lambda home: home.add(7, meta(7), typed("moved"), at=140_000, rollout=10),
        lambda home: home.place(8, at=160_000).rename(home.place(98, at=160_000)),
    ],
    ids=["grown", "gone", "new", "reverted", "renamed"],
)
def test_what_changed_is_read_again(filled: HandMadeHome, change: Callable[[HandMadeHome], object]) -> None:
    """A file by its size, time and inode, a folder by its time."""
    before = said(filled)
    change(filled)
    assert said(filled) != before
    assert said(filled) == said(filled, sort="created")


def test_same_size_written_over_is_read_again(filled: HandMadeHome) -> None:
    """As an erase does it: the time tells."""
    path = filled.place(5, at=100_000)
    path.write_bytes(path.read_bytes().replace(b"prompt 5", b"XXXXXX 5"))
    previews = [each.preview for each in filled.page().threads]
    assert "XXXXXX 5" in previews
    assert "prompt 5" not in previews


def test_file_that_was_just_written_is_not_kept(made: HandMadeHome) -> None:
    """It may change again within the same tick of the clock."""
    made.add(1)
    os.utime(made.place(1))
    made.page()
    assert not made.index.exists() or b"prompt 1" not in made.index.read_bytes()


def corrupt(path: Path, damage: Callable[[bytearray], object]) -> None:
    content = bytearray(path.read_bytes())
    damage(content)
    path.write_bytes(content)


@pytest.mark.case("B83")
@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content.clear(),
        lambda content: content.__setitem__(slice(0, 16), b"not a database.."),
        lambda content: content.__setitem__(slice(100, 4096), os.urandom(3996)),
        lambda content: content.__delitem__(slice(len(content) // 2, None)),
        lambda content: content.__setitem__(slice(4096, None), bytes(len(content) - 4096)),
        lambda content: content.__setitem__(slice(None), os.urandom(10_000)),
    ],
    ids=["empty", "header", "schema", "half", "zeroes", "noise"],
)
def test_corrupt_index_changes_no_answer(filled: HandMadeHome, damage: Callable[[bytearray], object]) -> None:
    """It is done without, and made anew."""
    before = said(filled)
    corrupt(filled.index, damage)
    assert said(filled) == before
    assert said(filled) == before
    assert filled.page().notes == ()


@pytest.mark.case("B83")
@pytest.mark.parametrize("seed", range(40))
def test_bytes_that_flipped_in_the_index_change_no_answer(filled: HandMadeHome, seed: int) -> None:
    """Wherever they are: in a page's structure or in a text."""
    chance = random.Random(seed)

    def flip(content: bytearray) -> None:
        for _ in range(20):
            content[chance.randrange(100, len(content))] ^= 1 << chance.randrange(8)

    before = said(filled)
    corrupt(filled.index, flip)
    assert said(filled) == before
    assert said(filled, sort="updated") == list(reversed(said(filled, sort="updated", order="oldest")))


def test_write_that_was_killed_half_way_is_undone(filled: HandMadeHome, tmp_path: Path) -> None:
    """What is left of it is a database and its journal: the next list mends it, and says the same."""
    before = said(filled)
    writer = sqlite3.connect(filled.index, isolation_level=None)
    writer.execute("PRAGMA cache_size = 1")
    writer.execute("BEGIN IMMEDIATE")
    writer.execute("UPDATE facts SET facts = zeroblob(9000)")
    writer.execute("UPDATE folder_names SET names = zeroblob(9000)")
    names = ("list.sqlite", "list.sqlite-journal")
    left = [(filled.index.with_name(name), filled.index.with_name(name).read_bytes()) for name in names]
    assert all(content for _, content in left)
    writer.execute("ROLLBACK")
    writer.close()
    for path, content in left:
        path.write_bytes(content)
    assert said(filled) == before
    assert filled.page().notes == ()
    assert not filled.index.with_name("list.sqlite-journal").exists()


def test_deleted_index_is_made_again(filled: HandMadeHome) -> None:
    """At any time."""
    before = said(filled)
    filled.index.unlink()
    assert said(filled) == before
    assert filled.index.exists()


def test_locked_index_is_done_without(filled: HandMadeHome) -> None:
    """Nobody waits for long, and the list says so once."""
    before = said(filled)
    connection = sqlite3.connect(filled.index, isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    page = filled.page()
    assert [f"{each.thread_id} {each.preview}" for each in page.threads] == before
    assert len(page.notes) == 1
    assert "locked" in page.notes[0]
    connection.execute("ROLLBACK")
    connection.close()
    assert filled.page().notes == ()


@pytest.mark.parametrize(
    "error", [sqlite3.OperationalError("attempt to write a readonly database"), OSError(30, "Read-only")]
)
def test_index_that_takes_nothing_is_read_all_the_same(
    filled: HandMadeHome, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """A read-only home, a full disk."""
    filled.add(77, at=5)

    def refuse(*given: object) -> None:
        raise error

    monkeypatch.setattr(list_index, "migrate", refuse)
    page = filled.page()
    assert page.threads == filled.page(use_index=False).threads
    assert len(page.notes) == 1
    assert filled.index.exists()


@pytest.mark.parametrize("kind", ["folder", "link", "pipe"])
def test_something_else_in_its_place_is_left_alone(filled: HandMadeHome, tmp_path: Path, kind: str) -> None:
    """It isn't ours to write through or to remove."""
    before = said(filled)
    filled.index.unlink()
    target = tmp_path / "target"
    target.write_bytes(b"precious")
    if kind == "folder":
        filled.index.mkdir()
    elif kind == "link":
        filled.index.symlink_to(target)
    else:
        os.mkfifo(filled.index)
    page = filled.page()
    assert [f"{each.thread_id} {each.preview}" for each in page.threads] == before
    assert len(page.notes) == 1
    assert target.read_bytes() == b"precious"


def test_database_of_another_program_is_left_alone(filled: HandMadeHome) -> None:
    """Whatever it is doing there."""
    filled.index.unlink()
    with sqlite3.connect(filled.index) as other:
        other.execute("CREATE TABLE precious (x)")
    other.close()
    content = filled.index.read_bytes()
    assert len(said(filled)) == THREADS
    assert filled.index.read_bytes() == content


@pytest.mark.case("B101")
def test_index_is_private_under_any_umask(made: HandMadeHome) -> None:
    """File 0600, folders 0700."""
    made.add(1)
    before = os.umask(0)
    try:
        made.page()
    finally:
        os.umask(before)
    for path in (made.index, made.index.parent, made.index.parent.parent):
        assert stat.S_IMODE(path.stat().st_mode) == (0o600 if path.is_file() else 0o700)
    assert {each.name for each in made.index.parent.iterdir()} == {"list.sqlite", ".list-index"}


def test_removed_index_leaves_nothing_behind(filled: HandMadeHome) -> None:
    """For whoever erases a secret."""
    assert b"prompt 5" in filled.index.read_bytes()
    assert remove_index(filled.path)
    assert not any(b"prompt" in each.read_bytes() for each in filled.index.parent.iterdir())
    assert remove_index(filled.path)


def test_looking_at_an_empty_home_makes_no_index(made: HandMadeHome) -> None:
    """There is nothing to keep."""
    (made.path / "sessions").mkdir(parents=True)
    made.page()
    assert not made.index.exists()


# Migrations


def open_index(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    return sqlite3.connect(path, isolation_level=None)


def schema(path: Path) -> list[tuple[str, str]]:
    connection = open_index(path)
    try:
        found = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql NOT NULL ORDER BY name")
        return found.fetchall()
    finally:
        connection.close()


def test_migrations_are_numbered_in_order() -> None:
    """None is ever taken out or put between."""
    assert [each.number for each in MIGRATIONS] == list(range(1, len(MIGRATIONS) + 1))


@pytest.mark.case("B116")
def test_migrations_may_be_applied_again(tmp_path: Path) -> None:
    """The second time changes nothing."""
    connection = open_index(tmp_path / "x")
    migrate(connection)
    first = schema(tmp_path / "x")
    migrate(connection)
    connection.close()
    assert schema(tmp_path / "x") == first


class Killed(BaseException):
    pass


def statements_of(path: Path) -> int:
    """How many statements all migrations take."""
    seen: list[str] = []
    connection = open_index(path)
    connection.set_trace_callback(seen.append)
    migrate(connection)
    connection.close()
    return len(seen)


@pytest.mark.case("B116")
def test_migration_that_is_killed_at_any_statement_completes_on_the_next_start(tmp_path: Path) -> None:
    """A process that dies there leaves a migration done or not done."""
    whole = tmp_path / "whole"
    count = statements_of(whole)
    script = """
        import os, sqlite3, sys
        from thread_store.listing.migrations import migrate
        connection, left = sqlite3.connect(sys.argv[1], isolation_level=None), int(sys.argv[2])
        def step(statement):
            global left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), 9)
        connection.set_trace_callback(step)
        migrate(connection)
    """
    for number in range(1, count + 1):
        path = tmp_path / f"killed {number}"
        command = [sys.executable, "-c", textwrap.dedent(script), str(path), str(number)]
        assert subprocess.run(command).returncode == -9
        connection = open_index(path)
        migrate(connection)
        connection.close()
        assert schema(path) == schema(whole)


@pytest.mark.case("B116")
def test_migration_that_fails_half_way_is_done_whole_by_the_next(tmp_path: Path) -> None:
    """Its second statement fails: the first is undone."""
    half = Migration(3, "half", ("CREATE TABLE one (x)", "CREATE TABLE facts (x)"))
    mended = Migration(3, "half", ("CREATE TABLE one (x)", "CREATE TABLE two (x)"))
    connection = open_index(tmp_path / "x")
    with pytest.raises(sqlite3.OperationalError):
        migrate(connection, [*MIGRATIONS, half])
    assert "one" not in dict(schema(tmp_path / "x"))
    migrate(connection, [*MIGRATIONS, mended])
    connection.close()
    assert {"one", "two"} <= dict(schema(tmp_path / "x")).keys()


def test_older_version_writes_beside_a_newer_one(
    filled: HandMadeHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the newer one added stays; a fact that the older one doesn't know is NULL."""
    newer = Migration(3, "newer", ("ALTER TABLE facts ADD COLUMN later TEXT", "CREATE TABLE later (x)"))
    connection = open_index(filled.index)
    migrate(connection, [*MIGRATIONS, newer])
    connection.execute("UPDATE facts SET later = 'known'")
    filled.add(50, at=7)
    page = filled.page()
    assert page.notes == ()
    assert len(page.threads) == THREADS + 1
    rows = dict(connection.execute("SELECT later, count(*) FROM facts GROUP BY later"))
    connection.close()
    assert rows[None] == 1
    assert rows["known"] >= THREADS - 1


def test_older_version_leaves_an_index_alone_that_it_would_harm(filled: HandMadeHome) -> None:
    """It lists without it, and says so."""
    newer = Migration(3, "newer", ("CREATE TABLE later (x)",), oldest=3)
    connection = open_index(filled.index)
    migrate(connection, [*MIGRATIONS, newer])
    with pytest.raises(IndexNotUsable):
        migrate(connection)
    connection.close()
    content = filled.index.read_bytes()
    filled.add(50, at=7)
    page = filled.page()
    assert len(page.threads) == THREADS + 1
    assert "newer version" in page.notes[0]
    assert filled.index.read_bytes() == content


def test_facts_of_another_version_are_read_again(
    filled: HandMadeHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And kept beside the others."""
    monkeypatch.setattr(list_index, "FACTS_VERSION", 99)
    assert len(said(filled)) == THREADS
    connection = open_index(filled.index)
    versions = [each for (each,) in connection.execute("SELECT DISTINCT version FROM facts ORDER BY version")]
    connection.close()
    assert versions == [1, 99]


def test_two_that_begin_an_index_at_once_make_one(tmp_path: Path) -> None:
    """Both think that it is empty."""
    first, second = open_index(tmp_path / "x"), open_index(tmp_path / "x")
    migrations._begin(first)
    migrations._begin(second)
    migrate(second)
    migrate(first)
    assert first.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
    first.close()
    second.close()


def test_ctrl_c_while_reading_leaves_the_index_whole(
    filled: HandMadeHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was there is there, and the next list goes on."""
    before = said(filled)
    path = filled.place(5, at=100_000)
    filled.write(path, encoded([meta(5), typed("grew")]), at=3)

    def interrupt(*given: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(facts_reader, "read_facts", interrupt)
        with pytest.raises(KeyboardInterrupt):
            filled.page()
    assert len(said(filled)) == len(before)
    assert uuid(5) in {each.thread_id for each in filled.page().threads}
