"""The works of the upkeep on a real disk without a free byte, and then with some room. Raises AssertionError.

    python -m tests.thread_store.upkeep.full_disk_worker WORK

It mounts a small file system in a namespace that ends with it (see tests/faults/mounts.py), and prints
what the full disk answered: `done`, or the name of the error.
"""

from __future__ import annotations

import errno
import os
import sys
import tempfile
from pathlib import Path

from protocol.errors import RolloutError
from tests.faults.mounts import detach, enter_mount_namespace, mount_tmpfs
from tests.thread_store.upkeep.interrupted import uncut
from tests.thread_store.upkeep.works import WORKS, check_cut, check_done_again, place_with, threads_in
from thread_store.home import Home

__all__: list[str] = []

_BLOCK = bytes(4096)


def main(name: str) -> str:
    work = WORKS[name]
    enter_mount_namespace()
    with tempfile.TemporaryDirectory(prefix="rollout-full-") as base:
        disk = Path(base) / "disk"
        disk.mkdir()
        mount_tmpfs(disk, "size=4m")
        home = Home(disk / "home")
        work.prepare(home)
        (home.path / "thread-writer-locks").mkdir(exist_ok=True)
        before = threads_in(home)
        ballast = disk / "ballast"
        _fill(ballast)
        try:
            work.do(place_with(home, uncut()))
            answer = "done"
        except RolloutError as error:
            answer = errno.errorcode.get(error.errno or 0, type(error).__name__)
        try:
            check_cut(work, home, before)
            ballast.unlink()
            check_done_again(work, home, before)
        finally:
            detach(disk)
    return answer


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        while True:
            try:
                file.write(_BLOCK)
            except OSError as error:
                assert error.errno == errno.ENOSPC
                return


if __name__ == "__main__":
    print(main(sys.argv[1]))
    os._exit(0)
