"""The alarm of one task on the service loop: anybody rings it, the task sleeps until it rings.

Invariant: no ring is lost. Whatever was left before a ring is there for the task when it wakes,
and a ring while the task works ends its next sleep at once. One call into the loop at a time is
under way, however many callers there are.
"""

from __future__ import annotations

import anyio

from rollout.service import Service

__all__ = ["Alarm"]


class Alarm:
    """`wake` may be called from any thread, also from a finalizer; the rest on the service loop only."""

    def __init__(self, service: Service, *, linger_seconds: float) -> None:
        self._service = service
        self._linger_with = service.lingering(linger_seconds)
        self._event = anyio.Event()
        self._rung = False
        self._posted = False
        """A call into the loop is under way: what it will find was left before."""
        self._lingering = False
        """It will ring when its linger time is over, unless the task wakes before."""

    def wake(self, now: bool) -> None:
        """Something was left: come at once, or when `linger_seconds` are over (see `Lingering`)."""
        if now:
            self._post()
        elif not self._lingering:
            self._linger()

    def _post(self) -> None:
        if self._posted:
            return
        self._posted = True
        try:
            self._service.call(self._called)
        except BaseException:  # Ctrl-C: the next one must not rely on this call
            self._posted = False
            raise

    def _called(self) -> None:
        self._posted = False
        self.ring()

    def _linger(self) -> None:
        self._lingering = True
        try:
            self._linger_with.add(self._lingered)
        except BaseException:  # as above
            self._lingering = False
            raise

    def _lingered(self) -> None:
        if self._lingering:
            self.ring()

    def ring(self) -> None:
        """End the sleep of the task: this one, or the next if it is awake."""
        self._rung = True
        self._event.set()

    async def sleep(self) -> None:
        """Until the next ring; not at all if it rang since the last sleep. For the task alone."""
        if not self._rung:
            await self._event.wait()
        self._rung = self._lingering = False
        self._event = anyio.Event()
