"""Entries of a session memory: short texts, each with the range of records that it stands for.

Invariant: a list of them is bounded, and the newest stay. Equal neighbours are one entry with a
count.
"""

from __future__ import annotations

from msgspec import Struct

from protocol.plain_values import squeezed

__all__ = ["ENTRY_CHARS_MAX", "Entry", "Place", "keep_all", "keep_newest", "make_entry"]

ENTRY_CHARS_MAX = 300


class Place(Struct, frozen=True, omit_defaults=True):
    """Where a record stands. Own records have no ordinal: theirs is the greatest before them."""

    ordinal: int | None = None
    offset: int | None = None


class Entry(Struct, omit_defaults=True, kw_only=True):
    """One thing to remember: records `first_ordinal` to `last_ordinal` say it; the first of them stands
    at `offset` (bytes). None: not known."""

    text: str
    first_ordinal: int | None = None
    last_ordinal: int | None = None
    offset: int | None = None
    count: int = 1
    """How often it was met."""
    at: int = 0
    """The how-manieth entry of the memory it is: roll-backs go by it."""
    said: bool = False
    """Whether it was only said: then a roll-back takes it back. What was done stays."""

    @property
    def address(self) -> str:
        """The range of its records, for people: `#3` or `#3–7`, `@120` where there are no ordinals."""
        if self.last_ordinal is None:
            return "" if self.offset is None else f"@{self.offset}"
        if self.first_ordinal in (None, self.last_ordinal):
            return f"#{self.last_ordinal}"
        return f"#{self.first_ordinal}–{self.last_ordinal}"


def make_entry(
    text: str, first: Place, last: Place, *, at: int, said: bool = False, chars_max: int = ENTRY_CHARS_MAX
) -> Entry:
    """An entry for the records from `first` to `last`."""
    return Entry(
        text=squeezed(text, chars_max),
        first_ordinal=first.ordinal,
        last_ordinal=last.ordinal,
        offset=first.offset,
        at=at,
        said=said,
    )


def keep_newest(entries: list[Entry], entry: Entry, entries_max: int) -> None:
    """Add an entry. One that repeats the last is counted there; the oldest of too many goes."""
    if entries and entries[-1].text == entry.text:
        _repeat(entries[-1], entry)
        return
    entries.append(entry)
    if len(entries) > entries_max:
        del entries[0]


def keep_all(entries: list[Entry], entry: Entry, entries_max: int) -> None:
    """Add an entry to a list that nothing is cut from: what repeats any of them is counted there, and
    so is, in the last, what is more than `entries_max` different ones."""
    for each in entries:
        if each.text == entry.text:
            _repeat(each, entry)
            return
    if len(entries) < entries_max:
        entries.append(entry)
        return
    last = entries[-1]
    if not last.text.startswith(_FURTHER):
        last.text = f"{_FURTHER}: {last.text}"
    _repeat(last, entry)


_FURTHER = "this and further warnings"


def _repeat(entry: Entry, again: Entry) -> None:
    entry.count += 1
    entry.last_ordinal = again.last_ordinal
