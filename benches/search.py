"""`python -m benches search`: 600 MB of text in 300 threads, against ripgrep over the same files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benches.measure import Case, run_rounds
from benches.report import Row, bound_row, note_row
from benches.resume import peak_bytes
from benches.search_home import NEEDLE, NEWEST, NOWHERE, link_threads, write_home
from thread_store import Home, ThreadSearch
from thread_store.search.search_query import make_query

__all__ = ["search_rows"]

RG = ("rg", "--no-config", "--no-ignore", "--no-messages", "--fixed-strings")
LARGE_BYTES = 10_000_000_000


async def search_rows(folder: Path, *, rounds: int, threads: int, thread_bytes: int) -> list[Row]:
    """Seconds for the whole home; ripgrep is a process, ours a call in this one."""
    place = folder / f"bench-search-{os.getpid()}"
    try:
        home = write_home(place / "home", threads=threads, thread_bytes=thread_bytes)
        return [*await _speed(home, rounds), *_first_hit(home, rounds), *_memory(home)]
    finally:
        shutil.rmtree(place, ignore_errors=True)


async def _speed(home: Home, rounds: int) -> list[Row]:
    cases = [
        _ours("search, exact", home, NEEDLE, case_sensitive=True),
        _ours("search", home, NEEDLE.lower()),
        _ours("search, nothing to find", home, NOWHERE),
        _ours("search, pattern", home, "cancel sc[aou]pe", regex=True),
        _ours("search, not ASCII", home, "straße" + NOWHERE),
    ]
    known = shutil.which("rg") is not None
    if known:
        cases += [
            _ripgrep("rg -F", home, NEEDLE),
            _ripgrep("rg -F -i", home, "-i", NEEDLE.lower()),
            _ripgrep("rg -F -i, nothing to find", home, "-i", NOWHERE),
        ]
    samples = await run_rounds(cases, rounds)
    size = sum(found.path.stat().st_size for found in home.rollouts())
    rows: list[Row] = [
        {
            "case": case.name,
            "milliseconds": round(samples.seconds(case.name) * 1000, 1),
            "gigabytes_per_second": round(size / samples.seconds(case.name) / 1e9, 2),
        }
        for case in cases
    ]
    if not known:
        return [*rows, note_row("ripgrep (rg) is not installed: there is nothing to compare with")]
    return [
        *rows,
        bound_row("exact / rg -F", samples.ratio(["search, exact"], ["rg -F"]), at_most=1.2),
        bound_row("in any case / rg -F -i", samples.ratio(["search"], ["rg -F -i"]), at_most=1.5),
        bound_row(
            "nothing to find / rg -F -i",
            samples.ratio(["search, nothing to find"], ["rg -F -i, nothing to find"]),
            at_most=1.5,
        ),
    ]


def _ours(name: str, home: Home, text: str, **options: Any) -> Case:
    async def run() -> float:
        begun = time.perf_counter()
        for _ in ThreadSearch(home, make_query(text, **options)):
            pass
        return time.perf_counter() - begun

    return Case(name, run)


def _ripgrep(name: str, home: Home, *arguments: str) -> Case:
    async def run() -> float:
        begun = time.perf_counter()
        done = subprocess.run(  # noqa: ASYNC221  # nothing else runs here
            [*RG, *arguments, str(home.path)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False
        )
        if done.returncode not in (0, 1):
            raise RuntimeError(f"{name} failed")
        return time.perf_counter() - begun

    return Case(name, run)


def _first_hit(home: Home, rounds: int) -> list[Row]:
    """How long it takes until the hit is there that only the newest thread has."""
    seconds = []
    for _ in range(rounds):
        begun = time.perf_counter()
        with ThreadSearch(home, make_query(NEWEST)) as search:
            next(search)
            seconds.append(time.perf_counter() - begun)
    milliseconds = sorted(seconds)[len(seconds) // 2] * 1000
    return [bound_row("first hit, in the newest thread", milliseconds, "milliseconds", at_most=100)]


def _memory(home: Home) -> list[Row]:
    """The peak of a process that searches 10 GB: the same files, each as many threads."""
    size = sum(found.path.stat().st_size for found in home.rollouts())
    times = max(1, min(LARGE_BYTES // size, 40))
    larger = link_threads(home, times=times)
    command = [sys.executable, "-m", "benches.search", os.fspath(larger.path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    megabytes = int(done.stdout) / 1e6
    return [bound_row(f"peak memory at {size * times / 1e9:.1f} GB", megabytes, "megabytes", at_most=100)]


if __name__ == "__main__":
    for _ in ThreadSearch(Home(sys.argv[1]), make_query(NEEDLE)):
        pass
    print(peak_bytes())
