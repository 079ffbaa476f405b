"""The table of reliability: what the fault harnesses showed, in `docs/reliability.md`.

Invariant: what stands between the markers follows from `docs/reliability.json` alone, which holds for each
run what the harness itself said, when, where and by which command. A run replaces its own row and no other;
what is outside the markers is written by hand.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["BEGIN", "END", "Told", "machine_name", "read_results", "render", "write_results"]

BEGIN, END = "<!-- generated: python -m benches faults -->", "<!-- end of what is generated -->"

Told = dict[str, Any]
"""What one harness said with `--json`, and `date`, `machine`, `command`."""


def machine_name() -> str:
    """Where a run was made."""
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    return (
        f"{os.cpu_count()} × {platform.machine()}, {memory_gb:.0f} GB, {platform.system()} "
        f"{platform.release()}, Python {platform.python_version()}"
    )


def read_results(path: Path) -> dict[str, Told]:
    """By the name of the run; empty where there is no file yet."""
    if not path.exists():
        return {}
    results: dict[str, Told] = json.loads(path.read_text(encoding="utf-8"))
    return results


def write_results(results: dict[str, Told], document: Path) -> None:
    """Keep them beside the document, and put the tables into it.

    Raises:
        ValueError: the document has lost its markers.
    """
    text = document.read_text(encoding="utf-8")
    before, found, rest = text.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not found or not ended:
        raise ValueError(f"{document} has no {BEGIN} and {END}")
    document.with_suffix(".json").write_text(
        json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    document.write_text(f"{before}{BEGIN}\n\n{render(results)}\n{END}{after}", encoding="utf-8")


def render(results: dict[str, Told]) -> str:
    """The tables as Markdown."""
    return "\n".join(_lines(results))


def _lines(results: dict[str, Told]) -> Iterator[str]:
    yield from _table(
        ["command", "runs", "failures", "seconds", "date", "machine"],
        [_row(told) for told in results.values()],
    )
    for name, told in results.items():
        if told["figures"]:
            figures = "; ".join(f"{what}: {_number(value)}" for what, value in told["figures"].items())
            yield f"\n**{name}** — {figures}"
        if told["table"]:
            head, *rows = told["table"]
            yield f"\nRuns of **{name}** that reached their fault, by call and by what befell it:\n"
            yield from _table(head, rows)
    yield ""


def _row(told: Told) -> list[str]:
    runs = f"{told['runs']:,} {told['unit']}"
    return [
        f"`{told['command']}`",
        runs,
        str(len(told["failures"])),
        f"{told['seconds']:,}",
        told["date"],
        told["machine"],
    ]


def _number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _table(head: list[str], rows: list[list[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{' --- |' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"
