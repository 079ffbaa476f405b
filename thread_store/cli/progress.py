"""A progress line on stderr for input that takes long; only on a terminal.

Invariant: nothing is drawn, and rich is not imported, before `_QUIET_SECONDS` have passed.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from thread_store.cli.terminal import Terminal

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

__all__ = ["InputProgress"]

_QUIET_SECONDS = 1.0
_REDRAW_SECONDS = 0.1


class InputProgress:
    """`total_bytes` is None for a stream."""

    def __init__(self, terminal: Terminal, total_bytes: int | None) -> None:
        self._terminal = terminal
        self._total_bytes = total_bytes
        self._enabled = terminal.stderr.isatty() and not terminal.quiet and not terminal.json
        self._due = time.monotonic() + _QUIET_SECONDS
        self._drawn: tuple[Progress, TaskID] | None = None
        terminal.before_note = self.clear

    def update(self, read_bytes: int, lines: int) -> None:
        """Draw how far it got, if it is time."""
        now = time.monotonic()
        if not self._enabled or now < self._due:
            return
        self._due = now + _REDRAW_SECONDS
        if self._drawn is None:
            self._drawn = self._begin()
        progress, task = self._drawn
        progress.update(task, completed=read_bytes, lines=f"{lines:,} lines")
        progress.refresh()

    def _begin(self) -> tuple[Progress, TaskID]:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

        console = Console(
            file=self._terminal.stderr, color_system="auto" if self._terminal.has_colors else None
        )
        columns = (DownloadColumn(), TransferSpeedColumn(), TextColumn("{task.fields[lines]}"))
        bar = (BarColumn(),) if self._total_bytes else ()
        # It is redrawn by `update` alone: a thread that draws would meet the notes.
        progress = Progress("recording", *bar, *columns, console=console, transient=True, auto_refresh=False)
        progress.start()
        return progress, progress.add_task("", total=self._total_bytes, lines="")

    def clear(self) -> None:
        """Take the line away; the next update draws it again."""
        if self._drawn is not None:
            progress, _ = self._drawn
            self._drawn = None
            progress.stop()
