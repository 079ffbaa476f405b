"""Where the bytes are: each file once, by where it lies and what it is called."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.thread_store.histories import turns, uuid, write_thread
from thread_store.home import Home
from thread_store.upkeep.storage_stats import KINDS, kind_of, measure_storage

A, B = uuid(0xA), uuid(0xB)
NAME = f"rollout-2026-03-04T05-06-07-{A}.jsonl"


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        (f"sessions/2026/03/04/{NAME}", "live"),
        (f"sessions/{NAME}.zst", "live_compressed"),
        (f"archived_sessions/{NAME}", "archived"),
        (f"archived_sessions/{NAME}.zst", "archived_compressed"),
        (f"sessions/2026/03/04/.{NAME}.0123456789ab.tmp", "leftovers"),
        ("sessions/2026/03/04/notes.txt", "other"),
        ("blobs/" + "a" * 64, "blobs"),
        (f"thread-store/kept/{NAME}.9-1-00000000.torn", "kept"),
        ("thread-store/kept/.x.tmp", "leftovers"),
        (f"thread-store/derived/{A}.snapshot", "derived"),
        ("thread-store/labels.jsonl", "titles"),
        ("session_index.jsonl", "titles"),
        ("history.jsonl", "titles"),
        (f"thread-writer-locks/{A}.lock", "locks"),
        ("state_5.sqlite", "other"),
        ("sessions", "other"),
    ],
)
def test_kind_of_a_file_is_told_by_its_path(path: str, kind: str) -> None:
    """From the home on."""
    assert kind_of(tuple(path.split("/"))) == kind
    assert kind in KINDS


def test_all_bytes_of_a_home_are_counted_once(tmp_path: Path) -> None:
    """The sum is that of all regular files; links, pipes and folders are none; nothing is opened."""
    home = Home(tmp_path / "home")
    path = write_thread(home, A, turns(1))
    write_thread(home, B, turns(2))
    archived = home.path / "archived_sessions" / path.name.replace(A, B)
    archived.parent.mkdir()
    archived.write_bytes(b"x" * 77)
    (home.path / "odd.jsonl").mkdir()
    (home.path / "link").symlink_to(path)
    os.mkfifo(home.path / "sessions" / f"rollout-pipe-{A}.jsonl")
    secret = home.path / "blobs" / ("a" * 64)
    secret.parent.mkdir()
    secret.write_bytes(b"y" * 5)
    secret.chmod(0)
    found = measure_storage(home)
    files = [each for each in home.path.rglob("*") if each.is_file() and not each.is_symlink()]
    assert found.bytes == sum(each.stat().st_size for each in files)
    assert {each.kind: each.files for each in found.kinds if each.files} == {
        "live": 2,
        "archived": 1,
        "blobs": 1,
    }
    assert (found.threads, found.archived_threads) == (2, 0)
    assert [each.kind for each in found.kinds] == list(KINDS)


def test_progress_is_told(tmp_path: Path) -> None:
    """Now and then, with how many were counted."""
    home = Home(tmp_path)
    write_thread(home, A, turns(1))
    told: list[int] = []
    measure_storage(home, told.append)
    assert told == [0]


def test_home_that_is_not_there_is_empty(tmp_path: Path) -> None:
    """And isn't made."""
    found = measure_storage(Home(tmp_path / "none"))
    assert (found.bytes, found.threads, found.unlistable) == (0, 0, ())


def test_sessions_that_are_a_link_count(tmp_path: Path) -> None:
    """To another disk, by the user's choice; further links are not followed."""
    home, disk = Home(tmp_path / "home"), tmp_path / "disk"
    path = write_thread(home, A, turns(1))
    size = path.stat().st_size
    (home.path / "sessions").rename(disk)
    (home.path / "sessions").symlink_to(disk)
    (disk / "again").symlink_to(disk)
    assert measure_storage(home).bytes == size
