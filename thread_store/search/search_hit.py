"""What a search gives: hits, and what it could not or did not look at.

Invariant: plain data. A hit is one line of one text that one record tells; its address leads to that record.
"""

from __future__ import annotations

from msgspec import Struct

__all__ = ["Passage", "SearchHit", "SearchReport", "SkippedPlace"]


class Passage(Struct, frozen=True, kw_only=True):
    """A line of a text with what was found on it. A find that holds line breaks brings all its lines."""

    line: int
    """In its text, counted from 1."""
    text: str
    """Cut around the first find where the line is long; `cut_before`, `cut_after` say so."""
    spans: tuple[tuple[int, int], ...]
    """What was found, as places in `text`: begin and end."""
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    cut_before: bool = False
    cut_after: bool = False


class SearchHit(Struct, frozen=True, kw_only=True):
    """A passage, and whose it is."""

    thread_id: str
    path: str
    """The file that holds the record: the thread's own, or one that its history begins in."""
    archived: bool
    ordinal: int | None
    offset: int
    """Where the record begins in the (decompressed) file, in bytes."""
    timestamp: str | None
    role: str
    """One of `ROLES`."""
    tool: str | None
    """The tool's name, where it is known."""
    field: str
    """Which text of the record: `text`, `output`, `args.cmd`, …"""
    passage: Passage


class SkippedPlace(Struct, frozen=True, kw_only=True):
    """What could not be searched, and why; everything else was. `offset` is None for a whole file."""

    thread_id: str | None
    path: str
    reason: str
    message: str
    offset: int | None = None


class SearchReport(Struct, kw_only=True):
    """How far a search got. Its numbers are final once the search is over."""

    hits: int = 0
    threads: int = 0
    """With a hit."""
    searched_threads: int = 0
    searched_bytes: int = 0
    """Decompressed."""
    archived_left_out: int = 0
    compressed_left_out: int = 0
    older_left_out: int = 0
    """Threads that recorded nothing since `since`."""
    skipped: list[SkippedPlace] = []
    finished: bool = False
    """Everything was searched; False where the search was ended before."""
