"""The model of a disk: what it allows after a power cut is what file systems allow, and no more."""

from __future__ import annotations

import errno
import os
import random

import pytest

from tests.faults.disk_model import SECTOR_BYTES, DiskModel, State
from tests.faults.shim import Call

ROOT = "/watched"
PATH = f"{ROOT}/file"
INODE = 7


def call(name: str, *, path: str = PATH, second_path: str = "", nth: int = 1, **fields: int | bytes) -> Call:
    """One logged call that succeeded, but for what `fields` say."""
    values = {"offset": 0, "size": 0, "result": 0, "errno": 0, "data": b"", "inode": INODE, **fields}
    return Call(
        name=name,
        nth=nth,
        path=path,
        second_path=second_path,
        begins=bool(values.pop("begins", False)),
        created=bool(values.pop("created", False)),
        injected=False,
        **values,  # type: ignore[arg-type]
    )


class Disk:
    """A model with a file in it, driven like the kernel."""

    def __init__(self) -> None:
        self.model = DiskModel(ROOT)
        self.size = 0
        self.syncs = 0
        self.model.apply(call("open", created=True, size=os.O_CREAT))

    def append(self, data: bytes) -> None:
        self.model.apply(call("write", offset=self.size, data=data, result=len(data)))
        self.size += len(data)

    def sync(self, *, error: int = 0) -> None:
        self.syncs += 1
        self.model.apply(call("fdatasync", nth=self.syncs, begins=True))
        self.model.apply(call("fdatasync", nth=self.syncs, result=-1 if error else 0, errno=error))

    def sync_folder(self) -> None:
        self.sync_names(ROOT)

    def sync_names(self, path: str) -> None:
        self.syncs += 1
        self.model.apply(call("fsync", path=path, nth=self.syncs, begins=True, inode=1))
        self.model.apply(call("fsync", path=path, nth=self.syncs, inode=1))

    def states(self, count: int = 400) -> list[State]:
        return [state for _, state in self.model.crash_states(random.Random(1), count)]


def test_synced_file_whose_folder_was_not_may_have_no_name() -> None:
    """The name of a new file is safe only when its folder was synced."""
    disk = Disk()
    disk.append(b"abc")
    disk.sync()
    assert disk.model.secure() == {}
    disk.sync_folder()
    assert disk.model.secure() == {"file": b"abc"}
    assert disk.model.is_secure


def test_unsynced_bytes_may_be_lost_zeroed_or_torn() -> None:
    """What was appended after the sync is there, or zeros are, or it ends at a sector border, or is gone."""
    disk = Disk()
    disk.append(b"a" * 100)
    disk.sync()
    disk.sync_folder()
    disk.append(b"b" * 2000)
    contents = {state["file"] for state in disk.states()}
    assert b"a" * 100 in contents
    assert b"a" * 100 + b"b" * 2000 in contents
    assert b"a" * 100 + bytes(2000) in contents
    assert b"a" * 100 + b"b" * (1024 - 100) in contents
    assert all(content is not None and content.startswith(b"a" * 100) for content in contents)


def test_sectors_reach_the_disk_in_any_order() -> None:
    """A later sector may be there without an earlier one; each is there whole or not at all."""
    disk = Disk()
    disk.sync_folder()
    disk.append(b"".join(bytes([65 + i]) * SECTOR_BYTES for i in range(4)))
    holes = [state["file"] for state in disk.states()]
    assert b"A" * SECTOR_BYTES + bytes(SECTOR_BYTES) + b"C" * SECTOR_BYTES + b"D" * SECTOR_BYTES in holes
    for content in holes:
        assert content is not None
        for begin in range(0, len(content), SECTOR_BYTES):
            assert len(set(content[begin : begin + SECTOR_BYTES])) == 1


def test_bytes_of_a_failed_sync_stay_unsafe_after_a_later_one() -> None:
    """After a failed fsync the pages count as clean: the next one brings out only what is written again."""
    disk = Disk()
    disk.append(b"a" * SECTOR_BYTES)
    disk.sync(error=errno.EIO)
    disk.sync()
    disk.sync_folder()
    assert disk.model.secure() == {"file": bytes(SECTOR_BYTES)}
    assert disk.model.volatile() == {"file": b"a" * SECTOR_BYTES}
    disk.model.apply(call("pwrite", data=b"a" * SECTOR_BYTES, result=SECTOR_BYTES))
    disk.sync()
    assert disk.model.secure() == {"file": b"a" * SECTOR_BYTES}


def test_interrupted_sync_loses_nothing() -> None:
    """EINTR is no failed write: the sync that is made again covers everything."""
    disk = Disk()
    disk.append(b"abc")
    disk.sync(error=errno.EINTR)
    disk.sync()
    disk.sync_folder()
    assert disk.model.secure() == {"file": b"abc"}


def test_sync_covers_only_what_came_before_it_began() -> None:
    """Bytes that are written while a sync runs are not safe when it ends."""
    disk = Disk()
    disk.sync_folder()
    disk.append(b"a" * SECTOR_BYTES)
    disk.model.apply(call("fdatasync", nth=9, begins=True))
    disk.append(b"b" * SECTOR_BYTES)
    disk.model.apply(call("fdatasync", nth=9))
    assert disk.model.secure() == {"file": b"a" * SECTOR_BYTES}


@pytest.mark.parametrize("size", [0, 10, SECTOR_BYTES, SECTOR_BYTES + 1])
def test_bytes_that_were_cut_off_do_not_come_back_under_new_ones(size: int) -> None:
    """A state has the size from before the cut, or nothing of what was behind it."""
    disk = Disk()
    disk.append(b"x" * 2000)
    disk.sync()
    disk.sync_folder()
    disk.model.apply(call("ftruncate", size=size))
    disk.size = size
    disk.append(b"y" * 700)
    for state in disk.states():
        content = state["file"]
        assert content is not None
        if len(content) != 2000:
            assert b"x" not in content[size:]


def test_rename_is_old_or_new_name_and_nothing_between() -> None:
    """Until the folder is synced the file has one name or the other."""
    disk = Disk()
    disk.append(b"abc")
    disk.sync()
    disk.sync_folder()
    disk.model.apply(call("rename", second_path=f"{ROOT}/other"))
    assert {tuple(state) for state in disk.states()} == {("file",), ("other",)}


def test_rename_into_another_folder_leaves_one_of_both_names_or_both() -> None:
    """A journal makes it one step: the file is never gone. Synced in its old folder it is in the new one."""
    disk = Disk()
    disk.append(b"abc")
    disk.sync()
    disk.model.apply(call("mkdir", path=f"{ROOT}/old"))
    disk.model.apply(call("mkdir", path=f"{ROOT}/new"))
    disk.model.apply(call("rename", second_path=f"{ROOT}/old/file"))
    for folder in ("", "/old"):
        disk.sync_names(f"{ROOT}{folder}")
    disk.model.apply(call("rename", path=f"{ROOT}/old/file", second_path=f"{ROOT}/new/file"))
    found = {tuple(sorted(path for path in state if "file" in path)) for state in disk.states()}
    assert found == {("old/file",), ("new/file",), ("new/file", "old/file")}
    disk.sync_names(f"{ROOT}/old")
    assert disk.model.secure() == {"old": None, "new": None, "new/file": b"abc"}


@pytest.mark.parametrize("name", ["copy_file_range", "sendfile"])
def test_bytes_that_the_kernel_copies_are_as_unsafe_as_written_ones(name: str) -> None:
    """They are there for readers, and lost until a sync covers them."""
    disk = Disk()
    disk.sync_folder()
    disk.model.apply(call(name, data=b"copied", result=6))
    assert disk.model.volatile() == {"file": b"copied"}
    assert disk.model.secure() == {"file": b""}
