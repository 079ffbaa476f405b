"""The ledger: what a program was told about the threads of a home, read from the notes in its log.

Invariant: only what the store's caller saw counts. Numbers of items say who recorded them:
`key * PRODUCER + n` is item n of the thread with that key, in its forks too.
"""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, field
from typing import Any, Self

from tests.faults.numbered import PRODUCER

__all__ = ["StoreLedger", "Told"]


@dataclass(slots=True)
class Told:
    """One thread. A count of 3 speaks of its own items up to number 2."""

    key: int
    thread_id: str
    first: int = 0
    """The number of its first own item; earlier ones are in `base`."""
    base: tuple[int, ...] = ()
    """The numbers of the items that it took over from another thread."""
    base_sure: int = 0
    """So many of them must be there."""
    rests_on: int | None = None
    """The thread whose file holds them; None: its own."""
    offered: int = 0
    accepted: int = 0
    flushed: int = 0
    synced: int = 0
    begun: bool = False
    """It has a file: an acknowledgement spoke of it."""
    unwritten: dict[str, Any] | None = None
    calls_begun: frozenset[str] = frozenset()
    """Tool calls whose body ran."""
    calls_ended: frozenset[str] = frozenset()
    archived: bool | None = False
    """None: it may have been moved or not."""
    deleted: bool | None = False
    """None: that was begun."""

    def own(self, count: int) -> list[int]:
        return [self.key * PRODUCER + n for n in range(self.first, count)]

    @property
    def surely(self) -> list[int]:
        """What a sync, or a fork, has acknowledged."""
        return [*self.base[: self.base_sure], *self.own(self.synced)]


@dataclass(slots=True)
class StoreLedger:
    """All of them, by their keys."""

    threads: dict[int, Told] = field(default_factory=dict)
    errors: list[dict[str, Any]] = field(default_factory=list)
    refused: bool = False
    """`record` raised."""
    ended: bool = False
    secret: str = "none"
    """none, there, erasing, partly or erased."""
    listed: list[tuple[list[str], list[str]]] = field(default_factory=list)
    """Of each list that failed: what is missing in it, and what is too much."""
    _listing: set[str] = field(default_factory=set)
    """The threads that stood there when the list was begun."""
    _forking: dict[int, tuple[int, str]] = field(default_factory=dict)

    def copied(self) -> Self:
        return copy.deepcopy(self)

    def add_standing(self, key: int, thread_id: str, count: int, *, base: tuple[int, ...] = ()) -> None:
        """A thread that is there from the start, on stable storage."""
        told = Told(key, thread_id, base=base, base_sure=len(base), begun=True)
        told.offered = told.accepted = told.flushed = told.synced = count
        self.threads[key] = told

    @property
    def fingerprint(self) -> str:
        """What a state of the disk is judged by."""
        parts = [
            (t.key, t.synced, t.accepted, t.unwritten is None, len(t.calls_ended), t.archived, t.deleted)
            for t in self.threads.values()
        ]
        return f"{self.secret} {parts}"

    def take(self, text: str) -> None:
        """Take in one note."""
        note = json.loads(text)
        getattr(self, f"_take_{note['kind']}")(note)

    def _take_created(self, note: dict[str, Any]) -> None:
        self.threads[note["key"]] = Told(note["key"], note["id"])

    def _take_opened(self, note: dict[str, Any]) -> None:
        """Nothing is promised by that."""

    def _take_forking(self, note: dict[str, Any]) -> None:
        self._forking[note["key"]] = note["source"], note["mode"]

    def _take_forked(self, note: dict[str, Any]) -> None:
        source_key, mode = self._forking[note["key"]]
        source = self.threads[source_key]
        base = (*source.base, *source.own(source.accepted))
        sure = len(base) if source.unwritten is None else source.base_sure + source.flushed
        self.threads[note["key"]] = Told(
            note["key"],
            note["id"],
            base=base,
            base_sure=sure,
            rests_on=source_key if mode == "reference" else None,
            begun=True,
            calls_begun=frozenset() if mode == "reference" else source.calls_begun,
            calls_ended=frozenset() if mode == "reference" else source.calls_ended,
        )

    def _take_offer(self, note: dict[str, Any]) -> None:
        self.threads[note["key"]].offered = note["upto"]

    def _take_accept(self, note: dict[str, Any]) -> None:
        self.threads[note["key"]].accepted = note["upto"]

    def _take_flush(self, note: dict[str, Any]) -> None:
        told = self.threads[note["key"]]
        told.flushed, told.begun = max(told.flushed, note["upto"]), True

    def _take_sync(self, note: dict[str, Any]) -> None:
        self._take_flush(note)
        told = self.threads[note["key"]]
        told.synced = max(told.synced, note["upto"])

    _take_close = _take_sync

    def _take_unwritten(self, note: dict[str, Any]) -> None:
        self.threads[note["key"]].unwritten = note

    def _take_body(self, note: dict[str, Any]) -> None:
        self.threads[note["key"]].calls_begun |= {note["call"]}

    def _take_returned(self, note: dict[str, Any]) -> None:
        self.threads[note["key"]].calls_ended |= {note["call"]}

    def _take_ready(self, note: dict[str, Any]) -> None:
        """Nothing is promised by that."""

    def _take_begin(self, note: dict[str, Any]) -> None:
        operation = note["operation"]
        if operation == "erase":
            self.secret = "erasing"
        elif operation in ("archive", "unarchive"):
            self.threads[note["key"]].archived = None
        elif operation == "delete" and self.threads[note["key"]].deleted is not True:
            self.threads[note["key"]].deleted = None

    def _take_done(self, note: dict[str, Any]) -> None:
        operation = note["operation"]
        if operation == "erase":
            self.secret = "erased"
        elif operation in ("archive", "unarchive"):
            self.threads[note["key"]].archived = operation == "archive"
        elif operation == "delete":
            self.threads[note["key"]].deleted = True

    def _take_spared(self, note: dict[str, Any]) -> None:
        """A prune that might have deleted it did not; perhaps because an earlier one had."""
        told = self.threads[note["key"]]
        told.deleted = told.deleted is True

    def _take_partly(self, note: dict[str, Any]) -> None:
        """The report named what could not be done."""
        self.secret = "partly"

    def _take_listed(self, note: dict[str, Any]) -> None:
        """Each thread that has a record, once, unless something could not be looked at; no deleted one."""
        ids = note["ids"]
        must = set() if note["passed_over"] else self._listing & self._standing()
        may = {t.thread_id for t in self.threads.values() if t.deleted is not True}
        doubled = [each for each in ids if ids.count(each) > 1]
        if must - set(ids) or set(ids) - may or doubled:
            self.listed.append((sorted(must - set(ids)), sorted({*ids} - may) + doubled))

    def _take_listing(self, note: dict[str, Any]) -> None:
        self._listing = self._standing()

    def _standing(self) -> set[str]:
        return {t.thread_id for t in self.threads.values() if t.begun and t.deleted is False}

    def _take_left(self, note: dict[str, Any]) -> None:
        """The threads have told by themselves."""

    def _take_error(self, note: dict[str, Any]) -> None:
        self.errors.append(note)
        self.refused = self.refused or note["operation"] == "record"

    def _take_end(self, note: dict[str, Any]) -> None:
        self.ended = True
