"""Timestamps: UTC, RFC 3339 with milliseconds and `Z`, as Codex writes them.

Invariant: what `format_timestamp` writes, `parse_timestamp` reads back to the millisecond.
A stamp that a reader can't parse is kept as text and is never an error (FORMAT.md, Line).
"""

from __future__ import annotations

import time
from datetime import UTC, datetime

__all__ = ["format_timestamp", "milliseconds_of", "now_ms", "parse_timestamp"]


def now_ms() -> int:
    """Milliseconds since the epoch, by the wall clock."""
    return time.time_ns() // 1_000_000


def format_timestamp(at_ms: int) -> str:
    """Write milliseconds since the epoch as `2026-11-29T10:11:12.345Z`."""
    seconds, milliseconds = divmod(at_ms, 1000)
    stamp = time.gmtime(seconds)
    return (
        f"{stamp.tm_year:04d}-{stamp.tm_mon:02d}-{stamp.tm_mday:02d}"
        f"T{stamp.tm_hour:02d}:{stamp.tm_min:02d}:{stamp.tm_sec:02d}.{milliseconds:03d}Z"
    )


def parse_timestamp(text: str | None) -> datetime | None:
    """Read an RFC 3339 stamp as an aware UTC time; None if it isn't one. Without a zone it is UTC."""
    if not text:
        return None
    try:
        stamp = datetime.fromisoformat(text)
        return stamp.replace(tzinfo=UTC) if stamp.tzinfo is None else stamp.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def milliseconds_of(text: str | None) -> int | None:
    """The stamp as milliseconds since the epoch; None if it isn't one."""
    moment = parse_timestamp(text)
    return None if moment is None else round(moment.timestamp() * 1000)
