"""Promises: what a program was told, read from the notes in its log.

Invariant: only what the recorder's caller saw counts; the log's calls say nothing here.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Promises"]


@dataclass(slots=True)
class Promises:
    """Items are counted from 0; a count of 3 speaks of items 0, 1 and 2."""

    offered: int = 0
    """Given to `record`, whether it returned or not."""
    accepted: int = 0
    flushed: int = 0
    """Covered by a flush, sync or close that returned."""
    synced: int = 0
    """Covered by a sync or close that returned."""
    refused: bool = False
    """`record` raised."""
    unwritten: dict[str, Any] | None = None
    """The close failed: what its error said."""
    closed: bool = False
    """A close has returned or raised, and nothing was opened since."""
    ended: bool = False
    """The program came to its end."""
    errors: list[dict[str, Any]] = field(default_factory=list)
    stranger: bool = False
    """Another program has meddled with the file."""

    old_tail_offset: int | None = None
    """Where the file was torn before: where cutting is forbidden that becomes a damaged line."""

    @classmethod
    def of_file(cls, data: bytes | None) -> Promises:
        """None yet, about a file that another process has left."""
        tail = b"" if data is None else data[data.rfind(b"\n") + 1 :]
        return cls(old_tail_offset=len(data) - len(tail) if data is not None and tail else None)

    def keeps_below(self, root: str) -> bool:
        """Unwritten items were set aside in that folder, so that they share its fate."""
        return self.unwritten is not None and str(self.unwritten["kept"]).startswith(f"{root}/")

    def take(self, text: str) -> None:
        """Take in one note."""
        note = json.loads(text)
        kind = note["kind"]
        self.closed = kind in ("close", "unwritten") or (self.closed and kind == "end")
        if kind == "offer":
            self.offered = note["upto"]
        elif kind == "accept":
            self.accepted = note["upto"]
        elif kind in ("flush", "sync", "close"):
            self.flushed = max(self.flushed, note["upto"])
            if kind != "flush":
                self.synced = max(self.synced, note["upto"])
        elif kind == "error":
            self.errors.append(note)
            self.refused = self.refused or note["operation"] == "record"
        elif kind == "unwritten":
            self.unwritten = note
        elif kind == "stranger":
            # What it destroyed is promised again by the next barrier only.
            self.flushed = self.synced = 0
            self.stranger = True
        elif kind == "end":
            self.ended = True
