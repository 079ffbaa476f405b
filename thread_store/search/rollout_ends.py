"""What the ends of a file tell of its thread before it is searched: its folders, and how new it is.

Invariant: a bounded number of bytes is read at either end, whatever the file is like. What can't be told
counts in favour of a search.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime

from protocol.errors import RolloutError
from protocol.line import RolloutLine
from protocol.timestamps import parse_timestamp
from rollout.head import find_head
from rollout.lines import judge_line
from rollout.source import ByteSource, is_compressed, open_source

__all__ = ["changed_at", "folders_of", "is_older_than"]

_TAIL_BYTES = 256 << 10


def folders_of(path: str) -> list[object]:
    """The folders that a thread says it works in: its meta, and its newest turn if that is near the end.

    Raises:
        ThreadNotFound, RolloutUnreadable: it can't be read.
    """
    source = open_source(path)
    try:
        meta = find_head(source).meta
        folders = [] if meta is None or meta.line is None else [_cwd(meta.line)]
        contexts = (line for line in _newest_lines(source) if line.type == "turn_context")
        newest = next(contexts, None)
        return folders if newest is None else [*folders, _cwd(newest)]
    finally:
        source.close()


def changed_at(path: str) -> datetime | None:
    """When the file was changed last: what counts for records that don't say when they were made."""
    times = _times(path)
    return None if times is None else times[0]


def _times(path: str) -> tuple[datetime, datetime] | None:
    """When its content was changed, and when anything of it; None if that can't be told."""
    try:
        status = os.stat(path)
        return datetime.fromtimestamp(status.st_mtime, UTC), datetime.fromtimestamp(status.st_ctime, UTC)
    except (OSError, ValueError, OverflowError):
        return None  # it went away, or another program set a time beyond all calendars


def is_older_than(path: str, moment: datetime) -> bool:
    """Whether nothing was recorded since: by the times of the file and, where these may have been set back,
    by that of its last line.

    Raises:
        ThreadNotFound, RolloutUnreadable: it can't be read.
    """
    times = _times(path)
    if times is None or times[0] >= moment or moment >= datetime.now(UTC):
        return False
    if times[1] < moment:
        return True  # nobody can set that one back
    source = open_source(path)
    try:
        last = next(_newest_lines(source), None)
    finally:
        source.close()
    stamp = None if last is None else parse_timestamp(last.timestamp)
    return stamp is not None and stamp < moment


def _newest_lines(source: ByteSource) -> Iterator[RolloutLine]:
    """The lines near the end, newest first; none of a compressed file."""
    if not source.seekable or is_compressed(source.read_at(4, 0)):
        return
    size = source.size()
    begin = max(0, size - _TAIL_BYTES)
    lines = source.read_at(size - begin, begin).split(b"\n")
    for data in reversed(lines[1:] if begin else lines):
        record = judge_line(data, None, 0)
        if record is not None and record.line is not None:
            yield record.line


def _cwd(line: RolloutLine) -> object:
    try:
        payload = line.payload_object()
    except RolloutError:
        return None
    return payload.get("cwd") if isinstance(payload, dict) else None
