"""Rollouts in one JSON document, the oldest format of Codex: `{"session": {…}, "items": […]}`.

Invariant: both readers take a file for one, or not, by the same bytes. A record's place is that
of its JSON in the document, which may span lines; its number is its position in it.
"""

from __future__ import annotations

from typing import NamedTuple

from rollout.record import RolloutRecord
from rollout.stream import RolloutStream

__all__ = ["Document", "decode_document", "read_document"]


class Document(NamedTuple):
    """The records of a document, where it ends, and how many lines of text it is."""

    records: list[RolloutRecord]
    end_offset: int
    lines: int


def decode_document(data: bytes, offset: int) -> Document | None:
    """The records of a document that begins at `offset`; None if it isn't one."""
    from protocol.document import place_document  # only files of 2025 need it

    placed = place_document(data)
    if placed is None:
        return None
    records = [
        RolloutRecord(index, offset + each.offset, each.size, each.line)
        for index, each in enumerate(placed, 1)
    ]
    return Document(records, offset + len(data), data.count(b"\n") + (not data.endswith(b"\n")))


def read_document(stream: RolloutStream, bytes_max: int) -> Document | None:
    """The document that the whole stream is; None if it is none, or too long: it is read as lines then."""
    if not stream.document:
        return None
    data = stream.take_document(bytes_max)
    return None if data is None else decode_document(data, stream.offset)
