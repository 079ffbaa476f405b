"""Lingering: the alarms of one service that need not ring at once, rung together.

Invariant: an alarm that was added rings within its linger time, or, if so many others are due that
serving them takes long, within a few times what that took, and never later than `_PAUSE_SECONDS_MAX`
beyond it. There is one timer for all alarms of one linger time, however many writers have something
pending; so a thousand threads that speak in turn cost little more than one that speaks as much.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rollout.service import Service

__all__ = ["Lingering"]

_PAUSE_FACTOR = 3
"""Writers that nobody waits for get a quarter of the loop's time: the longer they wait, the more they
find, and the fewer writes, checks and wake-ups an item costs."""
_PAUSE_SECONDS_MAX = 0.25
_BATCH = 32
"""So many are rung at a time; between two batches the loop sees who is in a hurry."""


class Lingering:
    """The alarms of one linger time. `add` may be called from any thread; the rest is the service loop's."""

    def __init__(self, service: Service, seconds: float) -> None:
        self._service = service
        self._seconds = seconds
        self._waiting: deque[Callable[[], None]] = deque()
        self._armed = False
        self._pause = 0.0

    def add(self, ring: Callable[[], None]) -> None:
        """Have an alarm rung when the linger time is over; sooner, if others were added before."""
        self._waiting.append(ring)
        if not self._armed:
            self._armed = True
            try:
                self._service.call(self._arm)
            except BaseException:  # Ctrl-C: the next one must not rely on this call
                self._armed = False
                raise

    def _arm(self) -> None:
        self._service.loop.call_later(max(self._seconds, self._pause), self._begin)

    def _begin(self) -> None:
        self._ring(len(self._waiting), self._service.loop.time())

    def _ring(self, due: int, began: float) -> None:
        """Ring the next batch of those that were due at the beginning; then go on, or rest."""
        loop = self._service.loop
        batch = min(_BATCH, due, len(self._waiting))
        for _ in range(batch):
            self._waiting.popleft()()
        # The tasks that were woken work before this goes on: it is scheduled after them.
        if due > batch > 0:
            loop.call_soon(self._ring, due - batch, began)
        else:
            loop.call_soon(self._rest, began)

    def _rest(self, began: float) -> None:
        took = self._service.loop.time() - began
        self._pause = min(took * _PAUSE_FACTOR, _PAUSE_SECONDS_MAX)
        self._armed = False
        if self._waiting:  # looked at last: who is added from here on arms it
            self._armed = True
            self._arm()
