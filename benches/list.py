"""`python -m benches list`: a page of the threads of a large home, each time in a process of its own.

The time of a case goes from the first line of the process to the page, imports included; what Python itself
takes to start doesn't count. The home has as many threads a day as it takes to fill a year.
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
from thread_store.listing.list_index import remove_index

__all__ = ["list_rows", "write_home"]

_DAYS = 365
_BEGIN = datetime(2025, 1, 1, tzinfo=UTC)
BY_CREATION, BY_CREATION_UNINDEXED = "by creation, with the index", "by creation, without it"
BY_UPDATE, BY_UPDATE_UNINDEXED = "by update, with the index", "by update, without it"
WALK = "scandir + stat of the home"

_LIST = """
import json, resource, sys, time
begun = time.perf_counter()
from thread_store.home import Home
from thread_store.listing.thread_list import list_threads
from thread_store.listing.thread_query import ThreadQuery
page = list_threads(Home(sys.argv[1]), ThreadQuery(sort=sys.argv[2]), use_index=sys.argv[3] == "index")
seconds = time.perf_counter() - begun
assert len(page.threads) == 50 and not page.notes, page.notes
print(json.dumps([seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss]))
"""
_WALK = """
import json, os, resource, sys, time
begun = time.perf_counter()
def walk(folder):
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                walk(entry.path)
            else:
                found.append(entry.stat(follow_symlinks=False))
found = []
walk(sys.argv[1] + "/sessions")
print(json.dumps([time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss]))
"""


async def list_rows(folder: Path, *, rounds: int, threads: int) -> list[Row]:
    """Milliseconds for the first 50 of so many threads."""
    with fresh_path(folder) as path:
        home = path.with_name("home")
        write_home(home, threads)
        remove_index(home)
        kibibytes: list[float] = []
        cases = [
            _case(BY_CREATION, kibibytes, _LIST, home, "created", "index"),
            _case(BY_CREATION_UNINDEXED, kibibytes, _LIST, home, "created", "none"),
            _case(BY_UPDATE, kibibytes, _LIST, home, "updated", "index"),
            _case(BY_UPDATE_UNINDEXED, kibibytes, _LIST, home, "updated", "none"),
            _case(WALK, [], _WALK, home),
        ]
        samples = await run_rounds(cases, rounds)
    with_index, without = samples.seconds(BY_CREATION), samples.seconds(BY_CREATION_UNINDEXED)
    return [
        *({"case": each.name, "milliseconds": round(samples.seconds(each.name) * 1e3, 1)} for each in cases),
        bound_row(f"50 of {threads:,} {BY_CREATION}", with_index * 1e3, "milliseconds", at_most=100),
        bound_row(f"50 of {threads:,} {BY_CREATION_UNINDEXED}", without * 1e3, "milliseconds", at_most=500),
        bound_row(f"{BY_UPDATE} / {WALK}", samples.ratio([BY_UPDATE], [WALK]), at_most=1.5),
        bound_row(
            f"{BY_UPDATE_UNINDEXED} / {WALK}", samples.ratio([BY_UPDATE_UNINDEXED], [WALK]), at_most=1.5
        ),
        bound_row("memory", statistics.median(kibibytes) / 1024, "mebibytes", at_most=100),
        bound_row("memory, at most", max(kibibytes) / 1024, "mebibytes", at_most=100),
    ]


def _case(name: str, kibibytes: list[float], script: str, home: Path, *arguments: str) -> Case:
    async def run() -> float:
        command = [sys.executable, "-c", script, os.fspath(home), *arguments]
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        output, _ = await process.communicate()
        seconds, peak = json.loads(output)
        kibibytes.append(peak)
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
