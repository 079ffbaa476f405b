"""A progress line on stderr for work that takes long; only on a terminal.

Invariant: nothing is drawn, and rich is not imported, before `_QUIET_SECONDS` have passed.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from thread_store.cli.terminal import Terminal

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

__all__ = ["ByteProgress", "CountProgress"]

_QUIET_SECONDS = 1.0
_REDRAW_SECONDS = 0.1


class ByteProgress:
    """How far something got, in bytes. `doing`: the word before it."""

    def __init__(self, terminal: Terminal, doing: str) -> None:
        self._terminal = terminal
        self._doing = doing
        self._enabled = terminal.stderr.isatty() and not terminal.quiet and not terminal.json
        self._due = time.monotonic() + _QUIET_SECONDS
        self._drawn: tuple[Progress, TaskID] | None = None
        terminal.before_note = self.clear

    def update(self, done_bytes: int, total_bytes: int | None, *, lines: int | None = None) -> None:
        """Draw how far it got, if it is time. `total_bytes` is None for a stream."""
        now = time.monotonic()
        if not self._enabled or now < self._due:
            return
        self._due = now + _REDRAW_SECONDS
        if self._drawn is None:
            self._drawn = self._begin(total_bytes)
        progress, task = self._drawn
        progress.update(task, completed=done_bytes, lines="" if lines is None else f"{lines:,} lines")
        progress.refresh()

    def _begin(self, total_bytes: int | None) -> tuple[Progress, TaskID]:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

        console = Console(
            file=self._terminal.stderr, color_system="auto" if self._terminal.has_colors else None
        )
        columns = (DownloadColumn(), TransferSpeedColumn(), TextColumn("{task.fields[lines]}"))
        bar = (BarColumn(),) if total_bytes else ()
        # It is redrawn by `update` alone: a thread that draws would meet the notes.
        progress = Progress(self._doing, *bar, *columns, console=console, transient=True, auto_refresh=False)
        progress.start()
        return progress, progress.add_task("", total=total_bytes, lines="")

    def clear(self) -> None:
        """Take the line away; the next update draws it again."""
        if self._drawn is not None:
            progress, _ = self._drawn
            self._drawn = None
            progress.stop()


class CountProgress:
    """How many of something are done, where nobody knows how many there are. `things`: what is counted."""

    def __init__(self, terminal: Terminal, doing: str, things: str) -> None:
        self._terminal = terminal
        self._doing = doing
        self._things = things
        self._enabled = terminal.stderr.isatty() and not terminal.quiet and not terminal.json
        self._due = time.monotonic() + _QUIET_SECONDS
        self._drawn = False

    def update(self, count: int) -> None:
        """Draw how many, if it is time."""
        now = time.monotonic()
        if not self._enabled or now < self._due:
            return
        self._due = now + _REDRAW_SECONDS
        self._terminal.before_note = self.clear
        self._drawn = True
        self._terminal.stderr.write(f"\r{self._doing}: {count:,} {self._things}\x1b[K")
        self._terminal.stderr.flush()

    def clear(self) -> None:
        """Take the line away; the next update draws it again."""
        if self._drawn:
            self._drawn = False
            self._terminal.stderr.write("\r\x1b[K")
            self._terminal.stderr.flush()
