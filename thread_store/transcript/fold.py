"""A transcript: a rollout as a person reads it, each fact once.

Invariant: one fact, however many records tell it, is one entry, and entries come in the order
of their addresses. No record is in two entries; one that is in none only repeats what an entry
given before it has told. This holds in both directions: records given newest first give the
same entries, newest first.

Theory of operation. An entry waits in a short queue for its other records: the twin of a
message, the result of a call. It leaves when it has been quiet for `_LAG_RECORDS` and is
whole, or when its window has passed; so memory is bounded by records and by bytes. What comes
later is told apart by what is remembered of entries that left: a twin is passed over, the
result of a call that ran very long is an entry of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from rollout.record import RolloutRecord
from thread_store.transcript.fact import Fact, FactKind, Form, ToolResult
from thread_store.transcript.facts import fact_of

__all__ = ["Transcript", "TranscriptEntry"]

_LAG_RECORDS = 8
"""Twins of one fact stand this close together."""
_TWIN_RECORDS = 32
"""How long a message from one track waits for the other track's."""
_CALL_RECORDS = 512
"""How long a call waits for its result."""
_KNOWN_RECORDS = 2048
"""How long it is remembered what an entry told, without its content."""
_HELD_BYTES_MAX = 16 << 20


@dataclass(slots=True, eq=False)
class TranscriptEntry:
    """One fact, or one damaged place (then `kind` is None and `record.warning` says what).

    `record` is the one that gives the address; `records` are all, in the order in which they came,
    and `facts` what each of them says.
    """

    record: RolloutRecord
    kind: FactKind | None = None
    name: str = ""
    text: str = ""
    result: ToolResult | None = None
    has_call: bool = False
    records: list[RolloutRecord] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    _touched: int = 0
    _held_bytes: int = 0
    _gone: bool = False

    @property
    def ordinals(self) -> list[int]:
        """The ordinals of all its records."""
        lines = [each.line for each in self.records if each.line is not None]
        return [line.ordinal for line in lines if line.ordinal is not None]

    @property
    def call_id(self) -> str | None:
        """The id of the tool call, where this is one."""
        keys = self.facts[0].keys if self.kind is FactKind.TOOL and self.facts else ()
        return keys[0].partition("\0")[2] if keys else None

    @property
    def is_whole(self) -> bool:
        """Whether nothing more is expected: a message has its model's form, a call its output."""
        if self.kind in (FactKind.USER, FactKind.ASSISTANT, FactKind.THINKING):
            return any(fact.form is Form.RESPONSE for fact in self.facts)
        if self.kind is FactKind.TOOL:
            return self.has_call and self.result is not None and self.result.output is not None
        return True

    def _without_content(self) -> TranscriptEntry:
        """What must be known of it to tell its late twins."""
        result = (
            None if self.result is None else ToolResult(output=None if self.result.output is None else "")
        )
        return TranscriptEntry(
            record=RolloutRecord(None, self.record.offset, 0, None),
            kind=self.kind,
            name=self.name,
            result=result,
            has_call=self.has_call,
            facts=[Fact(each.kind, each.form, each.keys, is_call=each.is_call) for each in self.facts],
            _touched=self._touched,
            _gone=True,
        )

    @property
    def _patience(self) -> int:
        if self.is_whole:
            return _LAG_RECORDS
        asked = any(fact.is_call and fact.form is Form.RESPONSE for fact in self.facts)
        return _CALL_RECORDS if asked else _TWIN_RECORDS


class Transcript:
    """Iterate over it to get the entries of `records`, which may come oldest or newest first."""

    def __init__(self, records: Iterable[RolloutRecord]) -> None:
        self._records = records
        self._queue: deque[TranscriptEntry] = deque()
        self._gone: deque[TranscriptEntry] = deque()
        """What is remembered of the entries that left."""
        self._by_key: dict[str, list[TranscriptEntry]] = {}
        self._count = 0
        self._held_bytes = 0

    def __iter__(self) -> Iterator[TranscriptEntry]:
        for record in self._records:
            self._count += 1
            self._take(record)
            while self._queue and self._is_ripe(self._queue[0]):
                yield self._release()
        while self._queue:
            yield self._release()

    def _take(self, record: RolloutRecord) -> None:
        if record.line is None:
            self._add(TranscriptEntry(record, records=[record]))
            return
        fact = fact_of(record.line)
        entry = self._find(fact)
        if entry is None or self._comes_late(entry, fact):
            late_for, entry = entry, TranscriptEntry(record, kind=fact.kind)
            if late_for is not None:
                entry.name = late_for.name
                late_for.result = fact.result  # it is answered now, though shown without
            self._add(entry)
        if entry._gone:
            entry.facts.append(Fact(fact.kind, fact.form, fact.keys, is_call=fact.is_call))
        else:
            _note(entry, record, fact)
            entry._touched = self._count
            entry._held_bytes += record.size
            self._held_bytes += record.size
            self._settle(entry)
        for key in fact.keys:
            known = self._by_key.setdefault(key, [])
            if entry not in known:
                known.append(entry)

    def _add(self, entry: TranscriptEntry) -> None:
        entry._touched = self._count
        self._queue.append(entry)

    def _find(self, fact: Fact) -> TranscriptEntry | None:
        """The entry that a record belongs to: the latest with a common key that has room for it."""
        slot = (fact.form, fact.is_call)
        for key in fact.keys:
            for entry in reversed(self._by_key.get(key, ())):
                if fact.repeats or all((each.form, each.is_call) != slot for each in entry.facts):
                    return entry
        return None

    @staticmethod
    def _comes_late(entry: TranscriptEntry, fact: Fact) -> bool:
        """Whether it is the output, or the call, of an entry that was shown without: it gets its own."""
        if not entry._gone or fact.kind is not FactKind.TOOL or entry.is_whole:
            return False
        has_output = fact.result is not None and fact.result.output is not None
        return has_output if entry.has_call else fact.is_call

    def _settle(self, entry: TranscriptEntry) -> None:
        """Put the entry where its address stands, and take in what turned out to be parts of it."""
        if entry.kind is FactKind.THINKING and entry.facts[-1].form is Form.RESPONSE:
            self._absorb(entry)
        place = min(range(len(entry.facts)), key=lambda at: _rank(entry.facts[at], entry.records[at]))
        if entry.records[place] is not entry.record:
            entry.record = entry.records[place]
            self._queue.remove(entry)
            self._queue.append(entry)

    def _absorb(self, entry: TranscriptEntry) -> None:
        """Thoughts told part by part on the reader's track are one on the model's."""
        for key in entry.facts[-1].keys:
            for part in list(self._by_key.get(key, ())):
                if part is entry or part._gone or part.is_whole:
                    continue
                self._queue.remove(part)
                self._by_key[key].remove(part)
                entry.records[:0], entry.facts[:0] = part.records, part.facts
                entry._held_bytes += part._held_bytes

    def _is_ripe(self, entry: TranscriptEntry) -> bool:
        return self._count - entry._touched >= entry._patience or self._held_bytes > _HELD_BYTES_MAX

    def _release(self) -> TranscriptEntry:
        entry = self._queue.popleft()
        self._held_bytes -= entry._held_bytes
        shown = entry._without_content()
        for key in _keys_of(entry):
            self._by_key[key] = [shown if each is entry else each for each in self._by_key[key]]
        self._gone.append(shown)
        while self._gone and self._count - self._gone[0]._touched > _KNOWN_RECORDS:
            self._forget(self._gone.popleft())
        return entry

    def _forget(self, entry: TranscriptEntry) -> None:
        for key in _keys_of(entry):
            known = [each for each in self._by_key.get(key, ()) if each is not entry]
            if known:
                self._by_key[key] = known
            else:
                self._by_key.pop(key, None)


def _keys_of(entry: TranscriptEntry) -> set[str]:
    return {key for fact in entry.facts for key in fact.keys}


def _rank(fact: Fact, record: RolloutRecord) -> tuple[bool, int, int]:
    """The least one gives the address: a call before its result, the model's track before the
    reader's, and the earlier one of two alike."""
    return (fact.kind is FactKind.TOOL and not fact.is_call, fact.form, record.offset)


def _note(entry: TranscriptEntry, record: RolloutRecord, fact: Fact) -> None:
    """Add what one more record says to the entry."""
    known = [each.form for each in entry.facts if each.is_call is fact.is_call]
    best = min(known, default=None)
    entry.records.append(record)
    entry.facts.append(fact)
    if fact.is_call or not entry.has_call:
        if fact.name and (not entry.name or best is None or fact.form < best):
            entry.name = fact.name
        if fact.text and (not entry.text or best is None or fact.form < best):
            entry.text = fact.text
    if entry.kind is FactKind.CONTEXT and fact.kind is FactKind.USER:
        entry.kind = fact.kind  # somebody typed it after all
    entry.has_call = entry.has_call or fact.is_call
    if fact.result is not None:
        entry.result = _join(entry.result, fact.result, prefer_output=fact.form is Form.RESPONSE)


def _join(known: ToolResult | None, new: ToolResult, *, prefer_output: bool) -> ToolResult:
    """Both results in one: the model's track tells the output, any track the rest."""
    if known is None:
        return ToolResult(new.output, new.status, new.exit_code, new.milliseconds)
    prefer_new = prefer_output and new.output is not None
    return ToolResult(
        output=new.output if prefer_new or known.output is None else known.output,
        status=known.status if known.status is not None else new.status,
        exit_code=known.exit_code if known.exit_code is not None else new.exit_code,
        milliseconds=known.milliseconds if known.milliseconds is not None else new.milliseconds,
    )
