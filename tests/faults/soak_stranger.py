"""Another process of a soak: it reads the threads that others write, forks them, and reverts its forks.

What it reads of a live thread must be a beginning of it, gapless; a fork must hold what it held; a revert
must give back what stood there before. It tells of each fork that it closed.

    python -m tests.faults.soak_stranger '{"home": …}'      see `soak_worker.Orders`
"""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
from pathlib import Path

from protocol.errors import NotARollout, RolloutError, ThreadNotFound
from rollout.check import check_rollout
from tests.faults import mutants
from tests.faults.numbered import numbered_item, numbers_of
from tests.faults.soak_log import ProducerLog
from tests.faults.soak_worker import Orders, thread_id_of
from thread_store import LocalThreadStore, Thread
from thread_store.chain.history import ThreadHistory

__all__ = ["numbers_of_history"]

_FORKS_MAX = 40
_FORK_BYTES_MAX = 2 << 20


def numbers_of_history(history: ThreadHistory) -> list[int]:
    """The items of a thread, whichever files they stand in."""
    lines = [each.line.source or b"" for each in history.records if each.line is not None]
    return numbers_of(b"\n".join(lines) + b"\n")


class _Stranger:
    def __init__(self, store: LocalThreadStore, orders: Orders, log: ProducerLog) -> None:
        self.store = store
        self.log = log
        self.rng = random.Random(orders.seed)
        self.orders = orders
        self.forks = 0

    async def run(self) -> None:
        while True:
            thread_id = thread_id_of(self.rng.randrange(self.orders.threads))
            try:
                await self._meet(thread_id)
            except (NotARollout, ThreadNotFound):
                pass  # it has hardly begun
            except RolloutError as error:
                self.log.tell("error", doing="visit", type=type(error).__name__, text=str(error)[:300])
            await asyncio.sleep(self.rng.expovariate(1 / self.orders.pause_seconds))

    async def _meet(self, thread_id: str) -> None:
        choice = self.rng.random()
        if choice < 0.4:
            _require_gapless(numbers_of_history(await self.store.read_thread(thread_id)), "a live thread")
            self.log.tell("read")
        elif choice < 0.6:
            await self.store.load_resume_state(thread_id)
            self.log.tell("state")
        elif choice < 0.8:
            path = self.store.home.find_thread(thread_id)
            report = await asyncio.to_thread(check_rollout, path)
            assert not [each for each in report.findings if each.code == "gap"], report.findings
            self.log.tell("check")
        elif self.forks < _FORKS_MAX:
            await self._fork(thread_id)

    async def _fork(self, thread_id: str) -> None:
        path = self.store.home.find_thread(thread_id)
        mode = "copy" if path.stat().st_size < _FORK_BYTES_MAX and self.rng.random() < 0.5 else "reference"
        self.forks += 1
        fork = await self.store.fork_thread(thread_id, mode=mode)  # type: ignore[arg-type]
        before = numbers_of_history(await self.store.read_thread(fork.thread_id))
        _require_gapless(before, f"a fork ({mode})")
        count = await self._go_on(fork, len(before))
        await fork.aclose()
        self._tell_fork(fork, count)
        if self.rng.random() < 0.5:
            await self._revert(fork.thread_id, before)

    def _tell_fork(self, fork: Thread, count: int) -> None:
        self.log.tell("fork", count=count, path=fork.path)

    async def _go_on(self, thread: Thread, count: int) -> int:
        """A turn of some items; returns how many there are then."""
        async with thread.turn() as turn:
            turn.user_message("another way")
            for _ in range(self.rng.randint(1, 4)):
                await thread.record(numbered_item(count, 80))
                count += 1
        await thread.sync()
        return count

    async def _revert(self, thread_id: str, before: list[int]) -> None:
        """Back to where the fork had begun, and on from there."""
        history = await self.store.read_thread(thread_id)
        turns = sum(b'"task_started"' in (each.line.source or b"") for each in history.records if each.line)
        reverted = await self.store.revert_thread(thread_id, before_turn=turns)
        found = numbers_of_history(await self.store.read_thread(thread_id))
        assert found == before, f"a revert left {len(found)} items instead of {len(before)}"
        count = await self._go_on(reverted, len(before))
        await reverted.aclose()
        self._tell_fork(reverted, count)
        self.log.tell("revert")


def _require_gapless(numbers: list[int], what: str) -> None:
    assert numbers == list(range(len(numbers))), f"{what} lacks or repeats items: {numbers[:20]} …"


async def _main(orders: Orders, log: ProducerLog) -> None:
    while True:
        try:
            async with LocalThreadStore(orders.home, collect_git=False) as store:
                await _Stranger(store, orders, log).run()
        except RolloutError as error:
            log.tell("error", doing="store", type=type(error).__name__, text=str(error)[:300])
            await asyncio.sleep(0.2)


def main() -> None:
    mutants.plant_from_environment()
    orders = Orders.decode(sys.argv[1])
    tempfile.tempdir = orders.spill
    log = ProducerLog(Path(orders.log))
    try:
        asyncio.run(_main(orders, log))
    except Exception as error:  # noqa: BLE001 - that is what is looked for
        log.tell_bug(-1, error)
    finally:
        log.close()


if __name__ == "__main__":
    main()
