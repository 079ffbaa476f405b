"""`python -m benches resume`: the context of a long rollout, with a checkpoint near its end and without any.

With a checkpoint the size of the file must not matter. Without one everything is read, and kept if
the model saw it: here one line in eight, the others are events, as in the rollouts of agents that
call many tools. Memory is measured in a process of its own.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path

from benches.measure import Case, per_item, run_rounds
from benches.report import Row, bound_row
from benches.workload import STAMP, build_text, encode, fresh_path, make_line
from protocol import Compacted, EventMsg, ResponseItem, RolloutItem, SessionMeta, ThreadId, encode_item
from protocol.own import MemoryItem
from rollout.scanner import ReverseJsonlScanner
from thread_store.home import Home
from thread_store.model_context import load_model_context

__all__ = ["resume_rows"]

SMALL_BYTES = 1_000_000
TAIL_LINES = 500
SMALL, BIG = "context, checkpoint near the end, small", "context, checkpoint near the end, big"
WHOLE = "context, no checkpoint, big"
SCAN = "bare reverse scan, big"

_REPEATS = 20
_LINES_AT_ONCE = 8_000


async def resume_rows(folder: Path, *, rounds: int, file_bytes: int) -> AsyncIterator[list[Row]]:
    """How long a context takes, and how much memory."""
    with fresh_path(folder) as path:
        home = Home(path.parent)
        small = _write_rollout(home, min(SMALL_BYTES, file_bytes), checkpoint=True)
        big = _write_rollout(home, file_bytes, checkpoint=True)
        samples = await run_rounds([_case(SMALL, home, small), _case(BIG, home, big)], rounds)
        growth, _ = _memory(home, small, big)
        yield [{"case": name, "milliseconds": round(samples.seconds(name) * 1e3, 3)} for name in (SMALL, BIG)]
        yield [
            bound_row("cost with a checkpoint, big / small", samples.ratio([BIG], [SMALL]), at_most=1.5),
            bound_row("context of the big file", samples.seconds(BIG) * 1e3, "milliseconds", at_most=5),
            bound_row("memory growth, big after small", growth / 1e6, "megabytes", at_most=20),
        ]
        big.unlink()
        yield await _whole_rows(home, small, min(rounds, 3), file_bytes)


async def _whole_rows(home: Home, small: Path, rounds: int, file_bytes: int) -> list[Row]:
    whole = _write_rollout(home, file_bytes, checkpoint=False)
    samples = await run_rounds([_case(WHOLE, home, whole, repeats=1), _scan_case(whole)], rounds)
    growth, kept = _memory(home, small, whole)
    speed = whole.stat().st_size / samples.seconds(WHOLE) / 1e6
    return [
        bound_row("without a checkpoint", speed, "megabytes_per_second", at_least=300),
        bound_row("cost without a checkpoint / bare reverse scan", samples.ratio([WHOLE], [SCAN]), at_most=2),
        bound_row("memory growth / bytes of the context", growth / kept, at_most=4),
    ]


def _case(name: str, home: Home, path: Path, *, repeats: int = _REPEATS) -> Case:
    async def run() -> float:
        start = time.perf_counter()
        for _ in range(repeats):
            load_model_context(path, home)
        return (time.perf_counter() - start) / repeats

    return Case(name, run)


def _scan_case(path: Path) -> Case:
    async def run() -> float:
        return per_item(lambda: deque(ReverseJsonlScanner(path), maxlen=0), 1)

    return Case(SCAN, run)


def _memory(home: Home, *paths: Path) -> tuple[int, int]:
    """Of a fresh process: by how many bytes the second file made it grow, and the bytes of its context."""
    command = [sys.executable, "-m", "benches.resume", os.fspath(home.path), *map(os.fspath, paths)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    growth, kept = map(int, done.stdout.split())
    return growth, kept


def _print_memory(home: Home, small: str, big: str) -> None:
    """What `_memory` reads."""
    load_model_context(small, home)
    before = _peak_bytes()
    context = load_model_context(big, home)
    print(_peak_bytes() - before, sum(item.size_bytes for item in context.items))


def _peak_bytes() -> int:
    status = Path("/proc/self/status")
    if status.exists():  # getrusage would tell the peak of the process that started this one
        lines = status.read_text(encoding="ascii").splitlines()
        return 1024 * int(next(line.split()[1] for line in lines if line.startswith("VmHWM")))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # macOS: in bytes


def _write_rollout(home: Home, file_bytes: int, *, checkpoint: bool) -> Path:
    """Turns until the size is reached; then a checkpoint with its memory, and the tail."""
    thread_id = ThreadId.new()
    path = home.new_rollout_path(thread_id)
    path.parent.mkdir(parents=True, exist_ok=True)
    meta = SessionMeta(cwd=os.getcwd()).filled(thread_id=thread_id, timestamp=STAMP)
    numbers = count(1)
    with path.open("wb") as file:
        file.write(encode_item(meta, timestamp=STAMP, ordinal=0))
        while file.tell() < file_bytes:
            lines = min(_LINES_AT_ONCE, max(1, (file_bytes - file.tell()) // 550))
            file.writelines(_turn_lines(numbers, lines))
        if checkpoint:
            file.writelines(_checkpoint_lines(next(numbers)))
            file.writelines(_turn_lines(numbers, TAIL_LINES))
    return path


def _turn_lines(numbers: Iterator[int], lines: int) -> Iterator[bytes]:
    for _ in range(lines):
        number = next(numbers)
        yield encode(make_line(number)) + b"\n" if number % 8 == 0 else _event_line(number)


def _event_line(number: int) -> bytes:
    return encode_item(EventMsg.agent_reasoning(build_text(number, 420)), timestamp=STAMP, ordinal=number)


def _checkpoint_lines(number: int) -> list[bytes]:
    history = [ResponseItem.message("user", build_text(each, 420)) for each in range(20)]
    items: list[RolloutItem] = [
        Compacted(message="summary", replacement_history=list(history)),
        MemoryItem(version=1, upto_offset=0),
    ]
    return [
        encode_item(item, timestamp=STAMP, ordinal=None if isinstance(item, MemoryItem) else number)
        for item in items
    ]


if __name__ == "__main__":
    _print_memory(Home(sys.argv[1]), *sys.argv[2:])
