"""What is looked for, and in which threads and records.

Invariant: a query that exists can be run: the text isn't empty, the pattern compiles, the roles are known.

Case is folded as Unicode does by default (full case folding, no locale): `ß` equals `ss` and `ẞ`, `ς` and `Σ`
equal `σ`, the Kelvin sign equals `k`, a ligature its letters. `İ` equals `i` with a dot above it, `ı` only
itself. A match that begins or ends inside such a character covers it whole. Patterns (RE2's syntax) fold
single characters only, by simple case folding. Composed and decomposed accents differ.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TypedDict, Unpack

from msgspec import Struct

from protocol.timestamps import parse_timestamp
from thread_store.errors import SearchInvalid

__all__ = ["CONTEXT_LINES_MAX", "PATTERN_CHARS_MAX", "ROLES", "SearchOptions", "SearchQuery", "make_query"]

PATTERN_CHARS_MAX = 10_000
"""The longest text or pattern that is searched for."""

CONTEXT_LINES_MAX = 100

ROLES = ("user", "assistant", "thinking", "tool", "context", "event")
"""Whose text: `context` is what programs put before the model, `event` what a record tells otherwise."""


class SearchOptions(TypedDict, total=False):
    """The keywords of a search. Filters that aren't given take everything, and all of them hold together."""

    regex: bool
    """The text is a regular expression of RE2."""
    word: bool
    """Only where no word goes on at either end; words are letters, digits, marks, `_`, of any script."""
    case_sensitive: bool
    roles: Iterable[str]
    """Some of `ROLES`."""
    tool: str | None
    """Only what this tool was told, and answered."""
    threads: Iterable[str]
    """Their ids; they are searched archived and compressed too."""
    cwd: str | None
    """A folder; what is below it counts too."""
    since: datetime | str | None
    """Of records, RFC 3339 if it is a text; included."""
    until: datetime | str | None
    """Not included."""
    archived: bool
    compressed: bool
    context_lines: int
    """How many lines before and after each hit are given."""
    hits_per_thread: int | None
    """So many of each thread at most."""


class SearchQuery(Struct, frozen=True, kw_only=True):
    """What `SearchOptions` say, settled. Made by `make_query`."""

    text: str
    regex: bool = False
    word: bool = False
    case_sensitive: bool = False
    roles: frozenset[str] = frozenset()
    """Empty: all."""
    tool: str | None = None
    threads: frozenset[str] = frozenset()
    """Empty: all."""
    cwd: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    archived: bool = False
    compressed: bool = False
    context_lines: int = 0
    hits_per_thread: int | None = None

    @property
    def looks_at_instructions(self) -> bool:
        """Whether the instructions in meta lines are searched. They are the same in most threads."""
        return "context" in self.roles


def make_query(text: str, **options: Unpack[SearchOptions]) -> SearchQuery:
    """A query that can be run. Times without a zone are UTC.

    Raises:
        SearchInvalid: the text is empty or too long, the pattern is none, or an option has a value that it
            can't have.
    """
    roles, threads = options.get("roles", ()), options.get("threads", ())
    wanted = frozenset([roles] if isinstance(roles, str) else roles)
    query = SearchQuery(
        text=text,
        regex=options.get("regex", False),
        word=options.get("word", False),
        case_sensitive=options.get("case_sensitive", False),
        roles=wanted,
        tool=options.get("tool"),
        threads=frozenset([threads] if isinstance(threads, str) else threads),
        cwd=options.get("cwd"),
        since=_moment(text, options.get("since")),
        until=_moment(text, options.get("until")),
        archived=options.get("archived", False),
        compressed=options.get("compressed", False),
        context_lines=options.get("context_lines", 0),
        hits_per_thread=options.get("hits_per_thread"),
    )
    _require_valid(query)
    return query


def _require_valid(query: SearchQuery) -> None:
    text = query.text
    if not text:
        raise SearchInvalid(text, "there is nothing to look for")
    if len(text) > PATTERN_CHARS_MAX:
        raise SearchInvalid(text, f"it is longer than {PATTERN_CHARS_MAX:,} characters")
    if unknown := query.roles - set(ROLES):
        raise SearchInvalid(text, f"there is no role {min(unknown)!r}; roles are {', '.join(ROLES)}")
    if not 0 <= query.context_lines <= CONTEXT_LINES_MAX:
        raise SearchInvalid(text, f"context is 0 to {CONTEXT_LINES_MAX:,} lines")
    if query.hits_per_thread is not None and query.hits_per_thread < 1:
        raise SearchInvalid(text, "it takes at least one hit of a thread")
    if query.regex:
        from thread_store.search.pattern_matcher import compile_pattern

        compile_pattern(text, case_sensitive=query.case_sensitive)


def _moment(text: str, given: datetime | str | None) -> datetime | None:
    moment = parse_timestamp(given) if isinstance(given, str) else given
    if given is not None and moment is None:
        raise SearchInvalid(text, f"{given!r} is no RFC 3339 time")
    return moment.replace(tzinfo=UTC) if moment is not None and moment.tzinfo is None else moment
