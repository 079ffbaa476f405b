"""The end of a soak: what is left on the disk against what the producers were told.

Invariant: what was set aside is brought in by the product's own repair, and each thread is opened, written
and closed once more by a store; the bytes are judged by an eye that shares no code with it. Growth is judged
by the process that nobody killed.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from pathlib import Path
from statistics import median

from protocol.errors import RolloutError
from rollout.kept import UNWRITTEN, find_kept
from rollout.repair import repair_rollout
from tests.faults.numbered import look_at, numbered_item, numbers_in
from tests.faults.restart import read_back
from tests.faults.soak_log import Ledger, Told
from tests.faults.soak_stranger import numbers_of_history
from tests.faults.soak_worker import thread_id_of
from thread_store import LocalThreadStore

__all__ = ["check_growth", "check_home"]

_FAILURES_MAX = 20

# What a process may use more in its last fifth than in its second. Resident memory: the heap of the
# interpreter breathes, and the fold of each thread grows up to its limits (recent calls, files, memory),
# which takes some ten thousand items; 1,000 bytes for each item accepted meanwhile leave room for that. An
# item that is kept somewhere takes 2,000 and more. Descriptors and threads: at any moment some threads are
# being opened or closed, and each of those takes a few.
_RSS_MB_MAX, _ITEM_BYTES_MAX = 24.0, 1000
_DESCRIPTORS_MAX = 24
_THREADS_MAX = 6
_SAMPLES_LEAST = 20


def check_home(home: Path, ledger: Ledger, loop: asyncio.Runner, failures: list[str]) -> int:
    """Judge every thread; returns how many items there are. What is wrong goes into `failures`."""
    items = 0
    for index, told in sorted(ledger.threads.items()):
        try:
            items += loop.run(_check_thread(home, index, told))
        except (AssertionError, RolloutError) as error:
            failures.append(f"thread {index}, {told.accepted} accepted: {type(error).__name__}: {error}")
        if len(failures) > _FAILURES_MAX:
            return items
    for path, count in ledger.forks.items():
        try:
            loop.run(_check_fork(home, Path(path), count))
        except (AssertionError, RolloutError) as error:
            failures.append(f"fork {path}: {type(error).__name__}: {error}")
    left = sorted(os.listdir(home / "thread-writer-locks"))
    if left != [".coordination.lock"]:
        failures.append(f"locks are left: {left}")
    return items


async def _check_thread(home: Path, index: int, told: Told) -> int:
    async with LocalThreadStore(home, collect_git=False) as store:
        path = store.home.find_thread(thread_id_of(index))
        if any(each.kind == UNWRITTEN for each in find_kept(path)):
            repair_rollout(path, dry_run=False, replay=True)
        count = _judge(path, told)
        before = path.read_bytes()
        async with await store.open_thread(thread_id_of(index)) as thread:
            thread.record_nowait(numbered_item(count, 50))
            await thread.sync()
        assert path.read_bytes().startswith(before[: before.rfind(b"\n") + 1]), "opening changed whole lines"
        assert numbers_in(path) == list(range(count + 1)), "a last item was not appended behind all others"
        read_back(path)
        await store.load_resume_state(thread_id_of(index))
        return count


def _judge(path: Path, told: Told) -> int:
    numbers = numbers_in(path)
    count = len(numbers)
    assert numbers == list(range(count)), "items are lost, doubled or disordered"
    assert count >= told.safe, f"{told.safe} items were acknowledged, {count} are there"
    if told.ended:
        assert count == told.accepted, f"it was closed with {told.accepted} items, {count} are there"
    ends = _call_ends(path)
    missing = [call for call in told.calls if ends[call] != 1]
    assert not missing, f"calls ended {[ends[call] for call in missing[:5]]} times: {missing[:5]}"
    found = look_at(path.read_bytes())
    assert found.ordinals == list(range(len(found.ordinals))), "the ordinals have gaps"
    read_back(path)
    return count


def _call_ends(path: Path) -> Counter[str]:
    ends: Counter[str] = Counter()
    for line in path.read_bytes().splitlines():
        if b'"x_call"' not in line:
            continue
        try:
            payload = json.loads(line)["payload"]
        except ValueError:
            continue
        if payload.get("state") in ("completed", "failed"):
            ends[payload["call_id"]] += 1
    return ends


async def _check_fork(home: Path, path: Path, count: int) -> None:
    async with LocalThreadStore(home, collect_git=False) as store:
        name = path.name.removesuffix(".jsonl")
        history = await store.read_thread(name[-36:] if "_" not in name else name[-73:-37])
        numbers = numbers_of_history(history)
    if os.fspath(path) not in history.rollouts:
        return  # it was reverted since, which is told of by itself
    if history.rollouts[-1] == os.fspath(path):
        assert numbers == list(range(count)), f"{count} items were closed, {len(numbers)} are there"


def check_growth(samples: Path, failures: list[str]) -> dict[str, tuple[float, float]]:
    """Compare the second fifth of a life with the last one."""
    lines = [list(map(int, line.split())) for line in samples.read_text(encoding="ascii").splitlines()]
    if len(lines) < _SAMPLES_LEAST:
        failures.append(f"only {len(lines)} samples of what a process uses")
        return {}
    fifth = len(lines) // 5
    first, last = lines[fifth : 2 * fifth], lines[-fifth:]
    rss, descriptors, threads, items = (
        (float(median(row[column] for row in first)), float(median(row[column] for row in last)))
        for column in range(4)
    )
    rss = rss[0] / (1 << 20), rss[1] / (1 << 20)
    allowed = _RSS_MB_MAX + (items[1] - items[0]) * _ITEM_BYTES_MAX / (1 << 20)
    if rss[1] > rss[0] + allowed:
        failures.append(f"resident memory grew from {rss[0]:.1f} to {rss[1]:.1f} MB")
    if descriptors[1] > descriptors[0] + _DESCRIPTORS_MAX:
        failures.append(f"descriptors grew from {descriptors[0]:.0f} to {descriptors[1]:.0f}")
    if threads[1] > threads[0] + _THREADS_MAX:
        failures.append(f"threads grew from {threads[0]:.0f} to {threads[1]:.0f}")
    return {"MB resident": rss, "descriptors": descriptors, "threads": threads, "items": items}
