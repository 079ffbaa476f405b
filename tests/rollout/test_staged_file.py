"""A file that is staged beside its place: it appears whole, or what was there stays."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from rollout.guarded_replace import replace_file
from rollout.staged_file import StagedFile, put_back
from rollout.syscalls import FileCalls
from tests.rollout.faulty import Fault, FaultyCalls, fails, fails_after
from tests.thread_store.scripted import ScriptedCalls


def write(descriptor: int) -> None:
    os.write(descriptor, b"new")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "titles.jsonl"
    found.write_bytes(b"old")
    return found


def replaced(path: Path, calls: FileCalls | None = None, **how: object) -> bool:
    return replace_file(str(path), write, calls=calls or FileCalls(), **how)  # type: ignore[arg-type]


def test_replacing_leaves_the_new_content_alone(path: Path) -> None:
    """Private, whatever the umask, and with no other name beside it."""
    before = os.umask(0)
    try:
        assert replaced(path)
    finally:
        os.umask(before)
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(path.parent) == [path.name]


def test_file_that_is_not_there_is_made(tmp_path: Path) -> None:
    """Replacing nothing is making."""
    assert replaced(tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == b"new"


def test_check_that_says_no_leaves_the_old_content(path: Path) -> None:
    """Something newer was published: ours goes."""
    assert not replaced(path, check=lambda: False)
    assert path.read_bytes() == b"old"
    assert os.listdir(path.parent) == [path.name]


def test_check_that_raises_leaves_the_old_content(path: Path) -> None:
    """A lock that was lost is told as it is."""

    def lost() -> bool:
        raise KeyError("lock")

    with pytest.raises(KeyError):
        replaced(path, check=lost)
    assert path.read_bytes() == b"old"
    assert os.listdir(path.parent) == [path.name]


def test_nothing_happens_between_the_check_and_the_rename(path: Path) -> None:
    """What was checked is still so when the file gets its name."""
    calls = ScriptedCalls()
    assert replaced(path, calls, check=lambda: not calls.log.append(("check", ())))
    names = [name for name, _ in calls.log]
    at = names.index("check")
    assert names[at + 1] == "rename"
    assert names[at + 2] == "sync_folder"
    assert "datasync" in names[:at]


def test_look_of_another_file_is_taken_over(path: Path) -> None:
    """Mode and times stay as they were."""
    os.chmod(path, 0o640)
    os.utime(path, ns=(1_000_000_007, 1_000_000_009))
    assert replaced(path, like=os.stat(path))
    status = path.stat()
    assert stat.S_IMODE(status.st_mode) == 0o640
    assert status.st_mtime_ns == 1_000_000_009


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("call", ["open_new", "open_overwrite", "fstat", "datasync", "rename"])
def test_failure_leaves_the_old_content(path: Path, call: str, number: int) -> None:
    """And no other name."""
    with pytest.raises(OSError, match=os.strerror(number)):
        replaced(path, ScriptedCalls(Fault(call, fails(number))))
    assert path.read_bytes() == b"old"
    assert os.listdir(path.parent) == [path.name]


def test_rename_that_is_done_and_reported_as_failed_counts(path: Path) -> None:
    """The path tells."""
    assert replaced(path, ScriptedCalls(Fault("rename", fails_after(errno.EIO))))
    assert path.read_bytes() == b"new"


def test_sync_that_fails_behind_the_rename_is_told(path: Path) -> None:
    """The new content stands there and may not last."""
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        replaced(path, ScriptedCalls(Fault("sync_folder", fails(errno.EIO))))
    assert path.read_bytes() == b"new"


@pytest.mark.parametrize("number", [errno.EPERM, errno.EACCES])
def test_file_that_is_in_use_is_moved_aside(path: Path, number: int) -> None:
    """Where a rename can't replace an open file, two renames do."""
    assert replaced(path, ScriptedCalls(Fault("rename", fails(number))))
    assert path.read_bytes() == b"new"
    assert os.listdir(path.parent) == [path.name]


def test_file_that_can_not_follow_the_one_moved_aside_gives_way(path: Path) -> None:
    """The old one comes back."""
    in_use, then = Fault("rename", fails(errno.EACCES)), Fault("rename", fails(errno.EIO), first=3)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        replaced(path, ScriptedCalls(in_use, then))
    assert path.read_bytes() == b"old"
    assert os.listdir(path.parent) == [path.name]


def test_folder_without_permission_is_told_as_it_is(path: Path) -> None:
    """Moving aside is no way around a folder that nobody may change."""
    with pytest.raises(PermissionError):
        replaced(path, ScriptedCalls(Fault("rename", fails(errno.EACCES), times=None)))
    assert path.read_bytes() == b"old"


def test_killed_between_the_two_renames_it_is_put_back(path: Path) -> None:
    """By whoever comes next; only once, and never in the place of something."""
    aside = path.parent / f".{path.name}.0123456789ab.aside"
    path.rename(aside)
    assert put_back(str(path), FileCalls())
    assert path.read_bytes() == b"old"
    assert not put_back(str(path), FileCalls())
    path.rename(aside)
    seen: list[bytes] = []
    assert replaced(path, check=lambda: not seen.append(path.read_bytes()))
    assert seen == [b"old"]


def test_publishing_never_replaces(path: Path) -> None:
    """What stands there stays."""
    staged = StagedFile(str(path), FaultyCalls())
    staged.write(write)
    with pytest.raises(FileExistsError):
        staged.publish()
    staged.discard()
    assert path.read_bytes() == b"old"
    assert os.listdir(path.parent) == [path.name]


def test_discarding_leaves_what_has_replaced(path: Path) -> None:
    """There is no old one any more that it could give way to."""
    staged = StagedFile(str(path), FileCalls())
    staged.write(write)
    staged.replace()
    staged.discard()
    assert path.read_bytes() == b"new"
