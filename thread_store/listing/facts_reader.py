"""Reading the facts of one rollout file from disk.

Invariant: bounded (see `rollout_facts`), and it never raises for what a file is like: that is a fact.
Nothing is opened that is no plain file; no path that a file states is looked at.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from itertools import islice

from protocol.errors import NotARollout, RolloutError, RolloutUnreadable, ThreadNotFound
from rollout.lines import BOM
from rollout.source import is_compressed
from rollout.syscalls import drop
from thread_store.listing.first_prompt import late_lines
from thread_store.listing.head_scan import HeadScan
from thread_store.listing.rollout_facts import (
    GONE,
    HEAD_BYTES_MAX,
    LATE_BYTES_MAX,
    TAIL_BYTES_MAX,
    RolloutFacts,
)
from thread_store.listing.tail_scan import TailScan

__all__ = ["read_facts"]

_FIRST_BYTES = 16 << 10
_BLOCK_BYTES = 1 << 20
_EXPANDED_BYTES_MAX = 2 << 20
_FLAGS = (
    os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
)


def read_facts(path: str, thread_id: str) -> RolloutFacts:
    """The facts of the rollout at the path, whose name says that it is of that thread."""
    facts = RolloutFacts()
    try:
        _fill(path, facts)
    except ThreadNotFound:
        facts.problem_code = GONE
    except RolloutError as error:
        facts.problem, facts.problem_code = error.message, error.code
        if isinstance(error, NotARollout):
            facts.problem = error.reason
    except FileNotFoundError:
        facts.problem_code = GONE
    except OSError as error:
        unreadable = RolloutUnreadable(path=path, cause=error, operation="read")
        facts.problem, facts.problem_code = unreadable.message, unreadable.code
    if facts.meta_id is not None and facts.meta_id.lower() != thread_id:
        facts.notes.append(f"its meta states another id: {facts.meta_id}")
    if facts.torn:
        facts.notes.append("its last line was never finished")
    return facts


def _fill(path: str, facts: RolloutFacts) -> None:
    descriptor = os.open(path, _FLAGS)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ThreadNotFound(path)
        data = os.pread(descriptor, _FIRST_BYTES, 0)
        if is_compressed(data):
            _fill_compressed(path, facts)
        else:
            _fill_plain(path, descriptor, status.st_size, data, facts)
    finally:
        drop(descriptor, path)


def _fill_plain(path: str, descriptor: int, size: int, data: bytes, facts: RolloutFacts) -> None:
    head = HeadScan()
    rest = _scan_lines(head, data, whole=len(data) >= size)
    if not head.is_done and len(data) < size:
        data = _read(descriptor, HEAD_BYTES_MAX, 0)
        head = HeadScan()
        rest = _scan_lines(head, data, whole=len(data) >= size)
    if not head.is_rollout or data.lstrip(b"\xef\xbb\xbf \t\r\n")[:2] in (b"{\n", b"{\r"):
        _scan_slowly(path, head, facts, size)
        if facts.updated_ms is not None or size <= len(data):
            head.fill(facts)
            return
    if head.prompt.text is None and len(data) < size:
        _scan_late(descriptor, len(data), rest, head)
    head.fill(facts)
    whole = len(data) >= size or size <= TAIL_BYTES_MAX
    if len(data) < size:
        data = _read(descriptor, TAIL_BYTES_MAX, max(0, size - TAIL_BYTES_MAX))
    _scan_tail(data, whole, facts)


def _read(descriptor: int, size: int, offset: int) -> bytes:
    parts = []
    while size > 0 and (part := os.pread(descriptor, size, offset)):
        parts.append(part)
        size, offset = size - len(part), offset + len(part)
    return b"".join(parts)


def _scan_lines(head: HeadScan, data: bytes, *, whole: bool) -> bytes:
    """Show the lines to the head; returns the beginning of the line that is cut."""
    lines = data.removeprefix(BOM).split(b"\n")
    rest = lines.pop()
    for line in lines:
        head.take(line)
        if head.is_done:
            return b""
    if whole:
        head.take(rest)
        return b""
    head.take_cut(rest)
    return rest


def _scan_late(descriptor: int, offset: int, rest: bytes, head: HeadScan) -> None:
    """Look for the first prompt behind the head."""
    for line in late_lines(_blocks(descriptor, offset), rest):
        before = head.prompt.text
        head.take(line)
        if head.prompt.text == before:
            head.take_cut(line)
        if head.prompt.text is not None:
            return


def _blocks(descriptor: int, offset: int) -> Iterator[bytes]:
    for start in range(offset, LATE_BYTES_MAX, _BLOCK_BYTES):
        block = _read(descriptor, _BLOCK_BYTES, start)
        if not block:
            return
        yield block


def _scan_tail(data: bytes, whole: bool, facts: RolloutFacts) -> None:
    tail = TailScan()
    lines = data.split(b"\n")
    last = lines.pop()
    for line in lines if whole else lines[1:]:
        tail.take(line, terminated=True)
    if lines or whole:
        tail.take(last, terminated=False)
    tail.fill(facts)


def _scan_slowly(path: str, head: HeadScan, facts: RolloutFacts, size: int) -> None:
    """By the readers of everything else: what is no rollout, one document, or begins late.

    Raises:
        NotARollout: it is none.
    """
    from rollout.head import require_rollout
    from rollout.reader import read_rollout

    found = require_rollout(path)
    if found.meta is not None and found.meta.line is not None:
        head.take_line(found.meta.line)
    if size > _EXPANDED_BYTES_MAX:
        return
    tail = TailScan()
    for record in islice(read_rollout(path), 10_000):
        if record.line is not None:
            head.take_line(record.line)
            tail.take_line(record.line)
    tail.fill(facts)


def _fill_compressed(path: str, facts: RolloutFacts) -> None:
    """The beginning of what it holds; all of it where that is little."""
    from rollout.reader import read_rollout

    head, tail = HeadScan(), TailScan()
    taken, whole = 0, True
    for record in read_rollout(path):
        if record.line is not None:
            head.take_line(record.line)
            tail.take_line(record.line)
        taken = record.offset + record.size
        if taken > _EXPANDED_BYTES_MAX:
            whole = False
            break
    if not head.is_rollout:
        from rollout.head import require_rollout

        require_rollout(path)
    head.fill(facts)
    if whole:
        tail.fill(facts)
        facts.content_bytes = taken + 1
