"""One rollout file searched: its hits in the order of the file, and what could not be searched.

Invariant: everything is found that a reading of every line would find; only candidate lines are decoded. What
is damaged is told where it may have hidden a hit, and ends nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import stringzilla as sz

from protocol.errors import RolloutError
from protocol.line import RolloutLine
from protocol.timestamps import parse_timestamp
from rollout.lines import BOM, Break, judge_line
from rollout.reader import read_rollout
from rollout.record import LineWarning, RolloutRecord
from rollout.stream import DOCUMENT_HEAD_BYTES, begins_document
from rollout.thread_lock import find_writer
from thread_store.search.call_names import CallNames
from thread_store.search.facts_in_sight import FactsInSight, Sighting
from thread_store.search.line_blocks import LineBlock, LineBlocks, LongGap
from thread_store.search.literal_matcher import LiteralMatcher
from thread_store.search.passages import SearchedText, TextTooCostly, passages
from thread_store.search.raw_pattern import raw_pattern
from thread_store.search.rollout_ends import changed_at
from thread_store.search.said_texts import SaidText, said_texts
from thread_store.search.search_hit import Passage, SearchHit, SkippedPlace
from thread_store.search.search_query import SearchQuery
from thread_store.transcript.fact import Form

__all__ = ["PASSAGES_MAX", "Found", "RolloutSearch", "SearchedFile", "skipped_file"]

PASSAGES_MAX = 10_000
"""Of one text, fewer where each brings its context; that there are more is told as a skipped place."""

_PASSAGES_MIN = 500

Found = SearchHit | SkippedPlace


class SearchedFile(NamedTuple):
    """A file, up to an offset (None: its end), and the thread that it is searched for."""

    thread_id: str
    path: str
    archived: bool = False
    end: int | None = None


class _Searched(NamedTuple):
    """A candidate record and where it stands."""

    record: RolloutRecord
    block: LineBlock | None
    begin: int
    is_first: bool


class RolloutSearch:
    """Runs one query over files, one after the other. Not to be shared between threads."""

    def __init__(self, query: SearchQuery) -> None:
        self._query = query
        self._raw = raw_pattern(query)
        self._blocks = LineBlocks()
        self._prepare = _matcher(query)
        self.searched_bytes = 0
        self.has_base = False
        """Whether the meta of the last file says that its history begins in another one."""

    def search(self, file: SearchedFile) -> Iterator[Found | None]:
        """The hits of a file; None after each block, so that its caller may stop.

        Nothing comes of a compressed file that was not asked for.

        Raises:
            ThreadNotFound, NotARollout, RolloutUnreadable: it can't be opened, or read on.
        """
        facts: FactsInSight[SearchHit] = FactsInSight()
        names = CallNames(file.path)
        for candidate in self._candidates(file):
            if not isinstance(candidate, _Searched):
                if isinstance(candidate, int):
                    yield from facts.pass_by(candidate)
                    yield None
                else:
                    yield candidate
                continue
            yield from self._of_record(file, candidate, names, facts)
        yield from facts.finish()

    # Candidates

    def _candidates(self, file: SearchedFile) -> Iterator[_Searched | SkippedPlace | int]:
        """Records that may hold a match, what is damaged, and after each block how far the scan has come."""
        compressed = self._query.compressed or bool(self._query.threads)
        first, self.has_base = True, False
        for block in self._blocks.read(file.path, end=file.end, compressed=compressed):
            if isinstance(block, LongGap):
                message = f"a line of {block.size:,} bytes is too long to be searched"
                yield _unsearched(file, "too_long", message, offset=block.offset)
            elif isinstance(block, Break):
                yield _unsearched(file, block.reason, block.message)
            else:
                if first and begins_document(bytes(block.data[:DOCUMENT_HEAD_BYTES])):
                    yield from self._document(file)
                    return
                if first:
                    self.has_base = _names_base(block.data)
                yield from self._in_block(file, block, first)
                self.searched_bytes += len(block.data)
                yield block.offset + len(block.data)
            first = False

    def _document(self, file: SearchedFile) -> Iterator[_Searched | SkippedPlace]:
        """A rollout in one JSON document, or what only looks like one: read as everybody reads it."""
        for index, record in enumerate(read_rollout(file.path, end_offset=file.end)):
            self.searched_bytes += record.size
            if record.warning is not None:
                yield _skipped(file, record.warning)
            else:
                yield _Searched(record, None, 0, index == 0)

    def _in_block(
        self, file: SearchedFile, block: LineBlock, first: bool
    ) -> Iterator[_Searched | SkippedPlace]:
        size = len(block.data)
        for begin, end in self._raw.lines(block.data):
            data = bytes(block.data[begin:end])
            offset, is_first = block.offset + begin, first and begin == 0
            if is_first and data.startswith(BOM):
                data, offset = data[len(BOM) :], offset + len(BOM)
            record = judge_line(data, None, offset, terminated=block.terminated or end < size)
            if record is None:
                continue
            if record.warning is None:
                yield _Searched(record, block, begin, is_first)
            elif record.warning.reason != "torn_tail" or find_writer(file.path) is None:
                yield _skipped(file, record.warning)  # else it is still being written

    # Hits

    def _of_record(
        self, file: SearchedFile, searched: _Searched, names: CallNames, facts: FactsInSight[SearchHit]
    ) -> Iterator[Found]:
        line = searched.record.line
        if line is None or (line.type == "session_meta" and not searched.is_first):
            return
        if not self._is_in_time(line, file):
            return
        for said in said_texts(line, instructions=self._query.looks_at_instructions):
            if self._query.roles and said.role not in self._query.roles:
                continue
            if self._query.tool is not None and said.role != "tool":
                continue
            found, problem = self._passages(said.text)
            if problem is not None:
                yield _unsearched(file, *problem, offset=searched.record.offset)
            if found and self._is_of_tool(tool := self._tool_of(said, searched, names), said):
                hits = [_hit(file, searched.record, said, tool, passage) for passage in found]
                lines = [passage.text for passage in found]
                yield from facts.take(Sighting(said, searched.record.offset, hits, lines))

    def _passages(self, text: str) -> tuple[list[Passage], tuple[str, str] | None]:
        """What is found in a text, and why it is not searched to its end."""
        found: list[Passage] = []
        context = self._query.context_lines
        count_max = max(_PASSAGES_MIN, PASSAGES_MAX // (1 + 2 * context))
        try:
            for passage in passages(self._prepare(text), context_lines=context):
                if len(found) >= count_max:
                    return found, ("too_many", f"there are more than {count_max:,} hits in one text")
                found.append(passage)
        except TextTooCostly:
            return found, ("too_costly", f"the pattern takes too long on a text of {len(text):,} characters")
        return found, None

    def _is_in_time(self, line: RolloutLine, file: SearchedFile) -> bool:
        since, until = self._query.since, self._query.until
        if since is None and until is None:
            return True
        moment = parse_timestamp(line.timestamp) or changed_at(file.path)
        if moment is None:
            return True
        return (since is None or moment >= since) and (until is None or moment < until)

    @staticmethod
    def _tool_of(said: SaidText, searched: _Searched, names: CallNames) -> str | None:
        if said.role != "tool" or said.call_id is None or searched.block is None:
            return said.tool
        if said.tool is not None and said.form is Form.RESPONSE:
            return said.tool
        return names.find(said.call_id, searched.block, searched.begin) or said.tool

    def _is_of_tool(self, tool: str | None, said: SaidText) -> bool:
        wanted = self._query.tool
        if wanted is None:
            return True
        names = [name for name in (tool, said.tool) if name is not None]
        return any(wanted in (name, name.rpartition(".")[2]) for name in names)


def _names_base(block: memoryview) -> bool:
    return bool(sz.find(block, b'"history_base"', 0, max(0, sz.find(block, b"\n"))) >= 0)


def _matcher(query: SearchQuery) -> Callable[[str], SearchedText]:
    if query.regex:
        from thread_store.search.pattern_matcher import PatternMatcher

        return PatternMatcher(query.text, case_sensitive=query.case_sensitive, word=query.word).prepare
    return LiteralMatcher(query.text, case_sensitive=query.case_sensitive, word=query.word).prepare


def _hit(
    file: SearchedFile, record: RolloutRecord, said: SaidText, tool: str | None, passage: Passage
) -> SearchHit:
    line = record.line
    assert line is not None
    return SearchHit(
        thread_id=file.thread_id,
        path=file.path,
        archived=file.archived,
        ordinal=line.ordinal,
        offset=record.offset,
        timestamp=line.timestamp,
        role=said.role,
        tool=tool,
        field=said.field,
        passage=passage,
    )


def _unsearched(file: SearchedFile, reason: str, message: str, *, offset: int | None = None) -> SkippedPlace:
    return SkippedPlace(
        thread_id=file.thread_id, path=file.path, reason=reason, message=message, offset=offset
    )


def _skipped(file: SearchedFile, warning: LineWarning) -> SkippedPlace:
    return _unsearched(file, warning.reason, warning.message, offset=warning.offset_bytes)


def skipped_file(file: SearchedFile, error: RolloutError) -> SkippedPlace:
    """A file that can't be read, or not to its end."""
    return _unsearched(file, error.code, error.message)
