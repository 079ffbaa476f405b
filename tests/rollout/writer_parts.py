"""What a writer is made of, around a sink in memory: each part is driven by hand, without a task."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from typing import Any

from rollout.backlog import Backlog, Chunk
from rollout.barrier import Barrier, BarrierQueue, Goal
from rollout.config import RecorderConfig
from rollout.pending import Pending
from rollout.progress import Progress
from rollout.service import Service
from rollout.syncing import Syncing
from rollout.trouble import Trouble
from tests.rollout.recorded import message

__all__ = ["PATH", "FakeSink", "Parts", "ServiceHere", "barrier"]

PATH = "/a.jsonl"


class FakeSink:
    """Holds what it was given, and fails as it is told: `faults` by method, one a call."""

    path = PATH

    def __init__(self) -> None:
        self.created = False
        self.closed = 0
        self.epoch = 0
        self.data = bytearray()
        self.told_of_failed_sync = 0
        self.faults: dict[str, list[BaseException]] = {}
        self.while_healing: Callable[[], None] = lambda: None

    def _meet(self, method: str) -> None:
        if self.faults.get(method):
            raise self.faults[method].pop(0)

    @property
    def end_bytes(self) -> int:
        return len(self.data)

    def create(self, backlog: Backlog) -> None:
        self._meet("create")
        self.created = True

    def append(self, chunk: Chunk) -> None:
        self._meet("append")
        chunk.offset, chunk.handed = len(self.data), len(chunk.data)
        self.data += chunk.data

    def verify(self) -> None:
        self._meet("verify")

    def sync_job(self, backlog: Backlog) -> Callable[[], None]:
        self._meet("sync_job")
        return lambda: self._meet("sync")

    def sync_failed(self) -> None:
        self.told_of_failed_sync += 1

    def heal(self, backlog: Backlog) -> None:
        self.while_healing()
        self._meet("heal")
        self.epoch += 1

    def close(self) -> None:
        self.closed += 1

    def close_in_child(self) -> None:
        self.closed += 1


def barrier(goal: Goal) -> Barrier:
    """One whose caller blocks a thread: it needs no loop."""
    return Barrier(goal, loop=None)


class Parts:
    """The deciding parts of one writer. `put` accepts items, `write` hands over all that waits."""

    def __init__(self, **config: Any) -> None:
        self.config = RecorderConfig(**config)
        self.sink = FakeSink()
        self.pending = Pending(
            path=PATH, config=self.config, header=b"", opening=lambda at_ms: b"", next_ordinal=0
        )
        self.backlog = Backlog(chunk_bytes=self.config.chunk_bytes)
        self.barriers = BarrierQueue()
        self.trouble = Trouble(self.config)
        self.progress = Progress(
            pending=self.pending, backlog=self.backlog, sink=self.sink, config=self.config
        )
        self.woken = 0
        self.syncing = Syncing(
            sink=self.sink,
            backlog=self.backlog,
            progress=self.progress,
            barriers=self.barriers,
            trouble=self.trouble,
            config=self.config,
            wake=self._wake,
        )

    def _wake(self) -> None:
        self.woken += 1

    def put(self, *texts: str) -> None:
        self.pending.append([message(text) for text in texts])

    def write(self) -> None:
        self.backlog.add(self.pending.take())
        self.sink.created = True
        while self.backlog.waiting:
            self.sink.append(self.backlog.waiting[0])
            self.backlog.pass_written()

    def sync(self) -> None:
        """From start to end, as if nothing happened meanwhile."""
        self.syncing.start()()
        assert self.syncing.finish()

    def heal(self) -> None:
        """Something was wrong; what stands now is of another epoch."""
        self.sink.heal(self.backlog)

    def ask(self, goal: Goal) -> Barrier:
        """A call that waits, as the writer has received it."""
        asking = barrier(goal)
        self.progress.aim(asking)
        self.barriers.leave(asking)
        self.barriers.receive(chances=2)
        return asking


class ServiceHere(Service):
    """A service that lives on the loop of the test, for parts that wait."""

    def __init__(self) -> None:
        super().__init__("here")
        self.loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()
