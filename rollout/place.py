"""The place of one writer, as its task deals with it: handed over to, healed, let go of.

Invariant: while a healing is under way, sink and backlog are in its hands and nobody else's. Who
ends the writer meanwhile gets the lines as the healing found them. The sink is let go of when the
healing ends, never while its descriptors are in use. Once the place was abandoned nothing more is
written, whatever a healing brings back.

A healing runs in a thread of its own: rebuilding a file or searching it may take long.
"""

from __future__ import annotations

import logging
from functools import partial

import anyio

from protocol.errors import RecorderClosed
from rollout.backlog import Backlog, Chunk
from rollout.follower import Follower, NoFollower
from rollout.pending import Pending
from rollout.service import Service
from rollout.sink import Sink, SinkDisturbed

__all__ = ["Place"]

_log = logging.getLogger("rollout.writer")

_HEALINGS_MAX = 3
"""How often a place is healed that keeps changing under one handing over, before it counts as a failure."""


class Place:
    """On the service loop only."""

    def __init__(self, *, service: Service, sink: Sink, backlog: Backlog, pending: Pending) -> None:
        self.abandoned = False
        """From here on the place is left alone."""
        self.healings = 0
        """How many were begun."""
        self.follower: Follower = NoFollower()
        self._service = service
        self._sink = sink
        self._backlog = backlog
        self._pending = pending
        self._healed: anyio.Event | None = None
        """Set when the healing under way ends; None if there is none."""
        self._at_stake: list[Chunk] = []
        """The backlog as that healing found it."""
        self._closed = False

    async def hand_over(self) -> None:
        """Write everything that waits. A place that isn't as we left it is healed at once.

        Raises:
            OSError, RolloutError: the system refused, or it can't be healed now.
        """
        healings = 0
        while True:
            try:
                self._append_all()
            except SinkDisturbed as disturbance:
                _log.info("%s: %s", self._sink.path, disturbance)
                healings += 1
                if healings == _HEALINGS_MAX:
                    raise OSError(str(disturbance)) from disturbance
                await self.heal()
            else:
                return

    def _append_all(self) -> None:
        backlog, sink = self._backlog, self._sink
        if backlog.waiting and not sink.created:
            sink.create(backlog)
        if sink.created:
            sink.verify()
        while backlog.waiting:
            chunk = backlog.waiting[0]
            sink.append(chunk)
            backlog.pass_written()
            self.follower.look(chunk.data)

    async def heal(self) -> None:
        """Make the place whole, as far as there is anything of it.

        Raises:
            RecorderClosed: it was abandoned meanwhile.
            OSError, RolloutError: it can't be healed now.
        """
        if not self._backlog.waiting and not self._sink.created:
            return
        self.healings += 1
        self._healed, self._at_stake = anyio.Event(), [*self._backlog]
        self._backlog.note_ms = self._pending.note_ms()
        try:
            await self._service.run_blocking(partial(self._sink.heal, self._backlog))
        finally:
            self._healed.set()
            self._healed, self._at_stake = None, []
            if self._closed:
                self._sink.close()
        if self.abandoned:
            raise RecorderClosed(path=self._sink.path)

    @property
    def is_healing(self) -> bool:
        """Whether a healing is under way."""
        return self._healed is not None

    async def wait_until_healed(self, seconds_max: float) -> None:
        """Until the healing under way ends, if there is one, but no longer than that."""
        if self._healed is not None:
            with anyio.move_on_after(seconds_max):
                await self._healed.wait()

    def undurable_lines(self) -> list[bytes]:
        """All accepted lines that a crash of the machine would lose now, in order, even while it heals."""
        if self._healed is not None:  # it may hang, with the backlog in its hands
            return [chunk.lines() for chunk in (*self._at_stake, *self._pending.take())]
        self._backlog.add(self._pending.take())
        return self._backlog.undurable_lines()

    def close(self) -> None:
        """Let go of it for good: now, or when the healing under way ends."""
        self._closed = True
        if self._healed is None:
            self._sink.close()
