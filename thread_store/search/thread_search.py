"""A search of a home: two threads look through files, one caller takes what they find.

Invariant: the hits come thread by thread, the newest thread first, each thread's in the order of its file,
each as soon as it is found and all before it are given. No more than `_AHEAD_MAX` finds of a thread wait.
What can't be read is noted in the report and ends nothing. Who stops taking and closes it ends the work.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Self

from protocol.errors import RolloutError
from thread_store.errors import StoreClosed
from thread_store.home import Home, StoredRollout
from thread_store.search.rollout_search import RolloutSearch, SearchedFile, skipped_file
from thread_store.search.search_hit import SearchHit, SearchReport, SkippedPlace
from thread_store.search.search_plan import SearchPlan
from thread_store.search.search_query import SearchQuery

__all__ = ["WORKERS", "ThreadSearch"]

WORKERS = 2
_AHEAD_MAX = 512


class _OneThread:
    """What was found in one thread and not given yet."""

    __slots__ = ("finds", "found", "hits", "over")

    def __init__(self) -> None:
        self.finds: deque[SearchHit] = deque()
        self.found = 0
        self.hits = 0
        self.over = False


class ThreadSearch:
    """Iterate over it to get the hits; it closes itself at the end. May block. Use it as a context manager if
    you may stop before.

    `report` says how far it got. Raises what `SearchPlan` raises, at the first step.
    """

    def __init__(
        self,
        home: Home,
        query: SearchQuery,
        *,
        report: SearchReport | None = None,
        on_close: Callable[[], None] | None = None,
    ) -> None:
        """`on_close` is called once, when nothing is taken any more."""
        self.query = query
        self.report = SearchReport(skipped=[]) if report is None else report
        self._on_close = on_close
        self._home = home
        self._condition = threading.Condition()
        self._queue: deque[_OneThread] = deque()
        self._waiting: Iterator[StoredRollout] | None = None
        self._plan: SearchPlan | None = None
        self._workers = 0
        self._blocked = 0
        """Workers that are too far ahead."""
        self._closed = False
        self._failure: BaseException | None = None
        self._pid = os.getpid()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> SearchHit:
        hit = self._take(wait=True)
        if hit is None:
            self.close()
            raise StopIteration
        return hit

    @property
    def thread_ids(self) -> Iterable[str]:
        """The ids of all threads of the home, searched or not; none before the first step."""
        return () if self._plan is None else self._plan.all_threads

    def take(self, count: int) -> list[SearchHit]:
        """Up to `count` hits: waits for one, and takes what is there. Empty: it is over."""
        hits: list[SearchHit] = []
        while len(hits) < count and (hit := self._take(wait=not hits)) is not None:
            hits.append(hit)
        return hits

    def close(self) -> None:
        """End the search; what was found and not taken is dropped. May be called again, from any thread."""
        self.stop()
        with self._condition:
            on_close, self._on_close = self._on_close, None
        if on_close is not None:
            on_close()

    def stop(self) -> None:
        """Let it come to its end: whoever waits for a hit gets none. Never blocks; `close` is still due."""
        with self._condition:
            self._closed = True
            self._queue.clear()
            self._condition.notify_all()

    # The caller's side

    def _take(self, *, wait: bool) -> SearchHit | None:
        if os.getpid() != self._pid:
            raise StoreClosed(self._home.path, "is searched by the parent of this process")
        with self._condition:
            self._start()
            while not self._closed:
                if self._failure is not None:
                    self._closed = True
                    self._condition.notify_all()
                    raise self._failure
                if (hit := self._first()) is not None:
                    return hit
                if not self._queue and not self._workers:
                    self.report.finished = True
                    self._closed = True
                elif not wait:
                    return None
                else:
                    self._condition.wait()
        return None

    def _first(self) -> SearchHit | None:
        while self._queue:
            head = self._queue[0]
            if head.finds:
                if len(head.finds) == _AHEAD_MAX:
                    self._condition.notify_all()
                head.hits += 1
                self.report.hits += 1
                self.report.threads += head.hits == 1
                return head.finds.popleft()
            if not head.over:
                return None
            self._queue.popleft()
            self._condition.notify_all()
        return None

    def _start(self) -> None:
        if self._plan is not None or self._closed:
            return
        self._plan = SearchPlan(self._home, self.query, self.report)
        self._waiting = self._plan.threads()
        for number in range(WORKERS):
            worker = threading.Thread(target=self._work, name=f"rollout-search-{number}", daemon=True)
            self._workers += 1
            try:
                worker.start()
            except RuntimeError:
                self._workers -= 1
                if not self._workers:
                    raise  # not even one
                return

    # The workers' side

    def _work(self) -> None:
        try:
            search = RolloutSearch(self.query)
            while (job := self._next_job()) is not None:
                self._search_thread(search, *job)
        except BaseException as error:  # noqa: BLE001  # a bug: whoever takes the hits is told
            with self._condition:
                self._failure = error
        finally:
            with self._condition:
                self._workers -= 1
                self._condition.notify_all()

    def _next_job(self) -> tuple[StoredRollout, _OneThread] | None:
        with self._condition:
            found = None if self._closed or self._waiting is None else next(self._waiting, None)
            if found is None:
                return None
            one = _OneThread()
            self._queue.append(one)
            return found, one

    def _search_thread(self, search: RolloutSearch, found: StoredRollout, one: _OneThread) -> None:
        before = search.searched_bytes
        try:
            searched = self._search_files(search, found, one)
        except RolloutError as error:
            self._skip(skipped_file(SearchedFile(found.name.thread_id, str(found.path)), error))
            searched = False
        with self._condition:
            self.report.searched_threads += searched
            self.report.searched_bytes += search.searched_bytes - before
            one.over = True
            self._drop_finished()

    def _search_files(self, search: RolloutSearch, found: StoredRollout, one: _OneThread) -> bool:
        plan = self._plan
        assert plan is not None
        if plan.is_elsewhere(found):
            return False
        if plan.is_too_old(found):
            with self._condition:
                self.report.older_left_out += 1
            return False
        own = SearchedFile(found.name.thread_id, str(found.path), found.archived)
        self._search_file(search, own, one)
        for older in plan.older_files(found) if search.has_base else ():
            if isinstance(older, SkippedPlace):
                self._skip(older)
                continue
            try:
                self._search_file(search, older, one)
            except RolloutError as error:
                self._skip(skipped_file(older, error))
        return True

    def _search_file(self, search: RolloutSearch, file: SearchedFile, one: _OneThread) -> None:
        for each in search.search(file):
            if self._closed or self._has_enough(one):
                return
            if isinstance(each, SearchHit):
                self._give(one, each)
            elif each is not None:
                self._skip(each)

    def _drop_finished(self) -> None:
        """Take away what is over and given; the caller is woken only if there is something for it."""
        while self._queue and self._queue[0].over and not self._queue[0].finds:
            self._queue.popleft()
        if self._queue and (self._queue[0].finds or self._blocked):
            self._condition.notify_all()

    def _has_enough(self, one: _OneThread) -> bool:
        wanted = self.query.hits_per_thread
        return wanted is not None and one.found >= wanted

    def _give(self, one: _OneThread, hit: SearchHit) -> None:
        with self._condition:
            while len(one.finds) >= _AHEAD_MAX and not self._closed:
                self._blocked += 1
                self._condition.wait()
                self._blocked -= 1
            one.finds.append(hit)
            one.found += 1
            if self._queue and self._queue[0] is one:
                self._condition.notify_all()

    def _skip(self, place: SkippedPlace) -> None:
        with self._condition:
            self.report.skipped.append(place)
