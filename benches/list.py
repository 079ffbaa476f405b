"""`python -m benches list`: a page of the threads of a large home, each time in a process of its own.

The time of a case goes from the first line of the process to the page, imports included; what Python itself
takes to start doesn't count. Processor time is told beside it: other work on the machine moves it less. The
home has as many threads a day as it takes to fill a year.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benches.measure import Case, run_rounds
from benches.report import Row, bound_row
from benches.workload import fresh_path
from protocol import SessionMeta, encode_item, tracks
from protocol.timestamps import format_timestamp
from thread_store.home import Home
from thread_store.listing.index_guard import remove_index

__all__ = ["list_rows", "write_home"]

_DAYS = 365
_BEGIN = datetime(2025, 1, 1, tzinfo=UTC)
BY_CREATION, BY_CREATION_UNINDEXED = "by creation, with the index", "by creation, without it"
BY_UPDATE, BY_UPDATE_UNINDEXED = "by update, with the index", "by update, without it"
WALK = "scandir + stat of the home"

_LIST = """
import json, resource, sys, time
begun, used = time.perf_counter(), time.process_time()
from thread_store.home import Home
from thread_store.listing.thread_list import list_threads
from thread_store.listing.thread_query import ThreadQuery
page = list_threads(Home(sys.argv[1]), ThreadQuery(sort=sys.argv[2]), use_index=sys.argv[3] == "index")
seconds, used = time.perf_counter() - begun, time.process_time() - used
assert len(page.threads) == 50 and not page.notes, page.notes
print(json.dumps([seconds, used, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss]))
"""
_WALK = """
import json, os, resource, sys, time
begun, used = time.perf_counter(), time.process_time()
def walk(folder):
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                walk(entry.path)
            else:
                found.append(entry.stat(follow_symlinks=False))
found = []
walk(sys.argv[1] + "/sessions")
print(json.dumps([time.perf_counter() - begun, time.process_time() - used, 0]))
"""


async def list_rows(folder: Path, *, rounds: int, threads: int) -> list[Row]:
    """Milliseconds for the first 50 of so many threads."""
    with fresh_path(folder) as path:
        home = path.with_name("home")
        write_home(home, threads)
        remove_index(home)
        used: dict[str, list[tuple[float, float]]] = {}
        cases = [
            _case(BY_CREATION, used, _LIST, home, "created", "index"),
            _case(BY_CREATION_UNINDEXED, used, _LIST, home, "created", "none"),
            _case(BY_UPDATE, used, _LIST, home, "updated", "index"),
            _case(BY_UPDATE_UNINDEXED, used, _LIST, home, "updated", "none"),
            _case(WALK, used, _WALK, home),
        ]
        samples = await run_rounds(cases, rounds)
    cpu = {name: statistics.median(each for each, _ in figures[1:]) for name, figures in used.items()}
    peak = max(kibibytes for figures in used.values() for _, kibibytes in figures)
    what = f"50 of {threads:,}"
    return [
        *(
            {
                "case": each.name,
                "milliseconds": round(samples.seconds(each.name) * 1e3, 1),
                "processor_milliseconds": round(cpu[each.name] * 1e3, 1),
            }
            for each in cases
        ),
        *(
            bound_row(f"{what} {name}", samples.seconds(name) * 1e3, "milliseconds", at_most=limit)
            for name, limit in ((BY_CREATION, 100), (BY_CREATION_UNINDEXED, 500))
        ),
        *(
            bound_row(f"{name} / {WALK}", samples.ratio([name], [WALK]), at_most=1.5)
            for name in (BY_UPDATE, BY_UPDATE_UNINDEXED)
        ),
        *(
            bound_row(f"the same, processor time: {name}", cpu[name] / cpu[WALK], at_most=1.5)
            for name in (BY_UPDATE, BY_UPDATE_UNINDEXED)
        ),
        bound_row("memory at its peak", peak / 1024, "mebibytes", at_most=100),
    ]


def _case(
    name: str, used: dict[str, list[tuple[float, float]]], script: str, home: Path, *arguments: str
) -> Case:
    async def run() -> float:
        command = [sys.executable, "-c", script, os.fspath(home), *arguments]
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        output, _ = await process.communicate()
        seconds, processor_seconds, kibibytes = json.loads(output)
        used.setdefault(name, []).append((processor_seconds, kibibytes))
        return float(seconds)

    return Case(name, run)


def write_home(path: Path, threads: int) -> None:
    """So many threads of some records, written when they say so: the files and folders have those times."""
    home = Home(path)
    for day in range(_DAYS):
        today = range(day * threads // _DAYS, (day + 1) * threads // _DAYS)
        begun = _BEGIN + timedelta(days=day)
        folder = None
        for place, number in enumerate(today):
            at = begun + timedelta(seconds=86_400 * place // len(today))
            folder = _write_thread(home, number, at).parent
        if folder is not None:
            os.utime(folder, (begun.timestamp() + 86_400, begun.timestamp() + 86_400))


def _write_thread(home: Home, number: int, at: datetime) -> Path:
    at_ms = int(at.timestamp() * 1000)
    stamp = format_timestamp(at_ms)
    digits = f"{at_ms:012x}7{number % 4096:03x}8{number:015x}"
    thread_id = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    path = home.new_rollout_path(thread_id, created=at.replace(tzinfo=None))
    path.parent.mkdir(parents=True, exist_ok=True)
    meta = SessionMeta(cwd=f"/srv/project{number % 40}").filled(thread_id=thread_id, timestamp=stamp)
    items = [meta, *tracks.user_message(f"task {number}"), *tracks.agent_message("done " * 60)]
    lines = (encode_item(each, timestamp=stamp, ordinal=ordinal) for ordinal, each in enumerate(items))
    path.write_bytes(b"".join(lines))
    os.utime(path, (at.timestamp(), at.timestamp()))
    return path
