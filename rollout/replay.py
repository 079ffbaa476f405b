"""Replay: bring unwritten lines into their rollout, each exactly once and in their order.

Invariant: a line counts as there already if one of the same time, type and payload stands behind
the offset where the lines would have begun, as often as it was set aside; so a replay that was
cut short is completed by the next one, whatever stands between. Ordinals stay as they are
unless another record took them meanwhile; then the lines go on from the maximum.

`x_memory` lines are left out: they tell of offsets that no longer hold, and are derived anyway.

Late items were set aside for another file, which their thread had left behind (FORMAT.md, Kept
files). Their offset says nothing about this rollout: they are looked for in all of it, and in
what of the history before it stands behind that offset. What tells of the other file itself, its
meta line and its `x_writer` lines, is left out.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from protocol.errors import InvalidLine
from protocol.line import RolloutLine, decode_line, encode_line
from rollout.reader import RolloutReader
from rollout.record import RolloutRecord
from rollout.unwritten import Unwritten

__all__ = ["LateItems", "Missing", "find_missing", "number_lines"]

_DERIVED = frozenset({"x_memory"})
_OF_ANOTHER_FILE = frozenset({"x_memory", "x_writer"})
_META = "session_meta"
# As recorders write it; anything else is composed anew from its fields.
_ORDINAL = re.compile(rb'(\{"timestamp":"[^"\\]*","ordinal":)\d+(?=,)')


class LateItems(NamedTuple):
    """A file of unwritten lines that was set aside for an older file of the thread."""

    path: str
    records_since: Callable[[int], Iterable[RolloutRecord]]
    """The history before this rollout, from an offset in that older file on."""


class Missing(NamedTuple):
    """What a rollout lacks of a file of unwritten lines."""

    lines: list[bytes]
    present: int
    """How many of its lines are there already."""
    present_from: int | None = None
    """Where the first of those begins that are in the rollout itself."""


def find_missing(
    unwritten: Unwritten,
    source: int,
    *,
    size: int,
    record_bytes_max: int,
    headless: bool = False,
    late: LateItems | None = None,
) -> Missing:
    """Compare with the rollout behind the descriptor `source`: O(what it holds from the offset on).

    A meta line that was set aside in front of lines from the middle is for a rollout that is `headless`.
    `late`: the lines are of that file, and for another rollout.
    """
    offset = unwritten.header.offset_bytes
    lines = _wanted_lines(unwritten, headless=headless, late=late is not None)
    wanted = frozenset(map(_fingerprint, lines))
    start = min(offset, size) if late is None else 0
    own = RolloutReader(source, start_offset=start, record_bytes_max=record_bytes_max)
    there, present_from = _count(own, wanted)
    if late is not None:
        there += _count(late.records_since(offset), wanted)[0]
    missing = []
    for line in lines:
        print_ = _fingerprint(line)
        if there[print_] > 0:
            there[print_] -= 1
        else:
            missing.append(line)
    return Missing(missing, len(lines) - len(missing), present_from)


def _wanted_lines(unwritten: Unwritten, *, headless: bool, late: bool) -> list[bytes]:
    """The lines without those that have no place in the rollout."""
    given, left_out = unwritten.lines, _OF_ANOTHER_FILE if late else _DERIVED
    behind_meta = late or (unwritten.header.offset_bytes > 0 and not headless)
    if given and behind_meta and _kind(given[0]) == _META:
        given = given[1:]
    # A blank line is the newline that the file lacked; the repair has added it.
    return [line for line in given if line != b"\n" and _kind(line) not in left_out]


def _count(records: Iterable[RolloutRecord], wanted: frozenset[bytes]) -> tuple[Counter[bytes], int | None]:
    """How often each of the wanted lines is among the records, and where the first of them begins."""
    there: Counter[bytes] = Counter()
    first = None
    for record in records:
        if record.line is not None and (print_ := _line_fingerprint(record.line)) in wanted:
            there[print_] += 1
            first = record.offset if first is None else first
    return there, first


def _kind(line: bytes) -> str | None:
    try:
        return decode_line(line).type
    except InvalidLine:
        return None


def _fingerprint(line: bytes) -> bytes:
    try:
        return _line_fingerprint(decode_line(line))
    except InvalidLine:
        return line


def _line_fingerprint(line: RolloutLine) -> bytes:
    """The line without its ordinal, which a replay may change."""
    digest = hashlib.blake2b(
        f"{line.timestamp}\0{line.type}\0".encode(errors="surrogatepass"), digest_size=16
    )
    digest.update(line.payload if line.payload else line.source or b"")
    return digest.digest()


def number_lines(lines: Iterable[bytes], next_ordinal: int) -> Iterator[bytes]:
    """The lines, each with an ordinal of at least `next_ordinal` and rising, where it has one."""
    for data in lines:
        try:
            line = decode_line(data)
        except InvalidLine:  # it was set aside like that: it goes in like that
            yield data
            continue
        if line.ordinal is not None:
            if line.ordinal < next_ordinal:
                yield _renumber(data, line, next_ordinal)
                next_ordinal += 1
                continue
            next_ordinal = line.ordinal + 1
        yield data


def _renumber(data: bytes, line: RolloutLine, ordinal: int) -> bytes:
    changed, count = _ORDINAL.subn(rb"\g<1>%d" % ordinal, data, count=1)
    if count:
        return changed
    return encode_line(
        RolloutLine(timestamp=line.timestamp, ordinal=ordinal, type=line.type, payload=line.payload)
    )
