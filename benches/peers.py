"""What people do today: a loop over aiofiles, and the session of openai-agents.

Both get the same items as we do. What is not installed is reported, not left out in silence.
"""

from __future__ import annotations

import os
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import aiofiles

from benches.measure import Case
from benches.workload import TEXTS, build_item, encode, fresh_path, make_line

__all__ = ["missing_peers", "peer_cases"]

AIOFILES = "naive aiofiles loop"
SESSION_ONE = "openai-agents SQLiteSession, one at a time"
SESSION_BATCH = "openai-agents SQLiteSession, batches of 100"
BATCH = 100


def missing_peers() -> list[str]:
    """One sentence for each peer that can't be measured here."""
    if find_spec("agents") is not None:
        return []
    return ["openai-agents is not installed, so its SQLiteSession was not measured (extra: bench)"]


def peer_cases(folder: Path, *, items: int) -> list[Case]:
    """The peers that are installed."""

    async def aiofiles_loop() -> float:
        with fresh_path(folder) as path:
            start = time.perf_counter()
            async with aiofiles.open(path, "ab") as file:
                for number in range(items):
                    await file.write(encode(make_line(number, build_item(number))) + b"\n")
            return (time.perf_counter() - start) / items

    async def one_at_a_time() -> float:
        return await _time_session(folder, items=items // 5, batch=1)

    async def in_batches() -> float:
        return await _time_session(folder, items=items, batch=BATCH)

    cases = [Case(AIOFILES, aiofiles_loop)]
    if not missing_peers():
        cases += [Case(SESSION_ONE, one_at_a_time), Case(SESSION_BATCH, in_batches)]
    return cases


async def _time_session(folder: Path, *, items: int, batch: int) -> float:
    os.environ.setdefault("OPENAI_AGENTS_DISABLE_TRACING", "1")
    from agents import SQLiteSession

    with fresh_path(folder) as path:
        session = SQLiteSession("bench", path.with_suffix(".db"))
        start = time.perf_counter()
        for first in range(0, items, batch):
            await session.add_items([_message(number) for number in range(first, first + batch)])
        seconds = time.perf_counter() - start
        session.close()
        return seconds / items


def _message(number: int) -> Any:
    return {"role": "assistant", "content": TEXTS[number & 63]}
