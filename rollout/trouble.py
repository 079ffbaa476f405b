"""Trouble: what is wrong with a writer's place, and when to try again. No I/O.

Invariant: what was broken counts as mended only by the success of the same thing: a write
mends writing, a sync mends syncing. Delays double from `retry_seconds_min` to the maximum,
with jitter, and begin anew after each recovery.
"""

from __future__ import annotations

import random

from rollout.config import RecorderConfig

__all__ = ["Trouble"]

# While somebody waits for the end, the disk is tried more often.
_RETRY_SECONDS_CLOSING = 0.5


class Trouble:
    """The memory of failures of one writer."""

    def __init__(self, config: RecorderConfig) -> None:
        self.blocked = False
        """The last try to hand over failed: the place must be healed before the next."""
        self.sync_broken = False
        """The last sync failed. Flushes still hold."""
        self.last_error: BaseException | None = None
        """None again once everything works."""
        self._config = config
        self._seconds = config.retry_seconds_min

    def __bool__(self) -> bool:
        return self.blocked or self.sync_broken

    def write_failed(self, error: BaseException) -> None:
        self.blocked, self.last_error = True, error

    def sync_failed(self, error: BaseException) -> None:
        self.sync_broken, self.last_error = True, error

    def handed_over(self) -> None:
        self.blocked = False
        self._forget()

    def synced(self) -> None:
        self.sync_broken = False
        self._forget()

    def _forget(self) -> None:
        if not self:
            self.last_error = None
            self._seconds = self._config.retry_seconds_min

    def next_delay(self, *, closing: bool) -> float:
        """Seconds until the next try; the one after waits twice as long."""
        seconds = min(self._seconds, _RETRY_SECONDS_CLOSING) if closing else self._seconds
        self._seconds = min(self._seconds * 2, self._config.retry_seconds_max)
        return seconds * random.uniform(0.5, 1.0)
