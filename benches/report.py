"""Rows of figures, as tables for people or as one JSON object a line.

Every number's unit stands in its key; consecutive rows with the same keys make one table.
"""

from __future__ import annotations

import itertools
import json
import os
import platform
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benches.measure import Samples

__all__ = ["Row", "bound_row", "machine_row", "note_row", "print_rows", "speed_rows"]

Row = dict[str, Any]


def speed_rows(samples: Samples, names: Iterable[str]) -> list[Row]:
    """One row a case: how many items a second, and what one costs."""
    seconds = {name: samples.seconds(name) for name in names}
    return [
        {"case": name, "items_per_second": round(1 / each), "microseconds_per_item": round(each * 1e6, 3)}
        for name, each in seconds.items()
    ]


def bound_row(
    name: str,
    value: float,
    unit: str = "ratio",
    *,
    at_least: float | None = None,
    at_most: float | None = None,
) -> Row:
    """A figure with its target, and whether it was met; a target is never asserted here."""
    met = (at_least is None or value >= at_least) and (at_most is None or value <= at_most)
    return {"figure": name, unit: round(value, 3), "target": _target(at_least, at_most), "met": met}


def _target(at_least: float | None, at_most: float | None) -> str:
    return f">= {at_least:g}" if at_least is not None else f"<= {at_most:g}"


def note_row(text: str) -> Row:
    """Something the reader of the figures must know."""
    return {"note": text}


def machine_row(folder: Path) -> Row:
    """Where the figures were taken."""
    return {
        "machine": platform.machine(),
        "cpu": _cpu_name(),
        "cpus": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "file_system": _file_system(folder),
    }


def _cpu_name() -> str:
    lines = _lines_of(Path("/proc/cpuinfo"))
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


def _file_system(folder: Path) -> str:
    mounts = [line.split() for line in _lines_of(Path("/proc/self/mounts"))]
    under = [(len(words[1]), words[2]) for words in mounts if folder.resolve().is_relative_to(words[1])]
    return max(under)[1] if under else "unknown"


def _lines_of(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def print_rows(rows: Iterable[Row], *, as_json: bool) -> None:
    """Print rows as they come."""
    if as_json:
        for row in rows:
            print(json.dumps(row, ensure_ascii=False), flush=True)
        return
    for keys, group in itertools.groupby(rows, key=tuple):
        _print_table(keys, list(group))


def _print_table(keys: Sequence[str], rows: Sequence[Row]) -> None:
    cells = [[key.replace("_", " ") for key in keys], *([_format(row[key]) for key in keys] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(keys))]
    for row in cells:
        first = row[0].ljust(widths[0])
        print(
            "  ".join([first, *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))])
        )
    print(flush=True)


def _format(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "NO"
    return f"{value:,}" if isinstance(value, int | float) else str(value)
