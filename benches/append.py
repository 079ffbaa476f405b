"""Does appending cost more at the end of a large file than at its beginning?

The large file is filled first. Then fresh files and the large one take turns, so that both
sides meet the same machine.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path

from benches.recording import open_recorder, record_many
from benches.report import Row, bound_row
from rollout import RolloutRecorder

__all__ = ["append_rows"]

ITEMS = 10_000


async def append_rows(folder: Path, *, file_bytes: int, rounds: int) -> list[Row]:
    """What 10,000 items cost at the end of a file of `file_bytes`, against the first 10,000 of a new one."""
    firsts, lasts = [], []
    async with open_recorder(folder) as large:
        receipt = await large.flush()
        while receipt.offset_bytes < file_bytes:
            await record_many(large, ITEMS)
            receipt = await large.flush()
        await large.sync()
        for _ in range(rounds):
            async with open_recorder(folder) as fresh:
                firsts.append(await _time_append(fresh))
            lasts.append(await _time_append(large))
    ratio = statistics.median(last / first for first, last in zip(firsts, lasts, strict=True))
    name = f"cost of {ITEMS:,} items after {file_bytes / 1e9:g} GB / cost of the first {ITEMS:,}"
    return [bound_row(name, ratio, at_most=1.1)]


async def _time_append(recorder: RolloutRecorder) -> float:
    start = time.perf_counter()
    await record_many(recorder, ITEMS)
    await recorder.flush()
    seconds = time.perf_counter() - start
    await recorder.sync()
    return seconds
