"""Which threads a query takes: first by what their files are called, then by what they are.

Invariant: nothing is left out but what the query says. A folder that a thread states is compared as text;
only the one that is asked for is ever looked at, and only if nobody has it by that name.
"""

from __future__ import annotations

import os

from protocol.timestamps import format_timestamp, milliseconds_of
from thread_store.listing.cwd_filter import CwdFilter
from thread_store.listing.thread_entry import ThreadEntry
from thread_store.listing.thread_files import FileRef
from thread_store.listing.thread_names import ThreadNames
from thread_store.listing.thread_query import ThreadQuery
from thread_store.listing.writers_seen import WritersSeen

__all__ = ["ThreadFilter"]


class ThreadFilter:
    """Which threads a query takes. `resolved`: a folder that is asked for is found by where it leads, too."""

    def __init__(
        self, query: ThreadQuery, names: ThreadNames, writers: WritersSeen, *, resolved: bool
    ) -> None:
        self._query = query
        self._names = names
        self._writers = writers
        self._cwd = None if query.cwd is None else CwdFilter(_names_of(query.cwd, resolved=resolved))
        self._under = (
            None if query.under is None else CwdFilter(_names_of(query.under, resolved=resolved), under=True)
        )
        self._title = None if query.title is None else query.title.casefold()
        self._named = None if query.named is None else query.named.casefold()
        self._times = _Times(query)

    def takes_files(self, current: FileRef, created_key: str | None) -> bool:
        """Whether it may be taken, by what its files are called."""
        query = self._query
        if query.archived is not None and current.is_archived != query.archived:
            return False
        if created_key is not None and not self._times.may_be_created(created_key):
            return False
        if query.live and self._writers.of(current.thread_id) is None:
            return False
        return query.label is None or query.label in self._names.labels(current.thread_id)

    def takes(self, entry: ThreadEntry) -> bool:
        """Whether it is taken."""
        query = self._query
        return (
            _same(query.source, entry.source)
            and _same(query.provider, entry.provider)
            and _is(query.live, entry.writer is not None)
            and _is(query.broken, entry.problem is not None or bool(entry.notes))
            and _is(query.subagents, entry.parent_id is not None or entry.source == "subagent")
            and (self._cwd is None or self._cwd.matches(entry.cwd))
            and (self._under is None or self._under.matches(entry.cwd))
            and (self._title is None or self._title in (entry.title or "").casefold())
            and (self._named is None or self._is_named(entry))
            and self._times.take(entry)
        )

    def _is_named(self, entry: ThreadEntry) -> bool:
        from fnmatch import fnmatchcase

        texts = (entry.name or "", entry.title or "")
        return any(fnmatchcase(each.casefold(), self._named or "") for each in texts)


def _same(wanted: str | None, found: str | None) -> bool:
    return wanted is None or wanted == found


def _is(wanted: bool | None, found: bool) -> bool:
    return wanted is None or wanted == found


def _names_of(folder: str, *, resolved: bool) -> list[str]:
    """A folder as it was given, and where it leads, if that was asked for: it is the caller's own."""
    if not os.path.isabs(folder) and not folder.startswith("\\") and folder[1:2] != ":":
        folder = os.path.abspath(folder)
    return [folder, os.path.realpath(folder)] if resolved else [folder]


_DAY_MS = 86_400_000


class _Times:
    def __init__(self, query: ThreadQuery) -> None:
        self._created = milliseconds_of(query.created_since), milliseconds_of(query.created_until)
        self._updated = milliseconds_of(query.updated_since), milliseconds_of(query.updated_until)
        since, until = self._created
        # Names tell local time, of whichever place: a day and more on both sides is left to the records.
        self._earliest = "" if since is None else _key_of(since - 2 * _DAY_MS)
        self._latest = "" if until is None else _key_of(until + 2 * _DAY_MS)

    def may_be_created(self, key: str) -> bool:
        return key >= self._earliest and (not self._latest or key <= self._latest)

    def take(self, entry: ThreadEntry) -> bool:
        return self._lies_within(self._created, entry.created) and self._lies_within(
            self._updated, entry.updated
        )

    def _lies_within(self, span: tuple[int | None, int | None], stamp: str | None) -> bool:
        since, until = span
        if since is None and until is None:
            return True
        at = milliseconds_of(stamp)
        return at is not None and (since is None or at >= since) and (until is None or at < until)


def _key_of(at_ms: int) -> str:
    return format_timestamp(max(0, at_ms))[:19].replace(":", "-")
