"""Records that say how something ended: accepted at once where there is room, else as soon as there is.

Invariant: they are accepted without giving way to another task first, so that whoever is cancelled a
second time meanwhile has said them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.errors import PendingQueueFull

if TYPE_CHECKING:
    from rollout.pending import Records
    from rollout.recorder import RolloutRecorder

__all__ = ["INTERRUPTED_SECONDS_MAX", "record_last_words"]

INTERRUPTED_SECONDS_MAX = 5.0
"""A cancelled caller is not held up longer by a disk that hangs."""


async def record_last_words(
    recorder: RolloutRecorder, items: Records, *, timeout: float | None = None
) -> None:
    """Record them. `timeout`: how long to wait for room, in seconds.

    Raises: as `RolloutRecorder.record`.
    """
    try:
        recorder.record_nowait(items)
    except PendingQueueFull:
        await recorder.record(items, timeout=timeout)
