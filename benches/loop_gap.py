"""How long the caller's event loop stands still while a task on it records at full speed.

A second task sleeps for a millisecond over and over; a gap is the time between two of its
wake-ups. The same is measured without load: that part is the machine's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from benches.recording import open_recorder
from benches.report import Row, bound_row
from benches.workload import TEXT_BYTES, build_text
from protocol import ResponseItem
from rollout import RolloutRecorder

__all__ = ["gap_rows", "largest_gap"]

TICK_SECONDS = 0.001
LARGE_TEXT_BYTES = 2_000_000  # with its escapes, just under 2 MiB


async def gap_rows(folder: Path, *, seconds: float) -> list[Row]:
    """The largest gap without load, with small records, with large ones."""
    idle = await largest_gap(lambda: asyncio.sleep(seconds))
    rows = [{"figure": "largest loop gap without load", "milliseconds": round(idle * 1e3, 3)}]
    for name, size_bytes in (("550 B", TEXT_BYTES), ("2 MiB", LARGE_TEXT_BYTES)):
        async with open_recorder(folder) as recorder:
            gap = await largest_gap(_load(recorder, build_text(1, size_bytes), seconds))
        rows.append(bound_row(f"largest loop gap, records of {name}", gap * 1e3, "milliseconds", at_most=20))
    return rows


def _load(recorder: RolloutRecorder, text: str, seconds: float) -> Callable[[], Awaitable[None]]:
    async def load() -> None:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            await recorder.record(ResponseItem.message("assistant", text))

    return load


async def largest_gap(load: Callable[[], Awaitable[None]]) -> float:
    """The longest that a task which sleeps a millisecond had to wait meanwhile."""
    gaps: list[float] = []
    ticker = asyncio.create_task(_tick(gaps))
    await asyncio.sleep(TICK_SECONDS * 5)
    await load()
    await asyncio.sleep(TICK_SECONDS)  # the gap that the load's last step made
    ticker.cancel()
    return max(gaps)


async def _tick(gaps: list[float]) -> None:
    last = time.perf_counter()
    while True:
        await asyncio.sleep(TICK_SECONDS)
        now = time.perf_counter()
        gaps.append(now - last)
        last = now
