"""Rollouts in one JSON document, the oldest format of Codex: `{"session": {…}, "items": […]}`.

Invariant: both readers take a file for one, or not, by the same bytes. Its records have no lines
of their own: each has the place of the document, and is numbered by its position in it.
"""

from __future__ import annotations

from typing import NamedTuple

from rollout.record import RolloutRecord
from rollout.stream import RolloutStream

__all__ = ["Document", "decode_document", "read_document"]


class Document(NamedTuple):
    """The records of a document, and how many bytes and lines of text it is."""

    records: list[RolloutRecord]
    size: int
    lines: int


def decode_document(data: bytes, offset: int) -> Document | None:
    """The records of a document that begins at `offset`; None if it isn't one."""
    from protocol.upcast import upcast_document  # only files of 2025 need it

    lines = upcast_document(data)
    if lines is None:
        return None
    records = [RolloutRecord(index, offset, len(data), line) for index, line in enumerate(lines, 1)]
    return Document(records, len(data), data.count(b"\n") + (not data.endswith(b"\n")))


def read_document(stream: RolloutStream, bytes_max: int) -> Document | None:
    """The document that the whole stream is; None if it is none, or too long: it is read as lines then."""
    if not stream.document:
        return None
    data = stream.take_document(bytes_max)
    return None if data is None else decode_document(data, stream.offset)
