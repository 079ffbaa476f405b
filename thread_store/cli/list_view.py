"""How a list of threads looks: a table for people, an object for programs.

Invariant: what stands in a thread is shown harmless, and on a terminal no row is longer than a line: the
title gives way first.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from typing import Any

from thread_store.cli.safe_text import safe_line
from thread_store.cli.terminal import Terminal
from thread_store.cli.times import age_seconds
from thread_store.listing.thread_entry import ThreadEntry

__all__ = ["entry_object", "format_bytes", "table_lines"]

_HEADINGS = ("", "ID", "AGE", "ITEMS", "SIZE", "WHERE", "STATE", "TITLE")
_RIGHT = frozenset({2, 3, 4})
_TITLE_MIN = 12
_WHERE_MAX = 24
_MARKS = {"live": ("●", "*"), "crashed": ("✗", "x"), "damaged": ("✗", "x"), "archived": ("↥", "^")}
_FORK = ("⑂", "Y")
_STYLES = {"live": "green", "crashed": "red", "damaged": "red", "archived": "dim"}
_UNITS = ("B", "K", "M", "G", "T")
_AGES = ((604_800 * 5, 604_800, "w"), (86_400 * 2, 86_400, "d"), (3_600, 3_600, "h"), (60, 60, "m"))


def table_lines(terminal: Terminal, entries: Sequence[ThreadEntry], short: Callable[[str], str]) -> list[str]:
    """The lines of the table, its headings first."""
    rows = [_HEADINGS, *(_cells(terminal, each, short) for each in entries)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    if terminal.is_tty:
        room = shutil.get_terminal_size().columns - sum(widths[:-1]) - 2 * (len(widths) - 1)
        widths[-1] = max(_TITLE_MIN, room)
    lines = [_line(terminal, row, widths) for row in rows]
    states = [None, *(each.state for each in entries)]
    return [
        terminal.style(line, _STYLES.get(state or "", "bold")) if state in (None, *_STYLES) else line
        for line, state in zip(lines, states, strict=True)
    ]


def _line(terminal: Terminal, row: Sequence[str], widths: Sequence[int]) -> str:
    cells = []
    for column, (cell, width) in enumerate(zip(row, widths, strict=True)):
        more = terminal.mark("more")
        if column == len(widths) - 1 and len(cell) > width:
            cell = cell[: width - len(more)] + more
        cells.append(cell.rjust(width) if column in _RIGHT else cell.ljust(width))
    return "  ".join(cells).rstrip()


def _cells(terminal: Terminal, entry: ThreadEntry, short: Callable[[str], str]) -> tuple[str, ...]:
    items = "" if entry.items is None else f"{entry.items:,}"
    return (
        _mark(terminal, entry),
        short(entry.thread_id),
        _age(entry.updated),
        items,
        _size(terminal, entry),
        _where(terminal, entry),
        _state(entry),
        _title(terminal, entry),
    )


def _mark(terminal: Terminal, entry: ThreadEntry) -> str:
    marks = _MARKS.get(entry.state) or (_FORK if entry.forked_from else ("", ""))
    return marks[terminal.ascii]


def _age(stamp: str | None) -> str:
    seconds = age_seconds(stamp)
    if seconds is None:
        return ""
    for least, size, unit in _AGES:
        if seconds >= least:
            return f"{seconds // size:.0f}{unit}"
    return "now"


def _size(terminal: Terminal, entry: ThreadEntry) -> str:
    stored = format_bytes(entry.size_bytes)
    if not entry.compressed or entry.content_bytes is None:
        return stored
    return f"{format_bytes(entry.content_bytes)}{terminal.mark('arrow')}{stored}"


def format_bytes(count: int) -> str:
    """`310`, `2.1M`: at most three digits and a unit."""
    size = float(count)
    for unit in _UNITS:
        if size < 999.5 or unit == _UNITS[-1]:
            break
        size /= 1024
    digits = f"{size:.1f}" if unit != "B" and size < 10 else f"{size:.0f}"
    return f"{digits}{'' if unit == 'B' else unit}"


def _where(terminal: Terminal, entry: ThreadEntry) -> str:
    folder = (entry.cwd or "").rstrip("/\\")
    folder = folder.replace("\\", "/").rpartition("/")[2]
    where = safe_line(f"{folder}@{entry.branch}" if entry.branch else folder)
    more = terminal.mark("more")
    return where if len(where) <= _WHERE_MAX else where[: _WHERE_MAX - len(more)] + more


def _state(entry: ThreadEntry) -> str:
    if entry.state == "live":
        pid = None if entry.writer is None else entry.writer.pid
        return "writing" if pid is None else f"writing pid {pid}"
    if entry.state == "crashed" and entry.open_calls:
        return f"crashed, {entry.open_calls} open"
    return f"{entry.state} .zst" if entry.compressed else entry.state


def _title(terminal: Terminal, entry: ThreadEntry) -> str:
    if entry.problem is not None and entry.name is None:
        return safe_line(entry.problem)
    title = safe_line(entry.title or "") or "(nothing was typed)"
    if entry.forked_from:
        at = "" if entry.fork_ordinal is None else f"#{entry.fork_ordinal}"
        title += f" (fork of {safe_line(entry.forked_from)[-8:]}{at})"
    labels = "".join(f" [{safe_line(each)}]" for each in entry.labels)
    return title + labels


def entry_object(entry: ThreadEntry) -> dict[str, Any]:
    """The members of `{"kind":"thread"}`."""
    writer = entry.writer
    parent = entry.forked_from or entry.parent_id
    return {
        "id": entry.thread_id,
        "name": entry.name,
        "title": entry.title,
        "preview": entry.preview,
        "state": entry.state,
        "pid": None if writer is None else writer.pid,
        "host": None if writer is None else writer.host,
        "items": entry.items,
        "bytes": entry.content_bytes,
        "stored_bytes": entry.size_bytes,
        "cwd": entry.cwd,
        "branch": entry.branch,
        "source": entry.source,
        "provider": entry.provider,
        "originator": entry.originator,
        "model": entry.model,
        "parent": None if parent is None else {"id": parent, "ordinal": entry.fork_ordinal},
        "subagent": entry.parent_id is not None or entry.source == "subagent",
        "open_calls": entry.open_calls,
        "created": entry.created,
        "updated": entry.updated,
        "labels": list(entry.labels),
        "archived": entry.archived,
        "compressed": entry.compressed,
        "meta_id": entry.meta_id,
        "problem": entry.problem,
        "notes": list(entry.notes),
        "path": os.fspath(entry.path),
    }
