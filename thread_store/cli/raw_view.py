"""The raw view: lines as they stand in the file.

Invariant: into a pipe or a file they go byte for byte; on a terminal they are made harmless.
Damaged lines are left out, and each is named on stderr.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from rollout.record import RolloutRecord
from thread_store.cli.safe_text import safe_line, safe_text
from thread_store.cli.target import Target
from thread_store.cli.terminal import Terminal

__all__ = ["raw_lines", "write_raw"]


def raw_lines(terminal: Terminal, target: Target, records: Iterable[RolloutRecord]) -> Iterator[bytes]:
    """The bytes of the selected records' lines, without their newlines."""
    for record in records:
        warning = record.warning
        if warning is not None and not target.selects:
            terminal.warn(
                f"byte {warning.offset_bytes:,} is left out: {safe_line(warning.message)}",
                code=warning.reason,
                offset_bytes=warning.offset_bytes,
            )
        elif record.line is not None and target.holds_record(record):
            yield bytes(record.line.source or b"")


def write_raw(terminal: Terminal, line: bytes) -> None:
    """Print one line."""
    buffer = getattr(sys.stdout, "buffer", None)
    if terminal.is_tty or buffer is None:
        terminal.print(safe_text(line.decode("utf-8", "replace")))
    else:
        buffer.write(line + b"\n")
