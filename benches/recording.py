"""Our recorder's cases: sustained, each barrier, and many producers that share one sync."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from benches.measure import Case
from benches.workload import build_item, build_meta, fresh_path
from protocol.errors import PendingQueueFull
from rollout import RolloutRecorder

__all__ = ["barrier_cases", "open_recorder", "record_many", "sustained_case"]

SUSTAINED = "record_nowait, until flush returns"
FLUSH_EACH = "record + flush each"
SYNC_EACH = "record + sync each"
GROUP = "record + sync each, 64 producers"
PRODUCERS = 64


@asynccontextmanager
async def open_recorder(folder: Path) -> AsyncIterator[RolloutRecorder]:
    """A recorder whose file exists, so that making it is not measured."""
    with fresh_path(folder) as path:
        async with RolloutRecorder.create(path, build_meta()) as recorder:
            recorder.record_nowait(build_item(0))
            await recorder.sync()
            yield recorder


async def record_many(recorder: RolloutRecorder, items: int) -> None:
    """Build and record, as fast as the recorder takes them."""
    record = recorder.record_nowait
    for number in range(items):
        item = build_item(number)
        try:
            record(item)
        except PendingQueueFull:
            await recorder.record(item)


def sustained_case(folder: Path, *, items: int) -> Case:
    """Items built each time, background syncs on, measured until all of them are with the OS."""

    async def run() -> float:
        async with open_recorder(folder) as recorder:
            start = time.perf_counter()
            await record_many(recorder, items)
            await recorder.flush()
            return (time.perf_counter() - start) / items

    return Case(SUSTAINED, run)


def barrier_cases(folder: Path, *, items: int, synced_items: int) -> list[Case]:
    """One producer that waits for each item; then many that wait at the same time."""

    async def flush_each() -> float:
        async with open_recorder(folder) as recorder:
            start = time.perf_counter()
            for number in range(items):
                recorder.record_nowait(build_item(number))
                await recorder.flush()
            return (time.perf_counter() - start) / items

    async def sync_each() -> float:
        async with open_recorder(folder) as recorder:
            start = time.perf_counter()
            await _record_and_sync(recorder, synced_items)
            return (time.perf_counter() - start) / synced_items

    async def sync_together() -> float:
        each = max(1, synced_items // 8)
        async with open_recorder(folder) as recorder:
            start = time.perf_counter()
            await asyncio.gather(*(_record_and_sync(recorder, each) for _ in range(PRODUCERS)))
            return (time.perf_counter() - start) / (each * PRODUCERS)

    return [Case(FLUSH_EACH, flush_each), Case(SYNC_EACH, sync_each), Case(GROUP, sync_together)]


async def _record_and_sync(recorder: RolloutRecorder, items: int) -> None:
    for number in range(items):
        recorder.record_nowait(build_item(number))
        await recorder.sync()
