"""Real disks that fill up, shrink, run out of inodes or break down, and get well again.

Invariant: each scenario runs in a process of its own (`python -m tests.faults disk NAME`), on file
systems that end with it, and raises AssertionError for whatever the recorder must not do.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import json
import os
import resource
import struct
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from protocol.errors import RolloutError, RolloutWriteError, UnwrittenItems
from protocol.meta import SessionMeta
from rollout.config import RecorderConfig
from rollout.recorder import RolloutRecorder
from rollout.repair import repair_rollout
from tests.faults import mutants
from tests.faults.mounts import detach, enter_mount_namespace, mount_ext4, mount_tmpfs, unmount
from tests.faults.numbered import look_at, numbered_item
from tests.faults.restart import read_back

__all__ = ["EXT4_SCENARIOS", "SCENARIOS", "run_scenario"]

Figures = dict[str, int]

_ITEMS = 400
_ITEM_BYTES = 8000
_EVERY = 20
"""A barrier follows this many items."""
_BALLAST_BYTES = 2 << 20
_SHUTDOWN, _NO_FLUSH = 0x8004587D, 2
_CONFIG = RecorderConfig(close_seconds=30)
_IMPATIENT = RecorderConfig(close_seconds=0.5)


@dataclass
class _Recording:
    """Items recorded one by one, with barriers between; `record` must never raise, barriers may."""

    recorder: RolloutRecorder
    path: Path
    recorded: int = 0
    refused: int = 0
    """Barriers that raised."""
    answered: int = 0
    last_errno: int | None = None

    async def record(self, upto: int, *, size: int = _ITEM_BYTES) -> None:
        while self.recorded < upto:
            self.recorder.record_nowait(numbered_item(self.recorded, size))
            self.recorded += 1
            if self.recorded % _EVERY == 0:
                await self.barrier(self.recorder.flush)

    async def barrier(self, wait: Callable[[], Awaitable[object]]) -> bool:
        try:
            await wait()
        except RolloutWriteError as error:
            self.refused += 1
            self.last_errno = error.errno
            self.check_border()
            return False
        self.answered += 1
        numbers = look_at(self.path.read_bytes()).numbers
        assert numbers == list(range(self.recorded)), "a barrier returned, and not everything is there"
        return True

    def check_border(self) -> None:
        """A disk that is full is no reason for half a line, and none for a lost or doubled one."""
        found = look_at(self.path.read_bytes()) if self.path.exists() else look_at(b"")
        assert not found.tail, "the disk is full and the file ends inside a line"
        assert not found.damaged
        assert found.numbers == list(range(len(found.numbers)))

    def figures(self) -> Figures:
        return {"items": self.recorded, "refused": self.refused, "answered": self.answered}


def _check_all(path: Path, count: int) -> None:
    found = look_at(path.read_bytes())
    assert found.numbers == list(range(count)), f"{len(found.numbers)} of {count} items, or not in order"
    assert not found.damaged
    assert not found.tail
    assert found.ordinals == list(range(len(found.ordinals)))
    assert not [record for record in read_back(path) if record.warning is not None]


def _is_troubled(recorder: RolloutRecorder) -> bool:
    return recorder.health.last_error is not None


def _ballast(folder: Path) -> Path:
    path = folder / "ballast"
    path.write_bytes(bytes(_BALLAST_BYTES))
    return path


@asynccontextmanager
async def _discarded_on_failure(path: Path) -> AsyncIterator[RolloutRecorder]:
    """A recorder that is closed at the end; when a check failed it is not waited for."""
    async with RolloutRecorder.create(path, SessionMeta(cwd="/"), config=_CONFIG) as recorder:
        try:
            yield recorder
        except AssertionError:
            recorder.discard()
            raise


async def _fill_up(folder: Path, make_room: Callable[[], object]) -> Figures:
    """400 items onto a disk that has room for about half of them, and then for all."""
    path = folder / "rollout.jsonl"
    async with _discarded_on_failure(path) as recorder:
        recording = _Recording(recorder, path)
        await recording.record(_ITEMS * 4 // 5)
        assert recording.refused, "the disk never got full: the scenario proves nothing"
        assert recording.last_errno in (errno.ENOSPC, errno.EFBIG), recording.last_errno
        assert _is_troubled(recorder)
        make_room()
        assert await recording.barrier(recorder.flush), "there is room again, and a flush still fails"
        await recording.record(_ITEMS)
        assert await recording.barrier(recorder.sync)
        assert not _is_troubled(recorder)
    _check_all(path, _ITEMS)
    return recording.figures()


async def _tmpfs_gets_space(folder: Path) -> Figures:
    """A 4 MB disk fills up; a file that took half of it is removed."""
    mount_tmpfs(folder, "size=4m")
    return await _fill_up(folder, _ballast(folder).unlink)


async def _tmpfs_grows(folder: Path) -> Figures:
    """A disk of 2 MB fills up, and is made larger."""
    mount_tmpfs(folder, "size=2m")
    return await _fill_up(folder, lambda: mount_tmpfs(folder, "size=8m", again=True))


async def _ext4_gets_space(folder: Path) -> Figures:
    """The same on ext4, which allocates blocks late."""
    mount_ext4(folder.parent / "image", folder, megabytes=6)
    return await _fill_up(folder, _ballast(folder).unlink)


async def _file_size_limit(folder: Path) -> Figures:
    """The process may not write files over 2 MB, until that limit is lifted while it runs."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, hard))
    return await _fill_up(folder, lambda: resource.prlimit(os.getpid(), resource.RLIMIT_FSIZE, (hard, hard)))


async def _no_inode_left(folder: Path) -> Figures:
    """Bytes are free, but no file can be made."""
    mount_tmpfs(folder, "size=4m,nr_inodes=1")
    path = folder / "rollout.jsonl"
    async with _discarded_on_failure(path) as recorder:
        recording = _Recording(recorder, path)
        await recording.record(60, size=100)
        assert recording.refused == 3
        assert recording.last_errno == errno.ENOSPC
        assert not path.exists()
        mount_tmpfs(folder, "size=4m,nr_inodes=10", again=True)
        assert await recording.barrier(recorder.sync)
        await recording.record(100, size=100)
    _check_all(path, 100)
    return recording.figures()


async def _record_until_given_up(path: Path) -> tuple[_Recording, UnwrittenItems]:
    recorder = await RolloutRecorder.create(path, SessionMeta(cwd="/"), config=_IMPATIENT)
    recording = _Recording(recorder, path)
    await recording.record(_ITEMS)
    try:
        await recorder.aclose()
    except UnwrittenItems as error:
        recording.check_border()
        return recording, error
    raise AssertionError("the disk is full, and aclose returned as if all were well")


async def _stays_full(folder: Path) -> Figures:
    """The disk is still full at the end: the rest is kept elsewhere, and one command brings it in."""
    mount_tmpfs(folder, "size=4m")
    ballast = _ballast(folder)
    path = folder / "rollout.jsonl"
    recording, error = await _record_until_given_up(path)
    assert error.errno == errno.ENOSPC
    assert error.kept_path is not None
    assert not error.kept_path.startswith(os.fspath(folder)), "it can't be on the disk that is full"
    ballast.unlink()
    for _ in range(2):  # doing it twice must not matter
        _run_rollout("repair", os.fspath(path), "--replay", "-y")
        _check_all(path, _ITEMS)
    return {**recording.figures(), "kept": error.pending_items}


def _run_rollout(*arguments: str) -> None:
    environment = {**os.environ, "TMPDIR": tempfile.gettempdir()}
    command = [sys.executable, "-m", "thread_store", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
    assert result.returncode == 0, f"{' '.join(arguments)}: {result.stdout}{result.stderr}"


def _files_in(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.rglob("*") if each.is_file())


async def _full_everywhere(folder: Path) -> Figures:
    """No place takes the rest: the error itself carries it."""
    mount_tmpfs(folder, "size=4m")
    ballast = _ballast(folder)
    tempfile.tempdir = os.fspath(folder)
    path = folder / "rollout.jsonl"
    recording, error = await _record_until_given_up(path)
    assert error.kept_path is None
    assert _files_in(folder) == ["ballast", "rollout.jsonl"], f"left over: {_files_in(folder)}"
    ballast.unlink()
    written = look_at(path.read_bytes()).numbers
    carried = look_at(error.unwritten).numbers
    assert carried == list(range(carried[0], _ITEMS))
    assert carried[0] <= len(written), "between the file and what the error carries items are missing"
    return {**recording.figures(), "carried": len(carried)}


async def _ext4_breaks_down(folder: Path) -> Figures:
    """The file system is shut down under the recorder without writing its journal; then it is mounted anew.

    What was synced is there, as after a power cut; what was not was kept; the replay gives all.
    """
    image, path = folder.parent / "image", folder / "rollout.jsonl"
    mount_ext4(image, folder, megabytes=8)
    recorder = await RolloutRecorder.create(path, SessionMeta(cwd="/"), config=_IMPATIENT)
    recording = _Recording(recorder, path)
    await recording.record(100, size=500)
    await recorder.sync()
    await recording.record(150, size=500)
    _shut_down(folder)
    recorder.record_nowait(numbered_item(150, 500))
    assert not await _returns(recorder.flush), "a flush onto a dead disk returned"
    assert not await _returns(recorder.sync), "a sync onto a dead disk returned"
    try:
        await recorder.aclose()
    except UnwrittenItems as error:
        kept, pending = error.kept_path, error.pending_items
    else:
        raise AssertionError("the disk is dead, and aclose returned as if all were well")
    assert kept is not None
    unmount(folder)
    mount_ext4(image, folder)
    survived = look_at(path.read_bytes())
    assert survived.numbers[:100] == list(range(100)), "synced items did not survive"
    repair_rollout(path, dry_run=False, replay=True)
    _check_all(path, 151)
    return {"items": 151, "synced": 100, "survived": len(survived.numbers), "kept": pending}


def _shut_down(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.ioctl(descriptor, _SHUTDOWN, struct.pack("I", _NO_FLUSH))
    finally:
        os.close(descriptor)


async def _returns(wait: Callable[[], Awaitable[object]]) -> bool:
    try:
        await wait()
    except RolloutError:
        return False
    return True


def _set_attribute(attribute: str, path: Path) -> None:
    subprocess.run(["chattr", attribute, os.fspath(path)], check=True, timeout=60)


async def _append_only(folder: Path) -> Figures:
    """A file that may only be appended to (chattr +a), with a torn tail: the tail is ended, not cut."""
    mount_ext4(folder.parent / "image", folder, megabytes=8)
    path = folder / "rollout.jsonl"
    async with RolloutRecorder.create(path, SessionMeta(cwd="/")) as recorder:
        recorder.record_nowait(numbered_item(0, 100))
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:100])
    _set_attribute("+a", path)
    async with RolloutRecorder.open(path) as recorder:
        for number in range(1, 20):
            recorder.record_nowait(numbered_item(number, 100))
            await recorder.sync()
    data = path.read_bytes()
    _set_attribute("-a", path)
    found = look_at(data)
    assert data.startswith(whole + whole[:100] + b"\n")
    assert found.damaged == [len(whole)]
    assert found.numbers == list(range(20))
    assert not found.tail
    return {"items": 20}


SCENARIOS: dict[str, Callable[[Path], Coroutine[None, None, Figures]]] = {
    "tmpfs_gets_space": _tmpfs_gets_space,
    "tmpfs_grows": _tmpfs_grows,
    "file_size_limit": _file_size_limit,
    "no_inode_left": _no_inode_left,
    "stays_full": _stays_full,
    "full_everywhere": _full_everywhere,
}
EXT4_SCENARIOS: dict[str, Callable[[Path], Coroutine[None, None, Figures]]] = {
    "ext4_gets_space": _ext4_gets_space,
    "ext4_breaks_down": _ext4_breaks_down,
    "append_only": _append_only,
}
"""For machines with loop devices."""


def run_scenario(name: str) -> Figures:
    """Run one in this process, which must have one thread and be of no use afterwards."""
    enter_mount_namespace()
    scenario = (SCENARIOS | EXT4_SCENARIOS)[name]
    with tempfile.TemporaryDirectory(prefix="rollout-disk-") as base:
        folder = Path(base) / "disk"
        folder.mkdir()
        spill = Path(base) / "elsewhere"
        spill.mkdir()
        tempfile.tempdir = os.fspath(spill)
        try:
            return asyncio.run(scenario(folder))
        finally:
            if os.path.ismount(folder):
                detach(folder)


def main() -> None:
    mutants.plant_from_environment()
    print(json.dumps(run_scenario(sys.argv[1])))


if __name__ == "__main__":
    main()
