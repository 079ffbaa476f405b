"""The records that a command shows: of a file or of standard input, from either end.

Invariant: what is no rollout is refused with the reason, a file before anything is printed and
a stream at its end; what is one is read to its end, however damaged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from protocol.errors import NotARollout
from rollout import thread_lock
from rollout.grammar import explain, is_rollout_line
from rollout.reader import read_rollout, require_rollout
from rollout.record import RolloutRecord
from rollout.scanner import ReverseJsonlScanner
from thread_store.cli.target import STDIN, Target

__all__ = ["find_writer", "is_meta", "open_records", "read_meta"]

_EXPLAINED_MAX = 50


def open_records(target: Target, *, newest_first: bool) -> Iterator[RolloutRecord]:
    """The records, from the oldest or the newest on.

    Raises:
        ThreadNotFound, NotARollout, RolloutUnreadable: now or while reading.
    """
    records: Iterable[RolloutRecord]
    records = ReverseJsonlScanner(target.source) if newest_first else read_rollout(target.source)
    return _require_rollout(records) if target.source == STDIN else iter(records)


def _require_rollout(records: Iterable[RolloutRecord]) -> Iterator[RolloutRecord]:
    first: list[RolloutRecord] = []
    ours = False
    for record in records:
        ours = ours or (record.line is not None and is_rollout_line(record.line))
        if not ours and len(first) < _EXPLAINED_MAX:
            first.append(record)
        yield record
    if not ours:
        reason, hint = explain(first, b"")
        raise NotARollout(path="standard input", reason=reason, hint=hint)


def read_meta(target: Target) -> dict[str, Any] | None:
    """The payload of a file's session_meta; None where it has none, and for a stream.

    Raises:
        ThreadNotFound, NotARollout, RolloutUnreadable: as `require_rollout`.
    """
    if target.source == STDIN:
        return None
    meta = require_rollout(target.source).meta
    payload = None if meta is None or meta.line is None else meta.line.payload_object()
    return payload if isinstance(payload, dict) else None


def find_writer(target: Target) -> str | None:
    """Who is writing the rollout just now, as far as that can be told without touching a lock."""
    if target.source == STDIN:
        return None
    holder = thread_lock.find_writer(target.source)
    return None if holder is None else str(holder)


def is_meta(record: RolloutRecord) -> bool:
    """Whether it is a session_meta, the thread's own or a copied one."""
    return record.line is not None and record.line.type == "session_meta"
