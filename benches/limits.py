"""The limits: what no recorder in this interpreter can beat, each as one case.

Every case makes its own file and removes it, and returns seconds per item.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from benches.measure import Case, per_item
from benches.workload import STAMP, Line, build_item, encode, fresh_path, make_line

__all__ = ["barrier_limits", "throughput_limits"]

BUILD = "build only"
ENCODE = "encode alone"
ONE_WRITE = "one big write"
WRITE_EACH = "write per line"
SYNC_EACH = "write + fdatasync per line"
HOP = "bare executor hop"

sync_data = getattr(os, "fdatasync", os.fsync)


def throughput_limits(folder: Path, items: int) -> list[Case]:
    """Build each item; encode each line; hand the lines over in one piece."""
    lines = [encode(make_line(number)) + b"\n" for number in range(64)]

    async def build() -> float:
        return per_item(lambda: _build_all(items), items)

    async def encode_lines() -> float:
        return per_item(lambda: _encode_all(items), items)

    async def write_once() -> float:
        data = b"".join(lines) * (items // len(lines))
        return _time_writes(folder, [data]) / (items // len(lines) * len(lines))

    return [Case(BUILD, build), Case(ENCODE, encode_lines), Case(ONE_WRITE, write_once)]


def barrier_limits(folder: Path, *, items: int, synced_items: int) -> list[Case]:
    """A write a line, one with a sync a line, and a hop to an executor and back."""
    line = encode(make_line(7)) + b"\n"

    async def write_each() -> float:
        return _time_writes(folder, [line] * items) / items

    async def sync_each() -> float:
        return _time_writes(folder, [line] * synced_items, sync=True) / synced_items

    async def hop() -> float:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, _nothing)
        start = time.perf_counter()
        for _ in range(items):
            await loop.run_in_executor(None, _nothing)
        return (time.perf_counter() - start) / items

    return [Case(WRITE_EACH, write_each), Case(SYNC_EACH, sync_each), Case(HOP, hop)]


def _nothing() -> None:
    """What the executor does in a bare hop."""


def _build_all(items: int) -> None:
    for number in range(items):
        build_item(number)


def _encode_all(items: int) -> None:
    # The item is one and the same, its line is not: each has its own number.
    item = build_item(7)
    for number in range(items):
        encode(Line(STAMP, number, "response_item", item))


def _time_writes(folder: Path, blocks: list[bytes], *, sync: bool = False) -> float:
    """Seconds that the writes take; making and removing the file don't count."""
    with fresh_path(folder) as path:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            start = time.perf_counter()
            for block in blocks:
                _write_all(descriptor, block)
                if sync:
                    sync_data(descriptor)
            return time.perf_counter() - start
        finally:
            os.close(descriptor)


def _write_all(descriptor: int, block: bytes) -> None:
    written = os.write(descriptor, block)
    while written < len(block):
        written += os.write(descriptor, memoryview(block)[written:])
