"""Settings of a recorder. Every bound has its unit in its name."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from protocol.bounding import StorageBounds
    from protocol.redact import ItemRedactor

__all__ = ["Durability", "RecorderConfig"]

MIB = 1 << 20


class Durability(enum.StrEnum):
    """How far the writer carries a record without being asked.

    `PENDING`: written as the writer gets to it, synced at least each second. `FLUSH`: the writer
    is woken at once. `SYNC`: woken at once, and synced.
    """

    PENDING = "pending"
    FLUSH = "flush"
    SYNC = "sync"


@dataclass(frozen=True, kw_only=True, slots=True)
class RecorderConfig:
    """Limits and timings; the defaults suit an agent on a laptop or a server."""

    pending_bytes_max: int = 64 * MIB
    """Not yet durable: beyond it `record` waits and `record_nowait` raises `PendingQueueFull`."""
    record_bytes_max: int = 32 * MIB
    """One line, its newline included."""
    chunk_bytes: int = MIB
    """Pending items are sealed into chunks of about this size; one write each."""
    sync_bytes: int = 8 * MIB
    """A sync is forced when this much was handed to the OS since the last one."""
    sync_seconds: float = 1.0
    """And after this long while there is something to sync."""
    linger_seconds: float = 0.002
    """How long a `pending` record waits for company before the writer is woken."""
    close_seconds: float = 10.0
    """`aclose()` drains for this long at most."""
    retry_seconds_min: float = 0.05
    retry_seconds_max: float = 5.0
    """The writer's own retries back off from the first to the second, with jitter."""
    durability: Mapping[str, Durability] = field(default_factory=dict)
    """By record type. Calls and approvals (`x_call`, `x_approval`) are always synced."""
    redact: Callable[[str], str] | None = None
    """Applied to every text of an item before anything is stored; never to ids, hashes, signed blocks.
    `SecretRules()` knows what secrets look like. It runs inside of `record`, so it must be quick."""
    redact_items: ItemRedactor | None = None
    """Applied to every item before `redact`. It returns one of the same type, with the same ids, hashes and
    signed blocks, and doesn't change the one it is given."""
    bounds: StorageBounds | None = None
    """Long texts and media are kept apart as blobs; None: all of a record stands in its line, as in Codex,
    which can't follow a blob. A store in memory keeps everything in the line."""
