"""Named timers of one writer: at most one of a name, none while the writer is parked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rollout.service import Service

__all__ = ["Timers"]


class Timers:
    """Started and stopped on the service loop only."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._running: dict[str, asyncio.TimerHandle] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._running

    def start(self, name: str, seconds: float, then: Callable[[], None]) -> None:
        """Call `then` after so many seconds, unless a timer of that name runs already."""
        if name not in self._running:
            self._running[name] = self._service.loop.call_later(seconds, self._fired, name, then)

    def _fired(self, name: str, then: Callable[[], None]) -> None:
        self._running.pop(name, None)
        then()

    def stop(self, name: str) -> None:
        """It doesn't fire any more, if it ran."""
        timer = self._running.pop(name, None)
        if timer is not None:
            timer.cancel()

    def stop_all(self) -> None:
        """None fires any more."""
        for name in list(self._running):
            self.stop(name)
