"""Workloads of a store: a long thread with turns and calls, forks, upkeep, an erasure.

Invariant: a home that stands there before a workload begins is made once a process, without a fault, and
copied for each run with its times.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from protocol.errors import RolloutError
from protocol.meta import SessionMeta
from tests.faults.numbered import PRODUCER
from tests.faults.store_ledger import StoreLedger
from tests.faults.store_session import Pen, StoreSession, config_of
from thread_store.local_store import LocalThreadStore

__all__ = ["HOME", "STORE_WORKLOADS", "home_in", "ledger_at_start", "prepare_home", "run_store_workload"]

HOME = "home"
"""Below the watched folder."""
_LINGER_SECONDS = 0.5
_FIRST = "01960000-0000-7000-8000-0000000000a1"
_SECOND = "01960000-0000-7000-8000-0000000000a2"
_RECORDS = 300
_STANDING = 24
"""Items of a thread that is there before."""


def home_in(root: str | Path) -> Path:
    """The home of a workload that ran in a folder."""
    return Path(root) / HOME


def _first() -> Pen:
    return Pen(0, _FIRST, written=_STANDING)


def _second() -> Pen:
    return Pen(1, _SECOND, written=_STANDING)


async def _recorded(session: StoreSession) -> None:
    """A thread of 300 records with turns and tool calls, flushed, synced, compacted, closed, gone on with."""
    pen = await session.create()
    for number in range(_RECORDS // 25):
        sizes = [40 + 7 * number] * 20 + [700]
        await session.turn(pen, sizes, calls=number % 2)
        await (session.flush if number % 3 else session.sync)(pen)
        if number == 7:
            await session.compact(pen)
    await session.close(pen)
    await session.open(pen)
    session.record(pen, 100)
    await session.sync(pen)
    await session.list()
    await session.close(pen)


async def _forked(session: StoreSession) -> None:
    """Both kinds of forks of a thread that is being written, and all three go on."""
    source = _first()
    await session.open(source)
    session.record(source, 200, 90)
    copied = await session.fork(source, "copy")
    resting = await session.fork(source, "reference")
    for pen in (source, copied, resting):
        session.record(pen, 300)
    await session.sync(copied)
    await session.flush(resting)
    for pen in (resting, copied, source):
        await session.close(pen)
    await session.open(resting)
    session.record(resting, 80)
    await session.close(resting)
    await session.list()


async def _kept(session: StoreSession) -> None:
    """Threads are archived, taken out again, compressed, expanded by going on, named, deleted."""
    first, second = _first(), _second()
    await session.do("archive", first)
    await session.list()
    await session.do("unarchive", first)
    await session.do("compress", first, older_than_seconds=0)
    await session.do("rename", first, "the first")
    await session.open(first)
    session.record(first, 120)
    await session.sync(first)
    await session.close(first)
    await session.do("compress", second, older_than_seconds=0)
    await session.do("archive", second)
    await session.do("delete", second)
    await session.list()


async def _erased(session: StoreSession) -> None:
    """What should not have been recorded is erased, in a compressed fork too; then the thread goes on."""
    first, second = _first(), _second()
    await session.do("compress", second, older_than_seconds=0)
    await session.erase([first, second])
    await session.open(first)
    session.record(first, 60)
    await session.close(first)
    await session.list()


STORE_WORKLOADS = {
    "store_recorded": _recorded,
    "store_forked": _forked,
    "store_kept": _kept,
    "store_erased": _erased,
}

_EMPTY = frozenset({"store_recorded"})
"""Workloads that begin without a home."""


# What stands there before


async def _make_standing(home: Path) -> None:
    def ignore(*_: object) -> None:
        """Nobody asks."""

    session = StoreSession(home, mark=ignore, patient=True)
    async with LocalThreadStore(home, config=config_of(patient=True), collect_git=False) as store:
        for pen in (Pen(0, _FIRST), Pen(1, _SECOND)):
            pen.thread = await store.create_thread(SessionMeta(cwd="/", id=pen.thread_id))
            for _ in range(3):
                await session.turn(pen, [60] * (_STANDING // 3))
            session.whisper(pen)
            await pen.thread.aclose()
        await store.list_threads(archived=None)


@functools.cache
def _standing() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="rollout-faults-home-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    try:
        asyncio.run(_make_standing(folder / HOME))
    except RolloutError as error:
        raise RuntimeError(f"the home before a workload can't be made: {error}") from error
    return folder / HOME


def prepare_home(workload: str, root: Path) -> None:
    """Put there what stands there before a workload begins."""
    if workload not in _EMPTY:
        shutil.copytree(_standing(), home_in(root), symlinks=True)


def ledger_at_start(workload: str) -> StoreLedger:
    """What earlier processes had promised."""
    ledger = StoreLedger()
    if workload not in _EMPTY:
        ledger.add_standing(0, _FIRST, _STANDING)
        ledger.add_standing(1, _SECOND, _STANDING)
        ledger.secret = "there"
    return ledger


def run_store_workload(
    name: str,
    root: str,
    *,
    mark: Callable[[str], None],
    patient: bool,
    linger: bool,
) -> None:
    """Run one in this process; as `workloads.run_workload`."""
    session = StoreSession(home_in(root), mark=mark, patient=patient)

    async def run() -> None:
        await session.enter()
        await STORE_WORKLOADS[name](session)
        await session.leave()
        if linger:
            await asyncio.sleep(_LINGER_SECONDS)
        session.mark("end")

    asyncio.run(run())


assert _RECORDS < PRODUCER
