"""Times and durations as a person reads them: local unless UTC was asked for, short."""

from __future__ import annotations

import time

from protocol.timestamps import parse_timestamp

__all__ = ["CLOCK", "DAY", "DAY_AND_CLOCK", "age_seconds", "format_age", "format_time"]

CLOCK, DAY, DAY_AND_CLOCK = "%H:%M:%S", "%a %Y-%m-%d", "%a %Y-%m-%d %H:%M:%S"

_UNITS = ((86_400, "d"), (3600, "h"), (60, "m"))


def format_time(stamp: object, form: str = CLOCK, *, utc: bool) -> str:
    """A recorded timestamp in the form of `strftime`; empty if it is none."""
    moment = parse_timestamp(stamp) if isinstance(stamp, str) else None
    if moment is None:
        return ""
    seconds = moment.timestamp()
    return time.strftime(form, time.gmtime(seconds) if utc else time.localtime(seconds))


def age_seconds(stamp: str | None) -> float | None:
    """How long ago that was, by this machine's clock; None if it is no timestamp."""
    moment = None if stamp is None else parse_timestamp(stamp)
    return None if moment is None else max(0.0, time.time() - moment.timestamp())


def format_age(seconds: float) -> str:
    """`6 s`, `22 m`, `3 h`, `2 d`."""
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
