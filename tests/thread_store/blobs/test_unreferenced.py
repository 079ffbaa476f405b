"""Blobs that nothing names: found only where every file says so, removed only if nobody wanted them since."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

import pytest
import zstandard

from protocol.blobs import Blob
from rollout.blobs import BlobFolder
from tests.thread_store.histories import uuid
from thread_store import Home, UnreferencedBlobs, find_unreferenced_blobs, remove_blob
from thread_store.locks import ThreadLocks

NAME = f"rollout-2031-01-02T03-04-05-{uuid(0xA)}.jsonl"


def place(home: Path, data: bytes, *, age_seconds: float = 1e6) -> str:
    """A blob; returns its name."""
    sha256 = hashlib.sha256(data).hexdigest()
    folder = BlobFolder(home / "blobs")
    folder.place(Blob(sha256, data))
    path = folder.file_path(sha256)
    then = os.stat(path).st_mtime - age_seconds
    os.utime(path, (then, then))
    return sha256


def naming(*names: str) -> bytes:
    """Bytes of a rollout that name blobs, in both forms by turns."""
    forms = ('"blob:sha256:{},image/png;base64"', "[… 5 characters cut; the whole text is blob sha256:{} …]")
    return "".join(forms[number % 2].format(name) + "\n" for number, name in enumerate(names)).encode()


def find(home: Path, **settings: float) -> UnreferencedBlobs:
    return find_unreferenced_blobs(Home(home), coordination=ThreadLocks(home).coordinated(), **settings)


def names(found: UnreferencedBlobs) -> list[str]:
    return [os.path.basename(each.path) for each in found.blobs]


@pytest.mark.parametrize(
    "place_of",
    [
        f"sessions/2031/01/02/{NAME}",
        f"sessions/{NAME}",
        f"archived_sessions/{NAME}",
        f"thread-store/kept/{NAME}.5-6-0123abcd.unwritten",
        "sessions/2031/notes.txt",
    ],
)
@pytest.mark.parametrize("compressed", [False, True])
def test_blob_that_any_file_names_is_none(tmp_path: Path, place_of: str, compressed: bool) -> None:
    """Live, archived, compressed, set aside, or of an odd name."""
    named, other, unnamed = (place(tmp_path, data) for data in (b"a", b"b", b"c"))
    path = tmp_path / place_of
    path.parent.mkdir(parents=True)
    data = naming(named, other)
    path.write_bytes(zstandard.compress(data) if compressed else data)
    found = find(tmp_path)
    assert names(found) == [unnamed]
    assert (found.referenced, found.size_bytes, found.passed_over) == (2, 1, ())


@pytest.mark.parametrize("shift", [-200, -66, -64, -1, 0, 1])
def test_name_on_the_border_of_two_blocks_is_seen(tmp_path: Path, shift: int) -> None:
    """Wherever it is cut."""
    named = place(tmp_path, b"a")
    path = tmp_path / "sessions" / NAME
    path.parent.mkdir()
    path.write_bytes(b"x" * ((1 << 20) + shift) + naming(named))
    assert names(find(tmp_path)) == []


def test_young_blob_is_left_out(tmp_path: Path) -> None:
    """Its line may be on the way."""
    place(tmp_path, b"a", age_seconds=100)
    assert names(find(tmp_path, min_age_seconds=3600)) == []
    assert len(names(find(tmp_path, min_age_seconds=10))) == 1


def test_what_a_killed_writer_left_is_found(tmp_path: Path) -> None:
    """A blob that never got its name."""
    sha256 = place(tmp_path, b"a")
    left = tmp_path / "blobs" / f".{sha256}.0123456789ab.tmp"
    os.rename(tmp_path / "blobs" / sha256, left)
    (tmp_path / "blobs" / "notes.txt").write_text("not ours")
    (found,) = find(tmp_path).blobs
    assert (found.path, found.temporary) == (str(left), True)


@pytest.mark.parametrize("damage", [b"\x28\xb5\x2f\xfd damaged", zstandard.compress(b"x" * 5000)[:-9]])
def test_what_can_not_be_read_keeps_all(tmp_path: Path, damage: bytes) -> None:
    """It may name any of them."""
    place(tmp_path, b"a")
    path = tmp_path / "sessions" / f"{NAME}.zst"
    path.parent.mkdir()
    path.write_bytes(damage)
    found = find(tmp_path)
    assert not found.blobs
    assert [each.path for each in found.passed_over] == [str(path)]


def test_odd_entries_are_passed_by(tmp_path: Path) -> None:
    """Folders and pipes with the names of rollouts, links that lead nowhere: nothing hangs."""
    unnamed = place(tmp_path, b"a")
    sessions = tmp_path / "sessions"
    (sessions / NAME).mkdir(parents=True)
    os.mkfifo(sessions / f"{NAME}.zst")
    os.symlink(tmp_path / "nowhere", sessions / "link.jsonl")
    os.symlink(sessions, sessions / "loop")
    assert names(find(tmp_path)) == [unnamed]


def test_home_without_blobs_has_none(tmp_path: Path) -> None:
    """And nothing is made by looking, not even a lock."""
    found = find(tmp_path)
    assert (found.blobs, found.referenced) == ((), 0)
    assert os.listdir(tmp_path) == []


class _Meanwhile:
    """A coordination lock at whose taking something happens."""

    def __init__(self, act) -> None:  # type: ignore[no-untyped-def]
        self._act = act

    def __enter__(self) -> None:
        self._act()

    def __exit__(self, *error: object) -> None:
        return


def test_what_happens_during_the_search_counts(tmp_path: Path) -> None:
    """Lines that are appended, files that come, and one that moves while it is looked for."""
    first, second, third, unnamed = (place(tmp_path, data) for data in (b"a", b"b", b"c", b"d"))
    sessions = tmp_path / "sessions"
    sessions.mkdir()
    moving, growing = sessions / NAME, sessions / NAME.replace("05-0", "06-0")
    growing.write_bytes(naming(first)[:-40])

    def act() -> None:
        (tmp_path / "archived_sessions").mkdir()
        moving.write_bytes(naming(second))
        shutil.move(moving, tmp_path / "archived_sessions" / NAME)
        growing.write_bytes(naming(first, third))

    found = find_unreferenced_blobs(Home(tmp_path), coordination=_Meanwhile(act))
    assert names(found) == [unnamed]


def test_blob_is_removed_unless_it_was_wanted_again(tmp_path: Path) -> None:
    """A writer that names it anew gives it a new time."""
    place(tmp_path, b"a")
    place(tmp_path, b"b")
    found = {Path(each.path).read_bytes(): each for each in find(tmp_path).blobs}
    place(tmp_path, b"b", age_seconds=0)
    assert remove_blob(found[b"a"])
    assert not remove_blob(found[b"a"])
    assert not remove_blob(found[b"b"])
    assert len(os.listdir(tmp_path / "blobs")) == 1
