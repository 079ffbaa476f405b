"""Moments as a person gives them: `2h`, `3d`, `yesterday`, `2026-11-29`, RFC 3339.

Invariant: days are those of this machine's time zone, or of UTC where that is asked for.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta

import click

__all__ = ["EVER", "parse_moment"]

EVER = "ever"
"""No limit at all."""

_AGO = re.compile(r"(\d{1,6})([smhdw])\Z")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def parse_moment(option: str, text: str, *, utc: bool, now: datetime | None = None) -> datetime | None:
    """The moment that is meant, aware; None for `EVER`. A day means its beginning.

    Raises:
        click.UsageError: it is none.
    """
    now = datetime.now(UTC) if now is None else now
    if text == EVER:
        return None
    if found := _AGO.match(text):
        try:
            return now - timedelta(seconds=int(found[1]) * _UNITS[found[2]])
        except OverflowError:
            return datetime.min.replace(tzinfo=UTC)
    today = (now.astimezone(UTC) if utc else now.astimezone()).date()
    days = {"today": today, "yesterday": today - timedelta(days=1)}
    try:
        if text in days or re.fullmatch(r"\d{4}-\d\d-\d\d", text):
            return _beginning(days.get(text) or date.fromisoformat(text), utc=utc)
        moment = datetime.fromisoformat(text)
        return _zoned(moment, utc=utc) if moment.tzinfo is None else moment
    except (ValueError, OverflowError, OSError):
        raise click.UsageError(f"bad {option} {text!r}; use 2h, 3d, yesterday or 2026-11-29") from None


def _beginning(day: date, *, utc: bool) -> datetime:
    return _zoned(datetime(day.year, day.month, day.day), utc=utc)


def _zoned(moment: datetime, *, utc: bool) -> datetime:
    return moment.replace(tzinfo=UTC) if utc else moment.astimezone()
