"""The titles of deleted threads are taken out of the index; everything else in it stays."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from protocol.errors import RolloutWriteError
from tests.thread_store.histories import uuid
from thread_store.locks.errors import LocksBusy
from thread_store.upkeep import title_removal
from thread_store.upkeep.calls import UpkeepCalls
from thread_store.upkeep.title_removal import remove_titles

A, B = uuid(0xA), uuid(0xB)


def title(thread_id: str, name: str) -> bytes:
    return b'{"id":"%s","thread_name":"%s","updated_at":"2026-03-04T05:06:07Z"}\n' % (
        thread_id.encode(),
        name.encode(),
    )


def test_all_lines_of_a_thread_go_and_all_others_stay(tmp_path: Path) -> None:
    """Byte for byte: damaged ones, blank ones, an unfinished last one, and the name in another's title."""
    index = tmp_path / "session_index.jsonl"
    others = [
        b"\n",
        b"\xff\xfe\n",
        b"[]\n",
        title(B, f"about {A}"),
        b"[" * 5000 + b"\n",
        b'{"id":"' + A.encode(),
    ]
    index.write_bytes(title(A, "old") + b"".join(others[:3]) + title(A.upper(), "new") + b"".join(others[3:]))
    os.chmod(index, 0o640)
    assert remove_titles(tmp_path, {A}, calls=UpkeepCalls()) == 2
    assert index.read_bytes() == b"".join(others)
    assert index.stat().st_mode & 0o777 == 0o640


def test_index_without_the_thread_is_left_as_it_is(tmp_path: Path) -> None:
    """The very file; and where there is none, none is made."""
    assert remove_titles(tmp_path, {A}, calls=UpkeepCalls()) == 0
    assert os.listdir(tmp_path) == []
    index = tmp_path / "session_index.jsonl"
    index.write_bytes(title(B, "b"))
    before = index.stat()
    assert remove_titles(tmp_path, {A}, calls=UpkeepCalls()) == 0
    assert (index.stat().st_ino, index.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_title_that_is_added_meanwhile_is_never_lost(tmp_path: Path) -> None:
    """By a program that doesn't keep to the lock: then nothing is replaced."""
    index = tmp_path / "session_index.jsonl"
    index.write_bytes(title(A, "a"))

    class Meanwhile(UpkeepCalls):
        def datasync(self, descriptor: int) -> None:
            super().datasync(descriptor)
            with index.open("ab") as file:
                file.write(title(B, "b"))

    with pytest.raises(RolloutWriteError):
        remove_titles(tmp_path, {A}, calls=Meanwhile())
    assert index.read_bytes() == title(A, "a") + title(B, "b")
    assert sorted(os.listdir(tmp_path)) == ["session_index.jsonl", "session_index.jsonl.lock"]


def test_lock_that_somebody_holds_is_waited_for_and_then_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is changed without it."""
    import fcntl

    (tmp_path / "session_index.jsonl").write_bytes(title(A, "a"))
    monkeypatch.setattr(title_removal, "_LOCK_SECONDS", 0.02)
    with open(tmp_path / "session_index.jsonl.lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(LocksBusy):
            remove_titles(tmp_path, {A}, calls=UpkeepCalls())
    assert (tmp_path / "session_index.jsonl").read_bytes() == title(A, "a")
    assert remove_titles(tmp_path, {A}, calls=UpkeepCalls()) == 1


def test_link_in_its_place_is_refused(tmp_path: Path) -> None:
    """What it leads to stays."""
    real = tmp_path / "real"
    real.write_bytes(title(A, "a"))
    (tmp_path / "session_index.jsonl").symlink_to(real)
    with pytest.raises(RolloutWriteError):
        remove_titles(tmp_path, {A}, calls=UpkeepCalls())
    assert real.read_bytes() == title(A, "a")
