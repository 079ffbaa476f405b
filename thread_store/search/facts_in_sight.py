"""One hit for each fact, though both tracks tell it: which of the texts found are told again.

Invariant: the text of a fact is given once, by the record of the model's track if there is one near, in
whatever order the tracks come, and in the order of the file. Of its other records only lines are given that
it doesn't hold. Nothing that was found only once is held back for ever: a text waits for its twin until the
scan is `_WAIT_BYTES` further, and what comes behind it waits with it.

It sees only records in which something was found, so it can't count how far apart they stand as a transcript
does; it tells the facts of equal texts apart by which tracks have told them already.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from thread_store.search.said_texts import SaidText
from thread_store.transcript.fact import Form

__all__ = ["FactsInSight", "Sighting"]

_WAIT_BYTES = 4 << 20
_TWIN_BYTES_MAX = 16 << 20
_KNOWN_MAX = 4096
_ALIKE_MAX = 16
_LINES_MAX = 100_000
"""How many lines are remembered, of all facts together."""

_Hit = TypeVar("_Hit")


@dataclass(slots=True, eq=False)
class Sighting(Generic[_Hit]):
    """A text in which something was found: its hits, and the lines that these show."""

    said: SaidText
    offset: int
    hits: Sequence[_Hit]
    lines: Sequence[str]


@dataclass(slots=True, eq=False)
class _Told(Generic[_Hit]):
    """One text of a fact, by all records that told it."""

    offset: int
    """Of the last one."""
    waits_from: int | None = None
    """Where the first one stands, while the model's track may still tell it."""
    forms: set[Form] = field(default_factory=set)
    lines: set[str] = field(default_factory=set)
    due: list[_Hit] = field(default_factory=list)
    sightings: list[Sighting[_Hit]] = field(default_factory=list)

    def settle(self) -> None:
        """Nothing is waited for any more."""
        self.waits_from = None
        for sighting in self.sightings:
            known = set(self.lines)
            pairs = zip(sighting.hits, sighting.lines, strict=True)
            self.due.extend(hit for hit, line in pairs if line not in known)
            self.lines.update(sighting.lines)
        self.sightings.clear()


class FactsInSight(Generic[_Hit]):
    """Of one file. Give it sightings in the order of the file."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str], deque[_Told[_Hit]]] = OrderedDict()
        self._queue: deque[_Told[_Hit]] = deque()
        self._lines = 0

    def take(self, sighting: Sighting[_Hit]) -> Iterator[_Hit]:
        """Note a sighting; gives the hits that are due."""
        said = sighting.said
        told = self._find(sighting)
        if told is None:
            told = _Told(sighting.offset)
            if said.keys and said.form in (Form.ITEM, Form.EVENT):
                told.waits_from = sighting.offset
            self._remember(said, told)
        waited = told.waits_from is not None and bool(told.sightings)
        told.offset = sighting.offset
        told.forms.add(said.form)
        self._lines += len(sighting.lines) if said.keys else 0
        if said.form is Form.RESPONSE:
            told.sightings.insert(0, sighting)
            told.waits_from = None
        else:
            told.sightings.append(sighting)
        if told.waits_from is None:
            told.settle()
        if not waited:
            self._queue.append(told)
        yield from self._drain()

    def _find(self, sighting: Sighting[_Hit]) -> _Told[_Hit] | None:
        said = sighting.said
        for key in said.keys:
            for told in reversed(self._known.get((key, said.part), ())):
                near = sighting.offset - told.offset <= _TWIN_BYTES_MAX
                same = sighting.offset == told.offset  # another text of the record
                if near and (same or said.repeats or said.form not in told.forms):
                    return told
        return None

    def _remember(self, said: SaidText, told: _Told[_Hit]) -> None:
        for key in said.keys:
            self._known.setdefault((key, said.part), deque(maxlen=_ALIKE_MAX)).append(told)
            self._known.move_to_end((key, said.part))
        while len(self._known) > _KNOWN_MAX:
            self._known.popitem(last=False)
        if self._lines > _LINES_MAX:
            self._known.clear()  # twins stand close together: few are told again
            self._lines = 0

    def pass_by(self, offset: int) -> Iterator[_Hit]:
        """The scan has come to an offset: gives the hits whose twin is not to be expected any more."""
        for told in self._queue:
            if told.waits_from is None:
                continue
            if told.waits_from + _WAIT_BYTES >= offset:
                break
            told.settle()
        yield from self._drain()

    def finish(self) -> Iterator[_Hit]:
        """The file is at its end: gives all that is left."""
        for told in self._queue:
            told.settle()
        yield from self._drain()

    def _drain(self) -> Iterator[_Hit]:
        while self._queue and self._queue[0].waits_from is None:
            told = self._queue.popleft()
            due, told.due = told.due, []
            yield from due
