"""Times as a person gives them: `2h`, `3d`, `yesterday`, `2026-11-29`, or RFC 3339.

Invariant: what comes out is RFC 3339 in UTC. A day without a zone is local, as is the day that `today` means.
"""

from __future__ import annotations

import re
import time
from datetime import datetime, timedelta

import click

from protocol.timestamps import format_timestamp, parse_timestamp
from thread_store.cli.safe_text import safe_line

__all__ = ["parse_since", "read_since"]

_AGO = re.compile(r"(\d{1,6})\s*([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_DAYS = {"today": 0, "yesterday": 1}


def parse_since(text: str, *, now: float | None = None) -> str | None:
    """The moment that is meant; None if it is none. `now`: seconds since the epoch."""
    now = time.time() if now is None else now
    ago = _AGO.fullmatch(text.strip().lower())
    if ago is not None:
        return format_timestamp(max(0, int((now - int(ago[1]) * _SECONDS[ago[2]]) * 1000)))
    days = _DAYS.get(text.strip().lower())
    if days is not None:
        midnight = datetime.fromtimestamp(now).replace(hour=0, minute=0, second=0, microsecond=0)
        return _utc(midnight - timedelta(days=days))
    if not re.match(r"\d{4}-\d\d-\d\d", text):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is not None:
        moment = parse_timestamp(text) or moment
    return _utc(moment)


def _utc(moment: datetime) -> str | None:
    try:
        return format_timestamp(max(0, int(moment.timestamp() * 1000)))
    except (OverflowError, ValueError, OSError):
        return None


def read_since(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """The callback of an option that takes such a time: the moment in RFC 3339."""
    if value is None:
        return None
    found = parse_since(value)
    if found is None:
        shown = safe_line(value[:40])
        message = f"bad {parameter.opts[0]} {shown!r}; use 2h, 3d, yesterday or 2026-11-29"
        raise click.UsageError(message, ctx=context)
    return found
