"""The cost of the session memory: recording through a thread of a store, its fold on and off.

The same records, the same store, in turn; without the fold nobody follows the writer.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from benches.loop_gap import largest_gap
from benches.measure import Case, run_rounds
from benches.recording import record_many
from benches.report import Row, bound_row
from benches.workload import build_item, build_text
from protocol import ResponseItem, RolloutItem, SessionMeta, tracks
from rollout.follower import NoFollower
from thread_store import LocalThreadStore, Thread

__all__ = ["fold_rows"]

WITH, WITHOUT = "thread of a store, memory fold on", "thread of a store, memory fold off"
AGENT_WITH, AGENT_WITHOUT = f"turns with calls: {WITH}", f"turns with calls: {WITHOUT}"


async def fold_rows(folder: Path, *, rounds: int, items: int, gap_seconds: float) -> list[Row]:
    """Sustained speed of messages, and of whole turns, with and without; and the caller's loop gaps."""
    cases = [
        Case(WITHOUT, lambda: _messages(folder, items, folded=False)),
        Case(WITH, lambda: _messages(folder, items, folded=True)),
        Case(AGENT_WITHOUT, lambda: _turns(folder, items // 10, folded=False)),
        Case(AGENT_WITH, lambda: _turns(folder, items // 10, folded=True)),
    ]
    samples = await run_rounds(cases, rounds)
    rows: list[Row] = [
        {"case": case.name, "items_per_second": round(1 / samples.seconds(case.name))} for case in cases
    ]
    rows.append(
        bound_row("speed with the memory fold / without", samples.ratio([WITHOUT], [WITH]), at_least=0.9)
    )
    ratio = samples.ratio([AGENT_WITHOUT], [AGENT_WITH])
    rows.append({"figure": "the same, turns with calls", "ratio": round(ratio, 3)})
    for folded, name in ((False, WITHOUT), (True, WITH)):
        async with _thread(folder, folded=folded) as thread:
            gap = await largest_gap(_load(thread, gap_seconds))
        rows.append(bound_row(f"largest loop gap, {name}", gap * 1e3, "milliseconds", at_most=20))
    return rows


@asynccontextmanager
async def _thread(folder: Path, *, folded: bool) -> AsyncIterator[Thread]:
    with tempfile.TemporaryDirectory(dir=folder) as home:
        async with LocalThreadStore(home, collect_git=False) as store:
            thread = await store.create_thread(SessionMeta(cwd="/work"))
            if not folded:
                thread._core.writer.follow(NoFollower())
            thread.record_nowait(build_item(0))
            await thread.sync()
            yield thread
            await thread.aclose()


async def _messages(folder: Path, items: int, *, folded: bool) -> float:
    """Seconds an item, until all of them are with the OS."""
    async with _thread(folder, folded=folded) as thread:
        start = time.perf_counter()
        await record_many(thread, items)
        await thread.flush()
        return (time.perf_counter() - start) / items


async def _turns(folder: Path, items: int, *, folded: bool) -> float:
    """The same of turns as agents have them: half of the records speak of calls."""
    async with _thread(folder, folded=folded) as thread:
        start = time.perf_counter()
        done = 0
        while done < items:
            records = _turn(done)
            await thread.record(records)
            done += len(records)
        await thread.flush()
        return (time.perf_counter() - start) / done


def _turn(number: int) -> list[RolloutItem]:
    records: list[RolloutItem] = [
        *tracks.turn_started(f"t{number}"),
        *tracks.user_message(build_text(number, 200)),
    ]
    for call in range(3):
        call_id, arguments = f"c{number}-{call}", {"pattern": "x"}
        records += tracks.tool_call(call_id=call_id, name="grep", arguments=arguments)
        records += tracks.tool_result(
            call_id=call_id, name="grep", arguments=arguments, output=build_text(call, 380)
        )
        records += tracks.agent_message(build_text(call, 420))
    return [*records, *tracks.turn_completed(f"t{number}", last_agent_message="done")]


def _load(thread: Thread, seconds: float) -> Callable[[], Awaitable[None]]:
    text = build_text(1, 420)

    async def load() -> None:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            await thread.record(ResponseItem.message("assistant", text))

    return load
