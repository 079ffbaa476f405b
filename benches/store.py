"""`python -m benches store`: many threads of one store, one after the other and all at once."""

from __future__ import annotations

import asyncio
import gc
import os
import tempfile
import threading
import time
from contextlib import AsyncExitStack
from pathlib import Path

from benches.measure import Case, run_rounds
from benches.memory_fold import fold_rows
from benches.report import Row, bound_row
from benches.workload import build_item
from protocol import SessionMeta
from thread_store import LocalThreadStore

__all__ = ["store_rows"]

POOLED = 1 + 1 + 8 + 4
"""The main thread, the service, and what its two pools grow to."""

ONE, MANY = "one thread", "{count} threads in turn"


async def store_rows(folder: Path, *, rounds: int, churned: int, open_at_once: int, items: int) -> list[Row]:
    """`churned` threads are opened, written and closed; `open_at_once` record `items` items in turn."""
    rows = await churn_rows(folder, churned)
    many = MANY.format(count=f"{open_at_once:,}")
    cases = [
        Case(ONE, lambda: _record(folder, threads=1, items=items)),
        Case(many, lambda: _record(folder, threads=open_at_once, items=items)),
    ]
    samples = await run_rounds(cases, rounds)
    rows += [{"open": name, "items_per_second": round(1 / samples.seconds(name))} for name in (ONE, many)]
    rows.append(bound_row(f"items/s of {many} / {ONE}", samples.ratio([ONE], [many]), at_least=0.5))
    return rows + await fold_rows(folder, rounds=rounds, items=items // 3, gap_seconds=2.0)


async def churn_rows(folder: Path, count: int) -> list[Row]:
    """What is left of threads that were opened, written and closed: nothing that grows with their number."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(dir=folder) as home:
        async with LocalThreadStore(home, collect_git=False) as store:
            for number in range(count):
                async with await store.create_thread(SessionMeta(cwd="/work")) as thread:
                    thread.record_nowait(build_item(number))
                if number + 1 in (count // 10, count):
                    rows.append({"threads_closed": number + 1, **_held()})
    first, last = rows
    grown = last["rss_kibibytes"] - first["rss_kibibytes"]
    return [
        *rows,
        bound_row(
            "descriptors that the later nine tenths left",
            last["descriptors"] - first["descriptors"],
            "count",
            at_most=0,
        ),
        bound_row("OS threads at the end, pools filled", last["os_threads"], "count", at_most=POOLED),
        bound_row("bytes that each of them left", grown * 1024 / (count - count // 10), "bytes", at_most=200),
    ]


def _held() -> Row:
    gc.collect()
    status = Path("/proc/self/status").read_text(encoding="ascii")
    rss = next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "os_threads": threading.active_count(),
        "rss_kibibytes": int(rss),
    }


async def _record(folder: Path, *, threads: int, items: int) -> float:
    """Seconds an item, from the first record to the last flush; opening and closing don't count."""
    with tempfile.TemporaryDirectory(dir=folder) as home:
        async with LocalThreadStore(home, collect_git=False) as store, AsyncExitStack() as stack:
            opened = [
                await stack.enter_async_context(await store.create_thread(SessionMeta(cwd="/work")))
                for _ in range(threads)
            ]
            for thread in opened:
                await thread.persist()
            start = time.perf_counter()
            for number in range(items):
                await opened[number % threads].record(build_item(number))
            await asyncio.gather(*(thread.flush() for thread in opened))
            return (time.perf_counter() - start) / items
