"""A page of the threads of a home: `list_threads`.

Invariant: each thread stands in a list once, at a place that its log alone decides, with the index or
without it. The pages of one list miss none and give none twice, whatever is recorded, made, archived or
reverted between them: the order of creation never changes, and every other order is that of the moment at
which the first page was asked for, which the logs still tell (`earlier_state`).

Theory of operation. By creation, names suffice to find a page; only its own files are looked into. By time
of change, all files are asked for their times. A thread counts as updated at the time in its last record,
but never later than its file was written: so the files are looked into from the last written on, until
nothing that is left can come before what was found. `size` does the same with sizes, `items` looks at all.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from protocol.timestamps import now_ms
from thread_store.home import Home
from thread_store.listing.cursors import Cursor
from thread_store.listing.home_files import HomeFiles
from thread_store.listing.known_files import KnownFiles
from thread_store.listing.list_index import ListIndex
from thread_store.listing.rollout_facts import GONE, RolloutFacts
from thread_store.listing.thread_entry import ThreadEntry, ThreadPage, make_entry
from thread_store.listing.thread_files import StatFields, StatFile, ThreadFiles
from thread_store.listing.thread_filter import ThreadFilter
from thread_store.listing.thread_names import ThreadNames
from thread_store.listing.thread_query import ThreadQuery
from thread_store.listing.writers_seen import WritersSeen

__all__ = ["list_thread_ids", "list_threads"]

_AT_ONCE = 64
_AT_ONCE_MAX = 2048
_EARLIEST_MS = 1_577_836_800_000
_EARLIEST_NS = _EARLIEST_MS * 1_000_000
"""The year 2020: a file that claims to be older than that was given a wrong time by whoever copied it."""


def list_threads(home: Home, query: ThreadQuery | None = None, *, use_index: bool = True) -> ThreadPage:
    """One page of the threads of a home. Blocks; takes no lock away from anybody and changes no rollout.

    Args:
        use_index: False: everything is read, and nothing is kept.

    Raises:
        InvalidCursor: `query.cursor` is none of such a list.
        RolloutUnreadable: the home can't be listed.
    """
    query = query or ThreadQuery()
    home.require_listable()
    cursor = None
    if query.cursor is not None:
        cursor = Cursor.decode(query.cursor, sort=query.sort, order=query.order)
    if not use_index:
        return _ThreadList(home, query, cursor, None).page()
    with ListIndex(os.fspath(home.path)) as index:
        page = _ThreadList(home, query, cursor, index).page()
    return page if index.note is None else page._replace(notes=(index.note, *page.notes))


def list_thread_ids(home: Home) -> list[str]:
    """The ids of all threads, archived ones too, in no order. Only names are looked at.

    Raises:
        RolloutUnreadable: the home can't be listed.
    """
    home.require_listable()
    with ListIndex(os.fspath(home.path)) as index:
        return list({each.thread_id for each in HomeFiles(os.fspath(home.path), index).all_files()})


class _Found(NamedTuple):
    """An entry and its place in the order."""

    place: tuple[Any, str]
    entry: ThreadEntry


class _ThreadList:
    def __init__(
        self, home: Home, query: ThreadQuery, cursor: Cursor | None, index: ListIndex | None
    ) -> None:
        self._query = query
        self._cursor = cursor
        # What is stamped within this very millisecond may be written later still.
        self._as_of_ms = now_ms() - 1 if cursor is None else cursor.as_of_ms
        self._files = HomeFiles(os.fspath(home.path), index)
        self._known = KnownFiles(self._files, index)
        self._names = ThreadNames(home)
        self._writers = WritersSeen(home)
        self._resolved = cursor is not None and cursor.resolved_cwd
        self._threads: dict[str, ThreadFiles] = {}

    def page(self) -> ThreadPage:
        """The page, and where the next one begins."""
        found = self._take()
        by_name = self._query.cwd or self._query.under
        if not found and by_name and self._cursor is None and not self._resolved:
            self._resolved = True
            found = self._take()
        shown = found[: self._query.limit]
        cursor = self._cursor_behind(shown[-1]) if len(found) > len(shown) else None
        notes = (*self._names.notes, *self._writers.notes)
        return ThreadPage(tuple(each.entry for each in shown), cursor, notes, tuple(self._files.passed_over))

    def _cursor_behind(self, last: _Found) -> str:
        value, thread_id = last.place
        return Cursor(
            sort=self._query.sort,
            order=self._query.order,
            as_of_ms=self._as_of_ms,
            value=value,
            thread_id=thread_id,
            resolved_cwd=self._resolved,
        ).encode()

    def _take(self) -> list[_Found]:
        self._files.passed_over.clear()
        self._filter = ThreadFilter(self._query, self._names, self._writers, resolved=self._resolved)
        return self._by_creation() if self._query.sort == "created" else self._by_state()

    # By creation

    def _by_creation(self) -> list[_Found]:
        before = None if self._cursor is None else str(self._cursor.value)
        oldest_first = self._query.order == "oldest"
        threads = self._files.by_creation(before=before, oldest_first=oldest_first)
        wanted = (each for each in threads if self._filter.takes_files(each.current, each.created_key))
        found: list[_Found] = []
        while len(found) <= self._query.limit and (some := list(islice(wanted, _AT_ONCE))):
            stats = {each.current: self._known.stat(each.current) for each in some}
            self._known.load(each for each in stats.values() if each is not None)
            for thread in some:
                status = stats[thread.current]
                entry = None if status is None else self._standing_entry(status, thread)
                if entry is not None:
                    found.append(_Found((thread.created_key, entry.thread_id), entry))
        return found

    # By what changes

    def _by_state(self) -> list[_Found]:
        files, self._threads = self._files.stat_all()
        newest_first = self._query.order == "newest"
        behind = self._place_of_cursor()
        found: list[_Found] = []
        for some, bound in _in_chunks(files, self._query.sort, newest_first=newest_first):
            wanted = [each for each in some if self._filter.takes_files(each.ref, None)]
            self._known.load(wanted)
            last = found[-1].place if len(found) > self._query.limit else None
            found += [
                each
                for status in wanted
                if (each := self._found(status, behind, last, newest_first=newest_first)) is not None
            ]
            found.sort(reverse=newest_first)
            del found[self._query.limit + 1 :]
            self._known.forget()
            if bound is not None and len(found) > self._query.limit and found[-1].place > (bound + 1, ""):
                break
        return found

    def _place_of_cursor(self) -> tuple[Any, str] | None:
        return None if self._cursor is None else (self._cursor.value, self._cursor.thread_id)

    def _found(
        self,
        status: StatFile,
        behind: tuple[Any, str] | None,
        before: tuple[Any, str] | None,
        *,
        newest_first: bool,
    ) -> _Found | None:
        """A thread, if its place lies between the two and the filters take it."""
        thread_id = status.thread_id
        place = (self._value(status), thread_id)
        if behind is not None and (place >= behind if newest_first else place <= behind):
            return None
        if before is not None and (place < before if newest_first else place > before):
            return None
        thread = self._threads.get(thread_id) or ThreadFiles.single(status.ref)
        entry = self._standing_entry(status, thread)
        return None if entry is None else _Found(place, entry)

    def _value(self, status: StatFile) -> int:
        """Its value in the order, as of the moment of the first page."""
        facts = self._known.facts(status)
        written_ms = status.mtime_ns // 1_000_000
        values = {"updated": _updated_ms(facts, status), "size": status.size, "items": facts.items or 0}
        # Both are asked: the clock of file times may be some milliseconds behind.
        if max(written_ms, facts.updated_ms or 0) <= self._as_of_ms:
            return values[self._query.sort]
        earlier = self._known.earlier(status, self._as_of_ms)
        if earlier is not None:
            then = {"updated": earlier.updated_ms, "size": earlier.size_bytes, "items": earlier.items}
            return then[self._query.sort]
        return values[self._query.sort]  # it is new, or tells no times, or none that are past

    # Entries

    def _standing_entry(self, status: StatFile, thread: ThreadFiles) -> ThreadEntry | None:
        """The entry of a thread, if the filters take it, wherever its file was moved to meanwhile."""
        standing = self._known.standing(status)
        if standing is None:
            return None
        status = standing
        if status.ref != thread.current and not self._filter.takes_files(status.ref, thread.created_key):
            return None
        return self._entry(status, thread)

    def _entry(self, status: StatFile, thread: ThreadFiles) -> ThreadEntry | None:
        """The entry of a thread, if the filters take it."""
        facts = self._known.facts(status)
        if facts.problem_code == GONE:
            return None
        ref, thread_id = status.ref, status.thread_id
        writer = self._writers.of(thread_id)
        entry = make_entry(
            facts,
            thread_id=thread_id,
            path=os.path.join(self._files.path, *status.folder.split("/"), status.name),
            name=self._names.name(thread_id),
            labels=self._names.labels(thread_id),
            archived=ref.is_archived,
            compressed=ref.is_compressed,
            size_bytes=status.size,
            created=self._known.created(thread, status),
            updated_ms=_updated_ms(facts, status),
            preview=self._known.prompt(status),
            writer=writer,
            is_live=writer is not None,
        )
        return entry if self._filter.takes(entry) else None


def _updated_ms(facts: RolloutFacts, status: StatFile) -> int:
    written_ms = status.mtime_ns // 1_000_000
    if facts.updated_ms is None:
        return written_ms
    return min(facts.updated_ms, written_ms) if written_ms >= _EARLIEST_MS else facts.updated_ms


def _in_chunks(
    files: list[StatFields], sort: str, *, newest_first: bool
) -> Iterator[tuple[Sequence[StatFile], int | None]]:
    """The files in chunks; behind each one, what no later file's value is greater than, if that is known.

    A file of a time before 2020 says nothing about its records: such files come first.
    """
    if sort == "size" and newest_first:
        yield from _descending(files, _size_of, 1)
    elif sort == "updated" and newest_first:
        early = [each for each in files if each[0] < _EARLIEST_NS]
        if early:
            yield [StatFile._make(each) for each in early], None
            files = [each for each in files if each[0] >= _EARLIEST_NS]
        yield from _descending(files, None, 1_000_000)
    else:
        for start in range(0, len(files), _AT_ONCE_MAX):
            yield [StatFile._make(each) for each in files[start : start + _AT_ONCE_MAX]], None


def _size_of(file: StatFields) -> int:
    return file[3]


def _descending(
    files: list[StatFields], key: Callable[[StatFields], int] | None, unit: int
) -> Iterator[tuple[Sequence[StatFile], int | None]]:
    """The greatest first. Most of the time the first chunk is enough: only then all are sorted."""
    from heapq import nlargest

    first = nlargest(_AT_ONCE + 1, files, key=key)
    start, count = 0, _AT_ONCE
    while start < len(files):
        if start == _AT_ONCE:
            first = sorted(files, key=key, reverse=True)
        some, rest = first[start : start + count], first[start + count : start + count + 1]
        value = rest[0][0] if rest and key is None else key(rest[0]) if rest and key else 0
        yield [StatFile._make(each) for each in some], value // unit if rest else None
        start, count = start + count, min(2 * count, _AT_ONCE_MAX)
