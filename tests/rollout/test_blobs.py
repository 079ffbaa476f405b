"""A folder of blobs: a name holds the whole of its bytes or nothing, whatever fails while it is placed."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from protocol.blobs import Blob, BlobProblem
from rollout.blobs import BlobFolder, blob_folder
from tests.rollout.blob_faults import FaultyBlobCalls
from tests.rollout.faulty import Fault, fails, fails_after, short


def blob(data: bytes = b"x" * 100_000) -> Blob:
    return Blob(hashlib.sha256(data).hexdigest(), data)


def reason(read: bytes | BlobProblem) -> str:
    assert isinstance(read, BlobProblem)
    return read.reason


@pytest.mark.case("B101")
@pytest.mark.parametrize("umask", [0o000, 0o077, 0o777])
def test_blob_is_private_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    """Its file has mode 0600, its folder 0700."""
    folder = BlobFolder(tmp_path / "blobs")
    before = os.umask(umask)
    try:
        folder.place(blob())
    finally:
        os.umask(before)
    assert stat.S_IMODE(os.stat(folder.path).st_mode) == 0o700
    assert stat.S_IMODE(os.stat(folder.file_path(blob().sha256)).st_mode) == 0o600
    assert folder.read(blob().sha256) == blob().data


def test_same_bytes_are_kept_once(tmp_path: Path) -> None:
    """The file that is there stays, with a new time: somebody wanted it again."""
    folder = BlobFolder(tmp_path)
    folder.place(blob())
    path = folder.file_path(blob().sha256)
    inode = os.stat(path).st_ino
    os.utime(path, (1, 1))
    folder.place(blob())
    assert os.listdir(tmp_path) == [blob().sha256]
    assert os.stat(path).st_ino == inode
    assert os.stat(path).st_mtime > 1_000_000


@pytest.mark.parametrize("stands", [b"", b"x" * 99_999, b"y" * 100_000])
def test_damaged_blob_is_told_and_mended_when_it_comes_again(tmp_path: Path, stands: bytes) -> None:
    """What a power cut left of it does no harm."""
    folder = BlobFolder(tmp_path)
    path = Path(folder.file_path(blob().sha256))
    path.write_bytes(stands)
    assert reason(folder.read(blob().sha256)) == "damaged"
    folder.place(blob())
    assert folder.read(blob().sha256) == blob().data


def test_link_in_the_place_of_a_blob_is_replaced_not_followed(tmp_path: Path) -> None:
    """What it leads to stays as it was."""
    folder = BlobFolder(tmp_path / "blobs")
    other = tmp_path / "other"
    other.write_bytes(blob().data)
    os.mkdir(folder.path)
    os.symlink(other, folder.file_path(blob().sha256))
    assert reason(folder.read(blob().sha256)) == "unreadable"
    folder.place(blob())
    assert not os.path.islink(folder.file_path(blob().sha256))
    assert other.read_bytes() == blob().data


def test_link_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    """Nothing is written through it."""
    (tmp_path / "elsewhere").mkdir()
    os.symlink(tmp_path / "elsewhere", tmp_path / "blobs")
    with pytest.raises(OSError, match="link"):
        BlobFolder(tmp_path / "blobs").place(blob())
    assert os.listdir(tmp_path / "elsewhere") == []


@pytest.mark.case("B104")
@pytest.mark.parametrize("name", ["../x", "", "a" * 63, "A" * 64, "a" * 64 + "\n", "\0" * 64])
def test_what_is_no_name_becomes_no_path(tmp_path: Path, name: str) -> None:
    """It is a blob that can't be read."""
    assert reason(BlobFolder(tmp_path).read(name)) == "unreadable"


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_odd_file_in_the_place_of_a_blob_is_a_problem(tmp_path: Path, make: Any) -> None:
    """Reading it doesn't hang and doesn't raise."""
    folder = BlobFolder(tmp_path)
    make(folder.file_path(blob().sha256))
    assert reason(folder.read(blob().sha256)) == "unreadable"
    assert reason(folder.read("0" * 64)) == "missing"
    assert [*folder.entries()] == []


def test_blobs_lie_in_the_home_or_beside_the_rollout(tmp_path: Path) -> None:
    """Archived or not."""
    home = str(tmp_path)
    for path in ("sessions/2031/01/02/rollout.jsonl", "archived_sessions/rollout.jsonl.zst", "alone.jsonl"):
        assert blob_folder(tmp_path / path) == f"{home}/blobs"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO], ids=errno.errorcode.get)
@pytest.mark.parametrize("effect", [fails, fails_after])
@pytest.mark.parametrize(
    "call", ["make_folder", "open_new", "write", "close", "rename", "open_read", "pread"]
)
def test_failure_of_any_call_leaves_a_whole_blob_or_none(
    tmp_path: Path, call: str, effect: Any, number: int
) -> None:
    """Nothing else stays behind, and the next try succeeds."""
    for first in count(1):
        folder = BlobFolder(
            tmp_path / f"{first}/blobs", calls=FaultyBlobCalls(Fault(call, effect(number), first))
        )
        faulty = folder._calls
        assert isinstance(faulty, FaultyBlobCalls)
        for _ in range(2):
            try:
                folder.place(blob())
            except OSError as error:
                assert error.errno == number
        names = os.listdir(folder.path) if os.path.exists(folder.path) else []
        left = [name for name in names if name != blob().sha256]
        assert not left or (call, effect) == ("open_new", fails_after)
        struck = bool(faulty.strikes)
        faulty.lift()
        folder.place(blob())
        assert BlobFolder(folder.path).read(blob().sha256) == blob().data
        if not struck:
            return


def test_short_writes_are_completed(tmp_path: Path) -> None:
    """As long as something is written."""
    fault = Fault("write", short(lambda size: size // 3), times=None)
    BlobFolder(tmp_path, calls=FaultyBlobCalls(fault)).place(blob())
    assert BlobFolder(tmp_path).read(blob().sha256) == blob().data


@pytest.mark.parametrize("call", ["datasync", "sync_folder", "open_read"])
def test_sync_that_fails_is_told(tmp_path: Path, call: str) -> None:
    """It covers the bytes and the name."""
    folder = BlobFolder(tmp_path, calls=FaultyBlobCalls())
    folder.place(blob())
    BlobFolder(tmp_path, calls=FaultyBlobCalls()).sync([blob()])
    with pytest.raises(OSError, match="Input"):
        BlobFolder(tmp_path, calls=FaultyBlobCalls(Fault(call, fails(errno.EIO)))).sync([blob()])


@pytest.mark.parametrize("harm", [os.unlink, lambda path: os.truncate(path, 5)])
def test_sync_brings_back_what_is_gone(tmp_path: Path, harm: Any) -> None:
    """Somebody removed it, or cut it, before it was on stable storage."""
    folder = BlobFolder(tmp_path)
    folder.place(blob())
    harm(folder.file_path(blob().sha256))
    folder.sync([blob()])
    assert folder.read(blob().sha256) == blob().data
