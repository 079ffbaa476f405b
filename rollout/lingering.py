"""Lingering: the alarms of one service that need not ring at once, rung together.

Invariant: an alarm that was added rings within its linger time, or, if so many others are due that
serving them takes long, within a few times what that took, and never later than `_PAUSE_SECONDS_MAX`
beyond it. There is one timer, however many writers have something pending; so a thousand threads
that speak in turn cost little more than one that speaks as much.
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
    """`add` may be called from any thread; the rest runs on the service loop."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._waiting: deque[Callable[[], None]] = deque()
        self._armed = False
        self._pause = 0.0

    def add(self, ring: Callable[[], None], seconds: float) -> None:
        """Have an alarm rung within about `seconds`; the first one that is added sets the time."""
        self._waiting.append(ring)
        if not self._armed:
            self._armed = True
            try:
                self._service.call(self._arm, seconds)
            except BaseException:  # Ctrl-C: the next one must not rely on this call
                self._armed = False
                raise

    def _arm(self, seconds: float) -> None:
        self._service.loop.call_later(max(seconds, self._pause), self._begin, seconds)

    def _begin(self, seconds: float) -> None:
        self._ring(seconds, len(self._waiting), self._service.loop.time())

    def _ring(self, seconds: float, due: int, began: float) -> None:
        """Ring the next batch of those that were due at the beginning; then go on, or rest."""
        loop = self._service.loop
        batch = min(_BATCH, due, len(self._waiting))
        for _ in range(batch):
            self._waiting.popleft()()
        # The tasks that were woken work before this goes on: it is scheduled after them.
        if due > batch > 0:
            loop.call_soon(self._ring, seconds, due - batch, began)
        else:
            loop.call_soon(self._rest, seconds, began)

    def _rest(self, seconds: float, began: float) -> None:
        took = self._service.loop.time() - began
        self._pause = min(took * _PAUSE_FACTOR, _PAUSE_SECONDS_MAX)
        self._armed = False
        if self._waiting:  # looked at last: who is added from here on arms it
            self._armed = True
            self._arm(seconds)
