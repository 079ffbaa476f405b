"""Amounts as a person types and reads them: how long ago (`30d`, `2h`), how many bytes (`500M`, `2G`)."""

from __future__ import annotations

import re

import click

__all__ = ["counted", "format_bytes", "parse_age", "parse_size"]

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400, "y": 365 * 86_400}
_AGE = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdwy])", re.ASCII)
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", re.ASCII | re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def parse_age(text: str) -> float:
    """Seconds. The type of an option."""
    found = _AGE.fullmatch(text.strip())
    if found is None:
        raise click.BadParameter(f"{text!r} is no age; use 12h, 30d, 6w or 1y")
    return float(found[1]) * _SECONDS[found[2]]


def parse_size(text: str) -> int:
    """Bytes; K is 1,024 of them. The type of an option."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise click.BadParameter(f"{text!r} is no size; use 500M or 2G")
    return int(float(found[1]) * 1024 ** _POWERS[found[2].lower()])


def format_bytes(count: int) -> str:
    """`812 B`, `1.2 MiB`."""
    amount, unit = float(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if amount < 1024 or unit == "TiB":
            break
        amount /= 1024
    return f"{count:,} B" if unit == "B" else f"{amount:.1f} {unit}"


def counted(count: int, noun: str) -> str:
    """`1 thread`, `3 threads`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
