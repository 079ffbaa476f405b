"""The process that gets killed while it uses a store: several threads are written, and others are forked,
archived, compressed, erased in, listed, deleted, pruned meanwhile.

Each line on stdout is a note of `StoreSession`, right after (what is begun: before) what it tells of. With
DIE_AFTER it kills itself right after that many notes, sooner than anybody else could.

    python -m tests.faults.store_kill_worker HOME SEED DIE_AFTER FIRST_KEY [KEY:ID:NEXT …]
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from protocol.errors import RolloutError
from tests.faults import mutants
from tests.faults.store_session import Pen, StoreSession
from thread_store.home import Home
from thread_store.upkeep.prune import carry_out, look_at_home
from thread_store.upkeep.prune_plan import PruneLimits
from thread_store.upkeep.threads import Place

__all__: list[str] = []

_PRODUCERS = 3
_THREADS_MAX = 9
_KEPT = 6
"""By a prune."""
_SIZES = (20, 90, 150, 700, 4000, 30_000)


class _Teller:
    """Writes notes, and dies after some."""

    def __init__(self, die_after: int) -> None:
        self._left = die_after

    def __call__(self, text: str) -> None:
        os.write(1, text.encode() + b"\n")
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


class _Life:
    """What the process does until it is killed."""

    def __init__(self, session: StoreSession, idle: list[Pen], seed: int) -> None:
        self.session = session
        self.idle = idle
        """The threads that nobody of us uses at the moment."""
        self.busy: list[Pen] = []
        """Those that a producer has."""
        self.rng = random.Random(seed)
        self.archived: set[int] = set()
        self.pruning: list[Pen] | None = None
        """While one prunes: the threads that it may delete."""
        self._secrets = 0

    def take(self, *, archived: bool | None = False) -> Pen | None:
        fitting = [pen for pen in self.idle if archived is None or (pen.key in self.archived) == archived]
        if not fitting:
            return None
        pen = self.rng.choice(fitting)
        self.idle.remove(pen)
        return pen

    async def produce(self) -> None:
        """Open a thread, or make one; record; close it; again."""
        while True:
            pen = self.take() if self.rng.random() < 0.7 else None
            if pen is None and len(self.idle) >= _THREADS_MAX:
                await asyncio.sleep(0.01)
                continue
            if pen is not None:
                self.busy.append(pen)
                await self.session.open(pen)
            else:
                pen = await self.session.create()
                self.busy.append(pen)
                if self.pruning is not None and pen.thread_id:
                    self.pruning.append(pen)
                    self.session.mark("begin", operation="delete", key=pen.key)
            for _ in range(self.rng.randint(1, 6)):
                await self._record(pen)
            await self.session.close(pen)
            self.busy.remove(pen)
            self.idle.append(pen)

    async def _record(self, pen: Pen) -> None:
        sizes = [self.rng.choice(_SIZES) for _ in range(self.rng.randint(1, 12))]
        kind = self.rng.random()
        if kind < 0.3:
            await self.session.turn(pen, sizes)
            return
        self.session.record(pen, *sizes)
        if kind < 0.6:
            await self.session.flush(pen)
        elif kind < 0.9:
            await self.session.sync(pen)
        else:
            await self.session.compact(pen)

    async def keep_house(self) -> None:
        """One upkeep after the other, on threads that nobody writes."""
        works: tuple[Callable[[], Awaitable[object]], ...] = (
            *(self.fork, self.fork, self.archive, self.unarchive, self.compress, self.compress),
            *(self.erase, self.rebuild_index, self.delete, self.prune, self.session.list),
        )
        while True:
            await self.rng.choice(works)()
            await asyncio.sleep(0)

    async def fork(self) -> None:
        source = self.take(archived=None)
        if source is None or len(self.idle) >= _THREADS_MAX:
            self.idle += [source] if source is not None else []
            return
        child = await self.session.fork(source, self.rng.choice(("copy", "reference")))
        self.idle.append(source)
        self.session.record(child, 60)
        await self.session.close(child)
        if child.thread_id:
            self.idle.append(child)

    async def _do(self, operation: str, *, archived: bool | None = False, **options: object) -> Pen | None:
        pen = self.take(archived=archived)
        if pen is None:
            return None
        done = await self.session.do(operation, pen, **options)
        if operation != "delete" or not done:
            self.idle.append(pen)
        return pen if done else None

    async def archive(self) -> None:
        pen = await self._do("archive")
        if pen is not None:
            self.archived.add(pen.key)

    async def unarchive(self) -> None:
        pen = await self._do("unarchive", archived=True)
        if pen is not None:
            self.archived.discard(pen.key)

    async def compress(self) -> None:
        await self._do("compress", archived=None, older_than_seconds=0)

    async def delete(self) -> None:
        if len(self.idle) > 3:
            await self._do("delete", archived=None, cascade=self.rng.random() < 0.5)

    async def erase(self) -> None:
        pen = self.take()
        if pen is None:
            return
        self._secrets += 1
        secret = f"secret-{os.getpid()}-{self._secrets}-of-nobody"
        await self.session.open(pen)
        self.session.whisper(pen, secret)
        await self.session.close(pen)
        await self.session.erase([pen] if self.rng.random() < 0.5 else None, secret)
        self.idle.append(pen)

    async def rebuild_index(self) -> None:
        (self.session.home / "thread-store" / "derived" / "list.sqlite").unlink(missing_ok=True)
        await self.session.list()

    async def prune(self) -> None:
        """All but some threads go, and what is nobody's. Those that are written then stay; but a producer may
        close one of its own just before.
        """
        idle, self.idle = self.idle, []
        self.session.mark("begin", operation="prune", key=None)
        may_go = self.pruning = [*idle, *(pen for pen in self.busy if pen.thread_id)]
        for pen in tuple(may_go):
            self.session.mark("begin", operation="delete", key=pen.key)
        gone = await asyncio.to_thread(_prune, self.session)
        self.pruning = None
        for pen in may_go if gone is not None else ():
            if pen.thread_id in gone:
                self.session.mark("done", operation="delete", key=pen.key)
            else:
                self.session.mark("spared", key=pen.key)
        self.idle += [pen for pen in idle if gone is not None and pen.thread_id not in gone]
        self.session.mark("done", operation="prune", key=None)


def _prune(session: StoreSession) -> tuple[str, ...] | None:
    """The threads that are gone; None: nobody knows."""
    place = Place.of(Home(session.home))
    try:
        return carry_out(place, look_at_home(place, PruneLimits(keep=_KEPT))).threads
    except RolloutError as error:
        session.mark("error", operation="prune", type=type(error).__name__, text=str(error))
        return None


async def _main(home: Path, seed: int, die_after: int, first_key: int, pens: list[Pen]) -> None:
    session = StoreSession(home, mark=_Teller(die_after), patient=True, first_key=first_key)
    await session.enter()
    session.mark("ready")
    life = _Life(session, pens, seed)
    await asyncio.gather(*(life.produce() for _ in range(_PRODUCERS)), life.keep_house())


def _parse(word: str) -> Pen:
    key, thread_id, written = word.split(":")
    return Pen(int(key), thread_id, written=int(written))


if __name__ == "__main__":
    mutants.plant_from_environment()
    asyncio.run(
        _main(Path(sys.argv[1]), *(int(each) for each in sys.argv[2:5]), pens=list(map(_parse, sys.argv[5:])))
    )
