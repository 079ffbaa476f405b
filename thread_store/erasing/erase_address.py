"""A record that is named: all that tells the same, in its own file and elsewhere.

Invariant: what a person is shown as one item is one item here: the records of both tracks, a call and its
result. Of something that was said, and is long enough to mean nothing else (`REPEATED_CHARACTERS_MIN`),
whatever repeats it goes too, as for a text that was given; anything else goes from checkpoints, where the
item is the same. What two calls printed alike are two facts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from protocol.errors import ThreadNotFound
from protocol.line import RolloutLine
from rollout.record import RolloutRecord
from thread_store.chain.lineage import Lineage, LineageRecord
from thread_store.erasing.errors import EraseRefused
from thread_store.erasing.needle import Needle
from thread_store.home import Home
from thread_store.transcript import Transcript
from thread_store.transcript.fact import FactKind

__all__ = ["REPEATED_CHARACTERS_MIN", "EraseAddress", "NamedRecord", "find_named_record"]

REPEATED_CHARACTERS_MIN = 16
"""A shorter text may be said twice and mean two things."""

_TEXT_KEYS = frozenset({"text", "message", "content", "summary_text", "raw_content"})
_BLOB = re.compile(rb"sha256:([0-9a-f]{64})")
_SAID = (FactKind.USER, FactKind.ASSISTANT, FactKind.THINKING)


class NamedRecord(Struct, frozen=True):
    """`THREAD#ordinal` or `THREAD@offset`: one of both is given."""

    ordinal: int | None = None
    offset: int | None = None

    def __str__(self) -> str:
        return f"@{self.offset}" if self.ordinal is None else f"#{self.ordinal}"


class EraseAddress(Struct, frozen=True, kw_only=True):
    """The records of one item: in which file and where, and what they say."""

    path: str
    offsets: frozenset[int]
    items: tuple[Any, ...]
    """Payloads of the model's track, as a checkpoint repeats them."""
    needle: Needle | None
    """Its long texts, if it is something that was said."""
    blobs: frozenset[str] = frozenset()
    """The names of the blobs that hold what was too large for it."""

    def is_in_checkpoint(self, line: RolloutLine | None) -> bool:
        """Whether a checkpoint repeats one of the items."""
        payload = line.payload_object() if line is not None and line.type == "compacted" else None
        history = payload.get("replacement_history") if isinstance(payload, Mapping) else None
        return isinstance(history, list) and any(each in self.items for each in history)


def find_named_record(path: str | os.PathLike[str], home: Home | None, named: NamedRecord) -> EraseAddress:
    """Find a record and all that tells the same, in this rollout or in those before it.

    Raises:
        ThreadNotFound: there is no such record.
        EraseRefused: it stands in another thread, on which this one rests.
        NotARollout, RolloutUnreadable: the rollout can't be read.
    """
    with Lineage.resolve(path, home or Home(os.path.dirname(path))) as lineage:
        found = _find(lineage, named)
        if found is None:
            raise ThreadNotFound(f"{os.fspath(path)}{named}", path=path)
        segment = lineage.segments[found.segment]
        if segment.thread_id != lineage.own.thread_id:
            raise EraseRefused(
                f"{named} stands in the thread {segment.thread_id}, which this one shares",
                hint=f"Erase it there: rollout erase {segment.thread_id}{named}",
                path=segment.path,
                thread_id=segment.thread_id,
            )
        with lineage.open(found.segment) as file:
            kind, records = _records_of(file.forward(segment.start, segment.size), found.record)
    lines = [each.line for each in records if each.line is not None]
    payloads = [each.payload_object() for each in lines]
    said = {text for each in payloads for text in _texts(each)} if kind in _SAID else set()
    texts = {each for each in said if len(each) >= REPEATED_CHARACTERS_MIN}
    return EraseAddress(
        path=segment.path,
        offsets=frozenset(each.offset for each in records),
        items=tuple(each for line, each in zip(lines, payloads, strict=True) if line.type == "response_item"),
        needle=Needle(sorted(texts)) if texts else None,
        blobs=frozenset(name.decode() for each in lines for name in _BLOB.findall(each.source or b"")),
    )


def _find(lineage: Lineage, named: NamedRecord) -> LineageRecord | None:
    if named.offset is not None:
        index = lineage.end.segment
        with lineage.open(index) as file:
            own = (LineageRecord(index, each) for each in file.forward(lineage.own.start, lineage.own.size))
            return next((each for each in own if each.record.offset == named.offset), None)
    for index in range(lineage.end.segment, -1, -1):
        segment = lineage.segments[index]
        with lineage.open(index) as file:
            for record in file.backward(
                segment.start, segment.size if index == lineage.end.segment else segment.end
            ):
                if record.line is not None and record.line.number == named.ordinal:
                    return LineageRecord(index, record)
    return None


def _records_of(
    records: Iterator[RolloutRecord], wanted: RolloutRecord
) -> tuple[FactKind | None, list[RolloutRecord]]:
    """All records of the item that this one belongs to."""
    for entry in Transcript(records):
        if any(each.offset == wanted.offset for each in entry.records):
            return entry.kind, entry.records
    return None, [wanted]  # it only repeats an item that was given before


def _texts(value: Any, key: str = "") -> Iterator[str]:
    if isinstance(value, str):
        if key in _TEXT_KEYS:
            yield value
    elif isinstance(value, Mapping):
        for name, each in value.items():
            yield from _texts(each, name)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each, key)
