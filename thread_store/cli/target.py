"""What a command is pointed at: `THREAD`, `THREAD#42`, `THREAD#40..60`, `THREAD@81234`.

Invariant: a path that exists as it is written is that path, whatever characters it holds.
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import NamedTuple

from rollout.record import RolloutRecord
from thread_store.cli.safe_text import safe_line
from thread_store.cli.terminal import Terminal
from thread_store.home import Home, looks_like_path
from thread_store.transcript import TranscriptEntry

__all__ = ["STDIN", "Target", "find_target", "last_ordinal"]

STDIN = "-"

_ADDRESS = re.compile(r"(?P<thread>.+?)(?:#(?P<first>\d+)(?P<range>\.\.(?P<last>\d*))?|@(?P<offset>\d+))\Z")


class Target(NamedTuple):
    """A rollout and, if the argument named some, the items of it."""

    thread: str
    """The argument without the address: good for messages and for another command."""
    source: str
    """A path, or `-` for standard input."""
    first: int | None = None
    last: int | None = None
    offset_bytes: int | None = None

    @property
    def selects(self) -> bool:
        """Whether items were named."""
        return self.first is not None or self.offset_bytes is not None

    @property
    def selects_one(self) -> bool:
        """Whether one item was named, so that it is shown whole."""
        return self.offset_bytes is not None or (self.first is not None and self.first == self.last)

    @property
    def address(self) -> str:
        """What was named, as it was written: `#42`, `#40..60`, `@81234`, or nothing."""
        if self.offset_bytes is not None:
            return f"@{self.offset_bytes}"
        if self.first is None:
            return ""
        if self.first == self.last:
            return f"#{self.first}"
        return f"#{self.first}..{'' if self.last is None else self.last}"

    def holds(self, entry: TranscriptEntry) -> bool:
        """Whether the entry is one of the named ones (all are, if none were named)."""
        return any(self.holds_record(each) for each in entry.records)

    def holds_record(self, record: RolloutRecord) -> bool:
        """The same of a single record."""
        if self.offset_bytes is not None:
            return record.offset == self.offset_bytes
        if self.first is None:
            return True
        ordinal = None if record.line is None else record.line.number
        return ordinal is not None and self.first <= ordinal and (self.last is None or ordinal <= self.last)

    def command(self, verb: str, address: str = "") -> str:
        """The command line that does something else with it, ready to be pasted."""
        return safe_line(f"rollout {verb} {shlex.quote(self.thread)}{address}")


def find_target(terminal: Terminal, argument: str) -> Target:
    """Read the argument and find the rollout in the home, or at the path.

    Raises:
        ThreadNotFound, AmbiguousThread, InvalidThreadId: as `Home.find`.
    """
    found = None if os.path.lexists(argument) else _ADDRESS.match(argument)
    thread = argument if found is None else found["thread"]
    source = STDIN if thread == STDIN else str(_find(terminal, thread))
    if found is None:
        return Target(thread, source)
    if found["offset"] is not None:
        return Target(thread, source, offset_bytes=int(found["offset"]))
    first = int(found["first"])
    if found["range"] is None:
        return Target(thread, source, first, first)
    return Target(thread, source, first, int(found["last"]) if found["last"] else None)


def last_ordinal(end_exclusive: int | None) -> int | None:
    """The N of the `THREAD#N` that ends before this ordinal."""
    return None if end_exclusive is None or end_exclusive < 1 else end_exclusive - 1


def _find(terminal: Terminal, thread: str) -> Path:
    if looks_like_path(thread) and os.path.lexists(thread):
        return Path(thread)  # without asking where the home is
    home = Home.resolve(terminal.home, terminal.environ)
    try:
        return home.find(thread)
    finally:
        for error in home.passed_over:
            terminal.warn(f"{error.message}; it was passed over", code=error.code, path=error.path)
