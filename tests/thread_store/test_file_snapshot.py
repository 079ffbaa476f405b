"""Snapshots of files that the agent read: one state of the file, and nothing that isn't a file."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
from pathlib import Path

import pytest

from protocol import SessionMeta
from rollout import read_rollout
from thread_store.local_store import LocalThreadStore
from thread_store.turns import file_snapshot
from thread_store.turns.file_snapshot import snapshot_file


def test_snapshot_tells_size_time_and_hash(tmp_path: Path) -> None:
    """Of the bytes as they are, large or empty, through a link too."""
    for data in (b"", b"hello", b"x" * 3_000_000):
        path = tmp_path / "a.txt"
        path.write_bytes(data)
        link = tmp_path / "link"
        link.unlink(missing_ok=True)
        link.symlink_to(path)
        for name in (path, link):
            taken = snapshot_file(name)
            assert (taken.path, taken.size) == (os.fspath(name), len(data))
            assert taken.sha256 == hashlib.sha256(data).hexdigest()
            assert taken.mtime_ns == path.stat().st_mtime_ns


def test_file_that_changes_meanwhile_is_hashed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hash and size are those of one state; a file that never rests is an error."""
    path, real = tmp_path / "a.txt", file_snapshot._hash
    path.write_bytes(b"old")
    changes = [b"newer", b"newest text"]

    def meddle(descriptor: int) -> str:
        digest = real(descriptor)
        if changes:
            path.write_bytes(changes.pop(0))
        return digest

    monkeypatch.setattr(file_snapshot, "_hash", meddle)
    taken = snapshot_file(path)
    assert (taken.size, taken.sha256) == (11, hashlib.sha256(b"newest text").hexdigest())
    changes += [b"x" * size for size in range(20, 40)]
    with pytest.raises(OSError, match="changes while it is read") as caught:
        snapshot_file(path)
    assert caught.value.errno == errno.EBUSY


@pytest.mark.parametrize("kind", ["absent", "folder", "fifo"])
def test_what_is_no_file_is_refused(tmp_path: Path, kind: str) -> None:
    """Without waiting for a writer of a pipe."""
    path = tmp_path / "a"
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    with pytest.raises(OSError, match=r"No such file|no regular file"):
        snapshot_file(path)


def test_turn_records_what_was_read(tmp_path: Path) -> None:
    """Relative to the thread's folder; what can't be read is not recorded."""

    async def main() -> str:
        async with LocalThreadStore(tmp_path / "home", collect_git=False) as store:
            thread = await store.create_thread(SessionMeta(cwd=str(tmp_path)))
            async with thread.turn() as turn:
                taken = await turn.file_read("a.txt")
                assert taken.path == str(tmp_path / "a.txt")
                with pytest.raises(FileNotFoundError):
                    await turn.file_read("b.txt")
            return thread.path

    (tmp_path / "a.txt").write_bytes(b"hello")
    path = asyncio.run(main())
    lines = [record.line for record in read_rollout(path) if record.line is not None]
    (read,) = [line.payload_object() for line in lines if line.type == "x_files"]
    assert (read["size"], read["path"]) == (5, str(tmp_path / "a.txt"))
