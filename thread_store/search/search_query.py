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

from msgspec import Struct

from thread_store.errors import SearchInvalid

__all__ = ["PATTERN_CHARS_MAX", "ROLES", "SearchQuery", "make_query"]

PATTERN_CHARS_MAX = 10_000
"""The longest text or pattern that is searched for."""

CONTEXT_LINES_MAX = 1_000

ROLES = ("user", "assistant", "thinking", "tool", "context", "event")
"""Whose text: `context` is what programs put before the model, `event` what a record tells otherwise."""


class SearchQuery(Struct, frozen=True, kw_only=True):
    """Made by `make_query`. `threads` are ids; `tool` is a tool's name; `cwd` a folder: what is below it
    counts too. `since` and `until` are aware times of records, both ends included."""

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

    @property
    def looks_at_instructions(self) -> bool:
        """Whether the instructions in meta lines are searched. They are the same in most threads."""
        return "context" in self.roles


def make_query(
    text: str,
    *,
    regex: bool = False,
    word: bool = False,
    case_sensitive: bool = False,
    roles: Iterable[str] = (),
    tool: str | None = None,
    threads: Iterable[str] = (),
    cwd: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    archived: bool = False,
    compressed: bool = False,
    context_lines: int = 0,
) -> SearchQuery:
    """A query that can be run. Times without a zone are UTC.

    Raises:
        SearchInvalid: the text is empty or too long, the pattern is none, or a role is unknown.
    """
    if not text:
        raise SearchInvalid(text, "there is nothing to look for")
    if len(text) > PATTERN_CHARS_MAX:
        raise SearchInvalid(text, f"it is longer than {PATTERN_CHARS_MAX:,} characters")
    if regex:
        from thread_store.search.pattern_matcher import compile_pattern

        compile_pattern(text, case_sensitive=case_sensitive)
    wanted = frozenset([roles] if isinstance(roles, str) else roles)
    if unknown := wanted - set(ROLES):
        raise SearchInvalid(text, f"there is no role {min(unknown)!r}; roles are {', '.join(ROLES)}")
    if not 0 <= context_lines <= CONTEXT_LINES_MAX:
        raise SearchInvalid(text, f"context is 0 to {CONTEXT_LINES_MAX:,} lines")
    return SearchQuery(
        text=text,
        regex=regex,
        word=word,
        case_sensitive=case_sensitive,
        roles=wanted,
        tool=tool,
        threads=frozenset([threads] if isinstance(threads, str) else threads),
        cwd=cwd,
        since=_aware(since),
        until=_aware(until),
        archived=archived,
        compressed=compressed,
        context_lines=context_lines,
    )


def _aware(moment: datetime | None) -> datetime | None:
    return moment.replace(tzinfo=UTC) if moment is not None and moment.tzinfo is None else moment
