"""The process that gets killed: records numbered items from three producers and says what is safe.

Each line on stdout is written right after what it tells of: `ready`; `flush P N` and `sync P N`: items
of producer P up to N are acknowledged; `big P N`: the next item of P is a large one. With DIE_AFTER it
kills itself right after that many acknowledgements, sooner than anybody else could.

    python -m tests.faults.kill_worker PATH MODE SEED DIE_AFTER FIRST FIRST FIRST
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from protocol.meta import SessionMeta
from rollout.recorder import RolloutRecorder
from tests.faults import mutants
from tests.faults.numbered import PRODUCER, numbered_item

__all__: list[str] = []

_SIZES = (20, 150, 150, 900, 4000, 30_000)
_BIG_BYTES = (300_000, 3_000_000)


_die_after = 0
_deaths = itertools.count(1)


def tell(*words: object) -> None:
    os.write(1, " ".join(map(str, words)).encode() + b"\n")


def tell_safe(kind: str, producer: int, upto: int) -> None:
    tell(kind, producer, upto)
    if next(_deaths) == _die_after:
        os.kill(os.getpid(), signal.SIGKILL)


class _Producer:
    def __init__(self, number: int, first: int, recorder: RolloutRecorder, rng: random.Random) -> None:
        self.number = number
        self.next = first
        self.recorder = recorder
        self.rng = rng

    def make(self, *, big: bool) -> Any:
        size = self.rng.choice(_BIG_BYTES if big and self.rng.random() < 0.2 else _SIZES)
        if size in _BIG_BYTES:
            tell("big", self.number, self.next)
        item = numbered_item(self.number * PRODUCER + self.next, size)
        self.next += 1
        return item

    async def acknowledged(self, kind: str, wait: Callable[[], Awaitable[object]]) -> None:
        upto = self.next
        await wait()
        tell_safe(kind, self.number, upto)

    async def run(self, *, big: bool) -> None:
        while True:
            await self.recorder.record([self.make(big=big) for _ in range(self.rng.choice((1, 1, 1, 5)))])
            choice = self.rng.random()
            if choice < 0.3:
                await self.acknowledged("flush", self.recorder.flush)
            elif choice < 0.45:
                await self.acknowledged("sync", self.recorder.sync)
            else:
                await asyncio.sleep(0)

    def run_in_thread(self, loop: asyncio.AbstractEventLoop) -> None:
        """A producer that is no task: it records from its own thread."""
        while True:
            for _ in range(self.rng.randint(1, 20)):
                self.recorder.record_nowait(self.make(big=False))
            barrier = asyncio.run_coroutine_threadsafe(self.acknowledged("flush", self.recorder.flush), loop)
            barrier.result()


async def _main(path: str, mode: str, seed: int, firsts: list[int]) -> None:
    tell("ready")
    opening = (
        RolloutRecorder.create(path, SessionMeta(cwd="/")) if mode != "open" else RolloutRecorder.open(path)
    )
    recorder = await opening
    producers = [
        _Producer(number, first, recorder, random.Random(f"{seed} {number}"))
        for number, first in enumerate(firsts)
    ]
    if mode == "first":  # only the first prompt, and then nothing
        recorder.record_nowait(producers[0].make(big=False))
        await producers[0].acknowledged("flush", recorder.flush)
        await asyncio.sleep(3600)
    loop = asyncio.get_running_loop()
    threading.Thread(target=producers[2].run_in_thread, args=(loop,), daemon=True).start()
    await asyncio.gather(producers[0].run(big=True), producers[1].run(big=False))


if __name__ == "__main__":
    mutants.plant_from_environment()
    _die_after = int(sys.argv[4])
    asyncio.run(_main(sys.argv[1], sys.argv[2], int(sys.argv[3]), [int(word) for word in sys.argv[5:]]))
