"""`python -m benches fork`: forks of a large rollout, against cp of the same file.

Syncs are left out on both sides of the copies: cp makes none, and they measure the disk. A
reference is measured as it is made, its syncs included.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benches.measure import Case, run_rounds
from benches.report import Row, bound_row
from benches.workload import STAMP, encode, fresh_path, make_line
from protocol import SessionMeta, ThreadId, encode_item
from thread_store.forks.fork import ForkMode, make_fork
from thread_store.forks.fork_copy import ForkCalls
from thread_store.home import Home

__all__ = ["fork_rows", "image_rows"]

SMALL_BYTES = 1_000_000
CP, CP_REFLINK = "cp", "cp --reflink=always"
COPY = "make_fork, copy, without syncs"
REFERENCE_SMALL, REFERENCE_BIG = "make_fork, reference, small", "make_fork, reference, big"

_LINES_AT_ONCE = 20_000


async def fork_rows(folder: Path, *, rounds: int, file_bytes: int) -> list[Row]:
    """Milliseconds for one fork of a rollout of `file_bytes`."""
    with fresh_path(folder) as path:
        home = Home(path.parent)
        big, small = _write_rollout(home, file_bytes), _write_rollout(home, min(SMALL_BYTES, file_bytes))
        cases = [
            _copy_case(CP, home, lambda target: _cp(big, target)),
            _copy_case(COPY, home, lambda target: _fork(home, big, target, "copy", UnsyncedCalls())),
            _copy_case(REFERENCE_SMALL, home, lambda target: _fork(home, small, target, "reference")),
            _copy_case(REFERENCE_BIG, home, lambda target: _fork(home, big, target, "reference")),
        ]
        samples = await run_rounds(cases, rounds)
    return [
        *({"case": case.name, "milliseconds": round(samples.seconds(case.name) * 1e3, 3)} for case in cases),
        bound_row("speed of a copy / speed of cp", samples.ratio([CP], [COPY]), at_least=0.7),
        bound_row(
            "a reference to the big file",
            samples.seconds(REFERENCE_BIG) * 1e3,
            "milliseconds",
            at_most=20,
        ),
        bound_row(
            "cost of a reference, big / small", samples.ratio([REFERENCE_BIG], [REFERENCE_SMALL]), at_most=1.5
        ),
    ]


async def image_rows(folder: Path, *, rounds: int, file_bytes: int) -> list[Row]:
    """The same on an XFS of our own that shares blocks, against `cp --reflink=always`. Needs root."""
    with _mounted_xfs(folder, size_bytes=max(2 * file_bytes, 400 << 20)) as mounted:
        home = Home(mounted)
        source = _write_rollout(home, file_bytes)
        cases = [
            _copy_case(CP_REFLINK, home, lambda target: _cp(source, target, "--reflink=always")),
            _copy_case(COPY, home, lambda target: _fork(home, source, target, "copy", UnsyncedCalls())),
        ]
        samples = await run_rounds(cases, rounds)
    return [
        *(
            {"case on XFS": case.name, "milliseconds": round(samples.seconds(case.name) * 1e3, 3)}
            for case in cases
        ),
        bound_row("cost of a copy / cost of cp --reflink", samples.ratio([COPY], [CP_REFLINK]), at_most=3),
    ]


class UnsyncedCalls(ForkCalls):
    """Nothing is brought to stable storage."""

    def datasync(self, descriptor: int) -> None:
        del descriptor

    def sync_folder(self, path: str) -> None:
        del path


def _copy_case(name: str, home: Home, copy: Callable[[Path], object]) -> Case:
    """One copy to a new path, removed again outside the time that counts."""

    async def run() -> float:
        target = home.new_rollout_path(ThreadId.new())
        start = time.perf_counter()
        copy(target)
        seconds = time.perf_counter() - start
        target.unlink()
        return seconds

    return Case(name, run)


def _cp(source: Path, target: Path, *options: str) -> None:
    subprocess.run(["cp", *options, os.fspath(source), os.fspath(target)], check=True)


def _fork(home: Home, source: Path, target: Path, mode: ForkMode, calls: ForkCalls | None = None) -> None:
    thread_id = target.name.removesuffix(".jsonl")[-36:]
    make_fork(source, target, thread_id=thread_id, home=home, mode=mode, calls=calls)


def _write_rollout(home: Home, file_bytes: int) -> Path:
    """A rollout of messages, on stable storage."""
    thread_id = ThreadId.new()
    path = home.new_rollout_path(thread_id)
    path.parent.mkdir(parents=True, exist_ok=True)
    meta = SessionMeta(cwd=os.getcwd()).filled(thread_id=thread_id, timestamp=STAMP)
    number = 1
    with path.open("wb") as file:
        file.write(encode_item(meta, timestamp=STAMP, ordinal=0))
        while file.tell() < file_bytes:
            lines = min(_LINES_AT_ONCE, max(1, (file_bytes - file.tell()) // 550))
            file.writelines(encode(make_line(each)) + b"\n" for each in range(number, number + lines))
            number += lines
        file.flush()
        os.fsync(file.fileno())
    return path


@contextmanager
def _mounted_xfs(folder: Path, *, size_bytes: int) -> Iterator[Path]:
    """An XFS in a file, mounted as long as the block runs."""
    with fresh_path(folder) as image:
        with image.open("wb") as file:
            file.truncate(size_bytes)
        mounted = image.with_name("mounted")
        mounted.mkdir()
        _system("mkfs.xfs", "-q", "-m", "reflink=1", os.fspath(image))
        _system("mount", "-o", "loop", os.fspath(image), os.fspath(mounted))
        try:
            yield mounted
        finally:
            _system("umount", os.fspath(mounted))


def _system(*command: str) -> None:
    paths = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    subprocess.run(command, check=True, env={**os.environ, "PATH": paths})
