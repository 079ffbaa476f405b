"""How much memory a recorder takes while its disk hangs.

A process of its own records until the pending queue is full, with one system call of the file
sink that doesn't come back; then goes on trying. Its growth must be the queue's limit and what
the allocator adds to it.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benches.recording import open_recorder, record_many
from benches.report import Row, bound_row
from benches.workload import build_item
from protocol.errors import PendingQueueFull
from rollout import RecorderConfig, RolloutRecorder
from rollout.syscalls import FileCalls

__all__ = ["stall_rows"]

TRIES_WHEN_FULL = 20_000


def stall_rows() -> list[Row]:
    """The growth with a hanging write, and with a hanging sync."""
    rows = []
    for name in ("write", "datasync"):
        command = [sys.executable, "-m", "benches.stall", name]
        done = subprocess.run(
            command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
        )
        growth = json.loads(done.stdout)
        rows.append({"stalled_call": name, **growth})
    limit = RecorderConfig().pending_bytes_max
    worst = max(row["rss_growth_bytes"] for row in rows)
    return [
        *rows,
        bound_row("memory growth with a stalled disk / pending limit", worst / limit, at_most=1.25),
    ]


async def _grow(name: str) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        async with open_recorder(Path(folder)) as recorder:
            await record_many(recorder, 1_000)
            await recorder.sync()
            with _stalled(name):
                before = _rss_bytes()
                accepted = _record_until_full(recorder)
                refused = sum(_is_refused(recorder) for _ in range(TRIES_WHEN_FULL))
                growth = _rss_bytes() - before
    return {"accepted_items": accepted, "refused_items": refused, "rss_growth_bytes": growth}


@contextmanager
def _stalled(name: str) -> Iterator[None]:
    """The call hangs until the block ends; then it is made."""
    release = threading.Event()
    real = getattr(FileCalls, name)

    def hang(*arguments: Any) -> Any:
        release.wait()
        return real(*arguments)

    setattr(FileCalls, name, hang)
    try:
        yield
    finally:
        setattr(FileCalls, name, real)
        release.set()


def _record_until_full(recorder: RolloutRecorder) -> int:
    accepted = 0
    while not _is_refused(recorder):
        accepted += 1
    return accepted


def _is_refused(recorder: RolloutRecorder) -> bool:
    try:
        recorder.record_nowait(build_item(7))
    except PendingQueueFull:
        return True
    return False


def _rss_bytes() -> int:
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # macOS: in bytes, and the peak


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_grow(sys.argv[1]))))
