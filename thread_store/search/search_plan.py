"""Which threads are searched, newest first, and which files each of them is made of.

Invariant: each thread comes once, whatever twins of its file there are. A history that begins in another file
is searched there too, up to where the thread left it, unless that file is searched for a thread of its own.
Taken out by a revert means not searched.
"""

from __future__ import annotations

from collections.abc import Iterator

from protocol.errors import RolloutError
from protocol.ids import ThreadId
from thread_store.chain.lineage import Lineage
from thread_store.home import Home, StoredRollout
from thread_store.listing.cwd_filter import CwdFilter, spellings
from thread_store.search.rollout_ends import folders_of, is_older_than
from thread_store.search.rollout_search import SearchedFile, skipped_file
from thread_store.search.search_hit import SearchReport, SkippedPlace
from thread_store.search.search_query import SearchQuery

__all__ = ["SearchPlan"]


class SearchPlan:
    """Made by looking at the names in a home. What is left out is counted in `report`. `all_threads` are
    those that there are.

    Raises:
        RolloutUnreadable: the home is there and can't be listed.
    """

    def __init__(self, home: Home, query: SearchQuery, report: SearchReport) -> None:
        self._home = home
        self._query = query
        self._folder = None if query.cwd is None else CwdFilter(spellings(query.cwd), under=True)
        self._chosen: dict[ThreadId, StoredRollout] = {}
        self.all_threads = home.current_rollouts()
        for thread_id, found in self.all_threads.items():
            if query.threads and thread_id not in query.threads:
                continue
            if found.archived and not (query.archived or query.threads):
                report.archived_left_out += 1
            elif found.name.compressed and not (query.compressed or query.threads):
                report.compressed_left_out += 1
            else:
                self._chosen[thread_id] = found
        for error in home.passed_over:
            place = SkippedPlace(
                thread_id=None, path=str(error.path), reason=error.code, message=error.message
            )
            report.skipped.append(place)

    def threads(self) -> Iterator[StoredRollout]:
        """The threads that may be searched, the newest first."""
        return iter(self._chosen.values())

    def is_too_old(self, found: StoredRollout) -> bool:
        """Whether nothing was recorded in a thread since the time that was given.

        Raises:
            RolloutError: it can't be looked into.
        """
        since = self._query.since
        return since is not None and not found.name.compressed and is_older_than(str(found.path), since)

    def is_elsewhere(self, found: StoredRollout) -> bool:
        """Whether a thread works in another folder than the one that was given.

        Raises:
            RolloutError: it can't be looked into.
        """
        return self._folder is not None and not any(map(self._folder.matches, folders_of(str(found.path))))

    def older_files(self, found: StoredRollout) -> Iterator[SearchedFile | SkippedPlace]:
        """The files that the history of a thread begins in, the newest first, and what is wrong with them."""
        thread_id = found.name.thread_id
        own = SearchedFile(thread_id, str(found.path), found.archived)
        try:
            with Lineage.resolve(found.path, self._home) as lineage:
                older, problem = lineage.segments[:-1], lineage.problem
        except RolloutError as error:
            yield skipped_file(own, error)
            return
        for segment in reversed(older):
            owner = self._chosen.get(ThreadId(segment.thread_id or ""))
            if owner is None or str(owner.path) != segment.path:
                yield SearchedFile(thread_id, segment.path, found.archived, segment.end)
        if problem is not None:
            yield SkippedPlace(
                thread_id=thread_id,
                path=problem.path or own.path,
                reason=f"base_{problem.code}",
                message=problem.message,
            )
