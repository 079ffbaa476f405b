"""Workloads: small programs that record numbered items and say what they were promised.

Invariant: every promise is noted in the shim's log, between the calls that it rests on: first
`offer`, then `accept`, then the acknowledgement of a barrier with how many items it covers. What
the recorder raises is noted too; nothing is expected here, `contract` judges.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from protocol.codec import encode_item
from protocol.errors import RolloutError, UnwrittenItems
from protocol.meta import SessionMeta
from rollout.config import RecorderConfig
from rollout.kept import keep_unwritten
from rollout.recorder import RecorderOpening, RolloutRecorder
from rollout.repair import repair_rollout
from tests.faults.numbered import numbered_item

__all__ = [
    "NAMES_FOLLOW",
    "PREPARE",
    "REPLAYED_ITEMS",
    "REPLAYS",
    "ROLLOUT",
    "THREAD_ID",
    "WORKLOADS",
    "Session",
    "rollout_in",
    "run_workload",
]

THREAD_ID = "01960000-0000-7000-8000-0000000000fa"
ROLLOUT = f"made/here/rollout-2026-11-29T10-11-12-{THREAD_ID}.jsonl"
"""Below the watched folder; its own folders are made by the recorder."""

_TRIES = 4
_LINGER_SECONDS = 0.5
Mark = Callable[[str], None]


def rollout_in(root: str | os.PathLike[str]) -> Path:
    """The rollout of a workload that ran in a folder."""
    return Path(root) / ROLLOUT


class Session:
    """One program: it may open the same rollout several times, one after the other."""

    def __init__(
        self,
        path: Path,
        *,
        mark: Mark,
        lift: Callable[[], None],
        quiet: Callable[[bool], None],
        patient: bool,
    ) -> None:
        self.path = path
        self.lift = lift
        self.next_number = 0
        self.over = False
        """The recorder could not be had, or ended with an error: nothing more is done."""
        self._mark_text = mark
        self._quiet = quiet
        self._recorder: RolloutRecorder
        self._config = RecorderConfig(
            sync_seconds=60,
            close_seconds=30 if patient else 0.12,
            retry_seconds_min=0.002,
            retry_seconds_max=0.02,
            linger_seconds=0.001,
        )

    def mark(self, kind: str, **fields: Any) -> None:
        self._mark_text(json.dumps({"kind": kind, **fields}))

    async def create(self) -> None:
        await self._begin(
            lambda: RolloutRecorder.create(self.path, SessionMeta(cwd="/"), config=self._config)
        )

    async def open(self) -> None:
        if not self.over:
            await self._begin(lambda: RolloutRecorder.open(self.path, config=self._config))

    async def _begin(self, make: Callable[[], RecorderOpening]) -> None:
        for _ in range(_TRIES):
            try:
                self._recorder = await make()
            except RolloutError as error:
                self._mark_error("begin", error)
            else:
                return
        self.over = True

    def record(self, *sizes: int) -> None:
        """One fact: as many items as there are sizes, accepted together."""
        if self.over:
            return
        items = [numbered_item(self.next_number + i, size) for i, size in enumerate(sizes)]
        self.next_number += len(items)
        self.mark("offer", upto=self.next_number)
        try:
            self._recorder.record_nowait(*items)
        except RolloutError as error:
            self._mark_error("record", error)
            return
        self.mark("accept", upto=self.next_number)

    async def flush(self) -> None:
        if not self.over:
            await self._barrier("flush", self._recorder.flush)

    async def sync(self) -> None:
        if not self.over:
            await self._barrier("sync", self._recorder.sync)

    async def persist(self) -> None:
        if not self.over:
            await self._barrier("sync", self._recorder.persist)

    async def _barrier(self, kind: str, wait: Callable[[], Awaitable[Any]]) -> None:
        upto = self.next_number
        for _ in range(_TRIES):
            try:
                receipt = await wait()
            except RolloutError as error:
                self._mark_error(kind, error)
            else:
                self.mark(kind, upto=upto, offset=receipt.offset_bytes, items=receipt.items)
                return

    async def replay(self) -> None:
        """Bring in what an earlier recorder could not write; all of it was accepted then."""
        self.next_number = REPLAYED_ITEMS
        for _ in range(_TRIES):
            try:
                await asyncio.to_thread(repair_rollout, self.path, dry_run=False, replay=True)
            except RolloutError as error:
                self._mark_error("repair", error)
            else:
                self.mark("sync", upto=self.next_number)
                return
        self.over = True

    async def close(self) -> None:
        if self.over:
            return
        upto = self.next_number
        try:
            receipt = await self._recorder.aclose()
        except UnwrittenItems as error:
            kept, carried = error.kept_path, len(error.unwritten)
            self.mark("unwritten", kept=kept, carried=carried, pending=error.pending_items)
            self.over = True
        except RolloutError as error:
            self._mark_error("close", error)
            self.over = True
        else:
            self.mark("close", upto=upto, offset=receipt.offset_bytes, items=receipt.items)

    async def abandon(self) -> None:
        """As if the process died, as far as the file can tell. The faults end with it."""
        if self.over:
            return
        self._recorder.discard()
        await self._recorder.aclose()  # after `discard` it only waits
        self.lift()

    def _mark_error(self, operation: str, error: RolloutError) -> None:
        self.mark("error", operation=operation, type=type(error).__name__, errno=error.errno, text=str(error))

    def as_stranger(self, act: Callable[[], object]) -> None:
        """Do to the file what another program might."""
        if self.over:
            return
        self.mark("stranger")
        self._quiet(True)
        try:
            act()
        except OSError:
            self.mark("stranger_failed")  # there was no file to do it to
        finally:
            self._quiet(False)


# The programs


async def _three(session: Session) -> None:
    """The smallest: three items, a flush, a sync, a reopen."""
    await session.create()
    session.record(40)
    await session.flush()
    session.record(200)
    await session.sync()
    await session.close()
    await session.open()
    session.record(300)
    await session.close()


async def _five(session: Session) -> None:
    """Five items, two of them one fact, with flush, sync, close, reopen."""
    await session.create()
    session.record(60)
    await session.flush()
    session.record(700, 90)
    await session.sync()
    session.record(500)
    await session.close()
    await session.open()
    session.record(120)
    await session.flush()
    await session.sync()
    await session.close()


async def _one(session: Session) -> None:
    """Only the first prompt."""
    await session.create()
    session.record(80)
    await session.sync()
    await session.close()


async def _page(session: Session) -> None:
    """One item of several pages."""
    await session.create()
    session.record(20_000)
    await session.sync()
    await session.close()


async def _batch(session: Session) -> None:
    """Batches of ten, each one write."""
    await session.create()
    session.record(*[150] * 10)
    await session.flush()
    session.record(*[90] * 10)
    await session.sync()
    session.record(*[40] * 10)
    await session.close()
    await session.open()
    session.record(*[200] * 10)
    await session.sync()
    await session.close()


async def _large(session: Session) -> None:
    """Lines over a page, over a sector border, and one of many pages."""
    await session.create()
    session.record(100)
    session.record(5000)
    await session.flush()
    session.record(9000, 300)
    await session.sync()
    session.record(33_000)
    await session.flush()
    session.record(4000)
    await session.close()
    await session.open()
    session.record(4500, 20)
    await session.sync()
    await session.close()


async def _persisted(session: Session) -> None:
    """The file is asked for before there is an item."""
    await session.create()
    await session.persist()
    session.record(100)
    await session.flush()
    session.record(50)
    await session.close()


async def _torn(session: Session) -> None:
    """Goes on where another process died inside a line."""
    await session.open()
    session.record(70)
    await session.flush()
    session.record(600)
    await session.sync()
    await session.close()


async def _unfinished(session: Session) -> None:
    """Goes on where another process died between a line and its newline."""
    await session.open()
    session.record(70)
    await session.sync()
    await session.close()


async def _unlinked(session: Session) -> None:
    """Somebody deletes the file while it is written: it is rebuilt."""
    await session.create()
    session.record(100)
    await session.sync()
    session.record(200)
    await session.flush()
    session.as_stranger(session.path.unlink)
    session.record(300)
    await session.flush()
    session.record(400)
    await session.sync()
    await session.close()


async def _shortened(session: Session) -> None:
    """Somebody cuts off what was not synced yet."""
    await session.create()
    session.record(100)
    await session.sync()
    synced_bytes = session.path.stat().st_size if session.path.exists() else 0
    session.record(200, 300)
    await session.flush()
    session.as_stranger(lambda: _cut(session.path, synced_bytes + 150))
    session.record(400)
    await session.sync()
    await session.close()


def _cut(path: Path, size: int) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.ftruncate(descriptor, min(size, os.fstat(descriptor).st_size))
    finally:
        os.close(descriptor)


async def _overlapping(session: Session) -> None:
    """Items come and are flushed while a sync is under way; producers do not wait for each other."""
    await session.create()
    session.record(100)
    await session.flush()
    syncs = []
    for size in (50, 3000, 700):
        session.record(size)
        syncs.append(asyncio.create_task(session.sync()))
        await asyncio.sleep(0)
        session.record(size)
        await session.flush()
    await asyncio.gather(*syncs)
    await session.close()


async def _abandoned(session: Session) -> None:
    """A recorder is given up without being closed, perhaps after a failed sync; another one goes on."""
    await session.create()
    session.record(100)
    await session.sync()
    session.record(2000)
    await session.flush()
    await session.sync()
    await session.abandon()
    await session.open()
    session.record(80)
    await session.sync()
    await session.close()


async def _replayed(session: Session) -> None:
    """Unwritten items wait beside a torn rollout; one of them stands there already."""
    await session.replay()
    await session.open()
    session.record(70)
    await session.close()


WORKLOADS = {
    "replayed": _replayed,
    "one": _one,
    "page": _page,
    "abandoned": _abandoned,
    "three": _three,
    "five": _five,
    "batch": _batch,
    "large": _large,
    "persisted": _persisted,
    "torn": _torn,
    "unfinished": _unfinished,
    "unlinked": _unlinked,
    "shortened": _shortened,
    "overlapping": _overlapping,
}

REPLAYS = frozenset({"replayed"})
"""However such a run ends, a further repair completes what it began."""
NAMES_FOLLOW = frozenset({"abandoned"})
"""Where a recorder dies before it could sync the names, the next one relies on the file's own sync for
them, as all of ext4, xfs and btrfs give it (docs/faults.md, Decisions)."""

_OLD_META = (
    '{"timestamp":"2026-11-29T10:11:12.000Z","ordinal":0,"type":"session_meta","payload":{"id":"'
    + THREAD_ID
    + '","timestamp":"2026-11-29T10:11:12.000Z","cwd":"/","originator":"test","cli_version":"1",'
    '"history_mode":"paginated"}}\n'
)
_OLD_ITEM = (
    '{"timestamp":"2026-11-29T10:11:12.500Z","ordinal":1,"type":"event_msg",'
    '"payload":{"type":"agent_message","message":"an old item"}}\n'
)


def _prepare(root: Path, text: str) -> None:
    path = rollout_in(root)
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")


REPLAYED_ITEMS = 6
_STANDING, _WAITING = (0, 1, 2), (2, 3, 4, 5)
"""Items in the rollout, and in the file of unwritten items beside it."""


def _line_of(number: int) -> bytes:
    item = numbered_item(number, 90 * (number + 1))
    return encode_item(item, timestamp="2026-11-29T10:11:13.000Z", ordinal=number + 1)


def _prepare_replay(root: Path) -> None:
    lines = [_OLD_META.encode(), *map(_line_of, _STANDING)]
    whole = b"".join(lines)
    path = rollout_in(root)
    path.parent.mkdir(parents=True)
    path.write_bytes(whole + _line_of(3)[:40])
    keep_unwritten(
        path,
        [b"".join(map(_line_of, _WAITING))],
        thread_id=THREAD_ID,
        offset_bytes=len(whole) - len(lines[-1]),
        items=len(_WAITING),
    )


PREPARE: dict[str, Callable[[Path], None]] = {
    "torn": lambda root: _prepare(root, _OLD_META + _OLD_ITEM + _OLD_ITEM[:90]),
    "replayed": _prepare_replay,
    "unfinished": lambda root: _prepare(root, _OLD_META + _OLD_ITEM[:-1]),
}
"""What stands in the folder before a workload begins."""


def run_workload(
    name: str,
    root: str,
    spill: str,
    *,
    mark: Mark,
    lift: Callable[[], None],
    quiet: Callable[[bool], None],
    patient: bool,
    linger: bool,
) -> None:
    """Run one in this process. `patient`: the faults end, so closing may take as long as it needs.
    `linger`: a call is slow; see what it does when the recorder is closed already."""
    tempfile.tempdir = spill
    session = Session(rollout_in(root), mark=mark, lift=lift, quiet=quiet, patient=patient)

    async def run() -> None:
        await WORKLOADS[name](session)
        if linger:
            await asyncio.sleep(_LINGER_SECONDS)
        session.mark("end")

    asyncio.run(run())
