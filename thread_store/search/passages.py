"""Passages: the lines of a text on which something was found, each once, cut where they are long.

Invariant: the spans are places in the passage's own text. O(text), however often something is found on
a line: what lies beyond the cut of a line isn't looked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from thread_store.search.encoded_data import encoded_run_end
from thread_store.search.search_hit import Passage

__all__ = ["LINE_CHARS_MAX", "SearchedText", "TextTooCostly", "passages"]

LINE_CHARS_MAX = 400
"""A longer line is cut around the first find."""

_LEAD_CHARS = 120
"""Of a line that is cut, so much stands before the first find."""

_SPANS_MAX = 100


class TextTooCostly(Exception):
    """Searching this text would take too long."""


class SearchedText(Protocol):
    """A text under search: of `LiteralMatcher` or `PatternMatcher`. `find` may raise `TextTooCostly`."""

    text: str

    def find(self, start: int) -> tuple[int, int] | None: ...


def passages(searched: SearchedText, *, context_lines: int = 0) -> Iterator[Passage]:
    """The lines of a text on which something is found, in order. Finds inside base64 don't count."""
    text, at = searched.text, 0
    line, counted = 1, 0
    while (place := _next(searched, at)) is not None:
        begin = text.rfind("\n", 0, place[0]) + 1
        line += text.count("\n", counted, begin)
        counted = begin
        passage, at = _passage(searched, place, begin, line, context_lines)
        yield passage


def _next(searched: SearchedText, start: int) -> tuple[int, int] | None:
    while (place := searched.find(start)) is not None:
        run_end = encoded_run_end(searched.text, *place)
        if run_end is None:
            return place
        start = run_end
    return None


def _passage(
    searched: SearchedText, place: tuple[int, int], begin: int, line: int, context_lines: int
) -> tuple[Passage, int]:
    """The passage that begins with a line, and where the search goes on."""
    text = searched.text
    places = [place]
    end = _line_end(text, place[1])
    cut_begin = begin if end - begin <= LINE_CHARS_MAX else max(begin, place[0] - _LEAD_CHARS)
    while len(places) < _SPANS_MAX:
        following = _next(searched, places[-1][1])
        if following is None or following[0] >= min(end, cut_begin + LINE_CHARS_MAX):
            break
        places.append(following)
        end = max(end, _line_end(text, following[1]))
    cut_end = min(end, cut_begin + LINE_CHARS_MAX)
    if text.endswith("\r", places[-1][1], cut_end):
        cut_end -= 1
    shown = tuple((max(b, cut_begin) - cut_begin, min(e, cut_end) - cut_begin) for b, e in places)
    passage = Passage(
        line=line,
        text=text[cut_begin:cut_end],
        spans=shown,
        before=_lines_before(text, begin, context_lines),
        after=_lines_after(text, end, context_lines),
        cut_before=cut_begin > begin,
        cut_after=cut_end < end,
    )
    return passage, end


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _lines_before(text: str, begin: int, count: int) -> tuple[str, ...]:
    lines: list[str] = []
    while begin > 0 and len(lines) < count:
        end = begin - 1
        begin = text.rfind("\n", 0, end) + 1
        lines.append(text[begin : min(end, begin + LINE_CHARS_MAX)])
    return tuple(reversed(lines))


def _lines_after(text: str, end: int, count: int) -> tuple[str, ...]:
    lines: list[str] = []
    while end < len(text) and len(lines) < count:
        begin = end + 1
        end = _line_end(text, begin)
        lines.append(text[begin : min(end, begin + LINE_CHARS_MAX)])
    return tuple(lines)
