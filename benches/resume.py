"""`python -m benches resume`: the state that a long rollout is resumed from, with and without a checkpoint.

The state is the model's context and the fold of everything else, from the newest `x_memory` on. With a
checkpoint the size of the file must not matter. Without one everything is read, and kept if
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
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import count
from pathlib import Path

from benches.measure import Case, per_item, run_rounds
from benches.report import Row, bound_row
from benches.workload import STAMP, build_text, encode, fresh_path, make_line
from protocol import Compacted, EventMsg, ResponseItem, SessionMeta, ThreadId, decode_line, encode_item
from protocol.thread_fold import ThreadFold
from protocol.tool_calls import CLOSED_CALLS_MAX
from rollout.scanner import ReverseJsonlScanner
from thread_store.context.model_context import load_model_context
from thread_store.folding.thread_folding import line_hash
from thread_store.home import Home
from thread_store.resume.resume_state import read_resume_state

__all__ = ["peak_bytes", "resume_rows"]

SMALL_BYTES = 1_000_000
TAIL_LINES = 500
SMALL, BIG = "state, checkpoint near the end, small", "state, checkpoint near the end, big"
CONTEXT = "context alone, checkpoint near the end, big"
WHOLE, WHOLE_STATE = "context, no checkpoint, big", "state, no checkpoint and no memory, big"
SCAN = "bare reverse scan, big"

_REPEATS = 20
_LINES_AT_ONCE = 8_000


async def resume_rows(folder: Path, *, rounds: int, file_bytes: int) -> AsyncIterator[list[Row]]:
    """How long a context takes, and how much memory."""
    with fresh_path(folder) as path:
        home = Home(path.parent)
        small = _write_rollout(home, min(SMALL_BYTES, file_bytes), checkpoint=True)
        big = _write_rollout(home, file_bytes, checkpoint=True)
        cases = [
            _case(SMALL, lambda: read_resume_state(small, home)),
            _case(BIG, lambda: read_resume_state(big, home)),
            _case(CONTEXT, lambda: load_model_context(big, home)),
        ]
        samples = await run_rounds(cases, rounds)
        growth, _ = _memory(home, small, big)
        yield [
            {"case": each.name, "milliseconds": round(samples.seconds(each.name) * 1e3, 3)} for each in cases
        ]
        yield [
            bound_row("cost with a checkpoint, big / small", samples.ratio([BIG], [SMALL]), at_most=1.5),
            bound_row("state of the big file", samples.seconds(BIG) * 1e3, "milliseconds", at_most=5),
            bound_row("memory growth, big after small", growth / 1e6, "megabytes", at_most=20),
        ]
        big.unlink()
        yield await _whole_rows(home, small, min(rounds, 3), file_bytes)


async def _whole_rows(home: Home, small: Path, rounds: int, file_bytes: int) -> list[Row]:
    whole = _write_rollout(home, file_bytes, checkpoint=False)
    cases = [
        _case(WHOLE, lambda: load_model_context(whole, home), repeats=1),
        _case(WHOLE_STATE, lambda: read_resume_state(whole, home), repeats=1),
        _scan_case(whole),
    ]
    samples = await run_rounds(cases, rounds)
    growth, kept = _memory(home, small, whole)
    speed = whole.stat().st_size / samples.seconds(WHOLE) / 1e6
    return [
        bound_row("without a checkpoint", speed, "megabytes_per_second", at_least=300),
        {
            "case": "state without a checkpoint",
            "megabytes_per_second": round(whole.stat().st_size / samples.seconds(WHOLE_STATE) / 1e6),
        },
        bound_row("cost without a checkpoint / bare reverse scan", samples.ratio([WHOLE], [SCAN]), at_most=2),
        bound_row("memory growth / bytes of the context", growth / kept, at_most=4),
    ]


def _case(name: str, load: Callable[[], object], *, repeats: int = _REPEATS) -> Case:
    async def run() -> float:
        start = time.perf_counter()
        for _ in range(repeats):
            load()
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
    read_resume_state(small, home)
    before = peak_bytes()
    state = read_resume_state(big, home)
    print(peak_bytes() - before, sum(item.size_bytes for item in state.items))


def peak_bytes() -> int:
    """The most memory that this process has had so far."""
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
            before = [*_call_lines(numbers), _checkpoint_line(next(numbers))]
            file.writelines(before)
            file.write(_memory_line(before, file.tell()))
            file.writelines(_turn_lines(numbers, TAIL_LINES))
    return path


def _turn_lines(numbers: Iterator[int], lines: int) -> Iterator[bytes]:
    for _ in range(lines):
        number = next(numbers)
        yield encode(make_line(number)) + b"\n" if number % 8 == 0 else _event_line(number)


def _event_line(number: int) -> bytes:
    return encode_item(EventMsg.agent_reasoning(build_text(number, 420)), timestamp=STAMP, ordinal=number)


def _call_lines(numbers: Iterator[int]) -> Iterator[bytes]:
    """What a fold has to keep: calls with their results, as many as it keeps of them."""
    for _ in range(CLOSED_CALLS_MAX):
        number = next(numbers)
        call = ResponseItem.function_call(
            name="shell", arguments=build_text(number, 420), call_id=f"c{number}"
        )
        yield encode_item(call, timestamp=STAMP, ordinal=number)
        output = ResponseItem.function_call_output(call_id=f"c{number}", output=build_text(number, 420))
        yield encode_item(output, timestamp=STAMP, ordinal=next(numbers))


def _checkpoint_line(number: int) -> bytes:
    history = [ResponseItem.message("user", build_text(each, 420)) for each in range(20)]
    item = Compacted(message="summary", replacement_history=list(history))
    return encode_item(item, timestamp=STAMP, ordinal=number)


def _memory_line(before: list[bytes], upto_offset: int) -> bytes:
    """The `x_memory` behind these lines, as a recorder makes it."""
    fold = ThreadFold()
    for each in before:
        fold.add(decode_line(each[:-1]))
    item = fold.snapshot(upto_offset)
    item.last_line = line_hash(before[-1][:-1])
    return encode_item(item, timestamp=STAMP)


if __name__ == "__main__":
    _print_memory(Home(sys.argv[1]), *sys.argv[2:])
