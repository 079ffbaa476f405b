"""A process of a soak: producers that record into threads of a store for as long as they are let.

Each producer owns a thread: it opens it (and brings in what was set aside for it), looks what is there,
records, waits for barriers, closes, and begins again. Whatever the product raises for a disk in trouble is
noted and lived with; every other error is a bug. SIGTERM lets all of them close.

    python -m tests.faults.soak_worker '{"home": …}'        see `Orders`
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import tempfile
import threading
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from protocol.errors import RolloutError, ThreadNotFound, UnwrittenItems
from protocol.meta import SessionMeta
from protocol.response_items import ResponseItem
from rollout.config import RecorderConfig
from rollout.kept import UNWRITTEN, find_kept
from rollout.repair import repair_rollout
from tests.faults import mutants
from tests.faults.numbered import numbered_item, numbers_in
from tests.faults.shim import Shim
from tests.faults.soak_log import ProducerLog
from tests.thread_store.histories import uuid as thread_uuid
from thread_store import Compaction, LocalThreadStore, Thread
from thread_store.home import Home
from thread_store.resume.resume_refusals import REFUSAL_RULES

__all__ = ["Orders", "thread_id_of"]

_SIZES = (20, 60, 150, 150, 400, 1500, 6000)
_BIG_BYTES = (60_000, 250_000)
_STEPS = (20, 120)
_WAIVED = [reason for reason, rule in REFUSAL_RULES.items() if rule.waivable]
_SAMPLE_SECONDS = 1.0
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_CONFIG = RecorderConfig(
    pending_bytes_max=4 << 20,
    sync_seconds=0.5,
    close_seconds=30.0,
    retry_seconds_min=0.02,
    retry_seconds_max=0.5,
)


@dataclass(frozen=True, slots=True)
class Orders:
    """What a process is told to do."""

    home: str
    log: str
    spill: str
    """Where unwritten items go if the disk takes nothing."""
    samples: str
    """Where it writes down what it uses."""
    first: int
    threads: int
    seed: str
    pause_seconds: float
    """Between two steps of a producer, on average."""
    plan: str
    """Faults below Python; empty: none."""

    @classmethod
    def decode(cls, text: str) -> Orders:
        return cls(**json.loads(text))


def thread_id_of(index: int) -> str:
    """The id of a producer's thread."""
    return thread_uuid(0x5000 + index)


class _Producer:
    def __init__(self, index: int, store: LocalThreadStore, orders: Orders, log: ProducerLog) -> None:
        self.index = index
        self.store = store
        self.log = log
        self.rng = random.Random(f"{orders.seed} {index}")
        self.pause_seconds = orders.pause_seconds
        self.thread_id = thread_id_of(index)
        self.has_shim = bool(orders.plan)
        self.accepted = 0
        self.stopped = False

    async def run(self) -> None:
        try:
            while not self.stopped:
                thread = await self._open()
                if thread is not None:
                    await self._work(thread)
                    await self._close(thread)
        except Exception as error:  # noqa: BLE001 - that is what is looked for
            self.log.tell_bug(self.index, error)

    @asynccontextmanager
    async def _living_with(self, doing: str) -> AsyncIterator[None]:
        """The disk is in trouble: that is told, and goes on."""
        try:
            yield
        except RolloutError as error:
            self._tell_error(doing, error)

    def _tell_error(self, doing: str, error: RolloutError) -> None:
        self.log.tell("error", self.index, doing=doing, type=type(error).__name__, text=str(error)[:300])

    async def _pause(self) -> None:
        await asyncio.sleep(self.rng.expovariate(1 / self.pause_seconds))

    # Opening

    async def _open(self) -> Thread | None:
        async with self._living_with("open"):
            if await asyncio.to_thread(self._look):
                return await self._take_over()
            return await self.store.create_thread(SessionMeta(cwd="/", id=self.thread_id), config=_CONFIG)
        await self._pause()
        return None

    def _look(self) -> bool:
        """Whether the thread is there. What was set aside for it is brought in first."""
        home = Home(self.store.home.path)
        try:
            path = home.find_thread(self.thread_id)
        except ThreadNotFound:
            self._note_found([])
            return False
        if any(each.kind == UNWRITTEN for each in find_kept(path)):
            repair_rollout(path, dry_run=False, replay=True)
            self.log.tell("replay", self.index)
        with self._as_bystander():
            has_meta, found = _has_meta(path), numbers_in(path)
        if not has_meta:
            self._note_found([])
            with self._as_bystander():
                os.unlink(path)  # its maker died inside the first line
            return False
        self._note_found(found)
        return True

    @contextmanager
    def _as_bystander(self) -> Iterator[None]:
        """What this thread does meanwhile is not the product's: nothing of it fails."""
        shim = Shim() if self.has_shim else None
        if shim is not None:
            shim.quiet(True)
        try:
            yield
        finally:
            if shim is not None:
                shim.quiet(False)

    def _note_found(self, numbers: list[int]) -> None:
        if numbers != list(range(len(numbers))):
            raise AssertionError(f"items are lost, doubled or disordered: {_odd(numbers)}")
        self.accepted = len(numbers)
        self.log.tell("found", self.index, self.accepted)

    async def _take_over(self) -> Thread:
        if self.rng.random() < 0.5:
            return await self.store.open_thread(self.thread_id, config=_CONFIG)
        thread, _ = await self.store.resume_thread(self.thread_id, allow=_WAIVED, config=_CONFIG)
        return thread

    # Recording

    async def _work(self, thread: Thread) -> None:
        for _ in range(self.rng.randint(*_STEPS)):
            if self.stopped:
                return
            async with self._living_with("work"):
                await self._step(thread)
            await self._pause()

    async def _step(self, thread: Thread) -> None:
        choice = self.rng.random()
        if choice < 0.6:
            await self._record(thread, self.rng.choice((1, 1, 1, 3, 8)))
        elif choice < 0.8:
            await self._turn(thread)
        elif choice < 0.805:
            await self._record(thread, 1, size=self.rng.randint(*_BIG_BYTES))
        elif choice < 0.82:
            await thread.compact(_summarise)
        elif choice < 0.93:
            await self._barrier("flush", thread.flush)
        else:
            await self._barrier("sync", thread.sync)

    async def _record(self, thread: Thread, count: int, *, size: int | None = None) -> None:
        """One fact of several items: all are accepted, or none is."""
        items = [
            numbered_item(self.accepted + number, size or self.rng.choice(_SIZES)) for number in range(count)
        ]
        if self.rng.random() < 0.5:
            thread.record_nowait(items)
        else:
            await thread.record(items)
        self.accepted += count
        self.log.accepted += count
        self.log.tell("accept", self.index, self.accepted)

    async def _barrier(self, kind: str, wait: Callable[[], Awaitable[object]]) -> None:
        upto = self.accepted
        await wait()
        self.log.tell(kind, self.index, upto)

    async def _turn(self, thread: Thread) -> None:
        async with thread.turn() as turn:
            turn.user_message("go on")
            await self._record(thread, 1)
            for _ in range(self.rng.choice((0, 1, 1, 2))):
                call_id = uuid.uuid4().hex
                async with turn.tool_call("exec_command", {"cmd": "true"}, call_id=call_id) as call:
                    await asyncio.sleep(self.rng.uniform(0, 0.02))
                    if self.rng.random() < 0.5:
                        call.completed("done", exit_code=0)
                    else:
                        call.failed("no such file", exit_code=1)
                self.log.tell("call", self.index, call_id=call_id)
                await self._record(thread, 1)
            turn.agent_message("done")
        await self._barrier("flush", thread.flush)

    # Closing

    async def _close(self, thread: Thread) -> None:
        try:
            await thread.aclose()
        except UnwrittenItems as error:
            kind = "carried" if error.kept_path is None else "kept"
            self.log.tell(kind, self.index, self.accepted, text=str(error)[:300])
        except RolloutError as error:
            self._tell_error("close", error)
        else:
            self.log.tell("close", self.index, self.accepted)


def _odd(numbers: list[int]) -> str:
    at = next(i for i, number in enumerate(numbers) if number != i)
    return f"item {at} of {len(numbers)} is followed by {numbers[at : at + 5]}"


def _has_meta(path: Path) -> bool:
    with path.open("rb") as file:
        return any(line.endswith(b"\n") and b'"type":"session_meta"' in line for line in file)


async def _summarise(items: list[Any]) -> Compaction:
    await asyncio.sleep(0)
    return Compaction("a summary", [ResponseItem.message("user", f"a summary of {len(items)} items")])


def sample(path: str, log: ProducerLog) -> None:
    """Write down what this process uses, and for how many items, from now on."""
    with open(path, "a", encoding="ascii") as file:
        while True:
            pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
            descriptors = len(os.listdir("/proc/self/fd"))
            used = pages * _PAGE_BYTES, descriptors, threading.active_count(), log.accepted
            print(*used, file=file, flush=True)
            if threading.Event().wait(_SAMPLE_SECONDS):
                return


async def _main(orders: Orders, log: ProducerLog) -> None:
    async with LocalThreadStore(orders.home, config=_CONFIG, collect_git=False) as store:
        producers = [
            _Producer(index, store, orders, log)
            for index in range(orders.first, orders.first + orders.threads)
        ]

        def stop() -> None:
            for each in producers:
                each.stopped = True

        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, stop)
        loop.add_signal_handler(signal.SIGUSR1, _print_tasks)
        log.tell("start")
        await asyncio.gather(*(each.run() for each in producers))


def _print_tasks() -> None:
    """What everybody waits for, where a process doesn't end."""
    for task in asyncio.all_tasks():
        task.print_stack(limit=3)


async def _enter_and_run(orders: Orders, log: ProducerLog) -> None:
    """A store that can't be entered (the disk is full) is tried again."""
    while True:
        try:
            await _main(orders, log)
        except RolloutError as error:
            log.tell("error", doing="store", type=type(error).__name__, text=str(error)[:300])
            await asyncio.sleep(0.2)
        else:
            return


def main() -> None:
    mutants.plant_from_environment()
    orders = Orders.decode(sys.argv[1])
    tempfile.tempdir = orders.spill
    if orders.plan:
        Shim().arm(orders.home, "/dev/null", orders.plan)
    log = ProducerLog(Path(orders.log))
    sampling = threading.Thread(target=sample, args=(orders.samples, log), name="soak-samples", daemon=True)
    sampling.start()
    try:
        asyncio.run(_enter_and_run(orders, log))
    except Exception as error:  # noqa: BLE001 - that is what is looked for
        log.tell_bug(-1, error)
    finally:
        log.close()


if __name__ == "__main__":
    main()
