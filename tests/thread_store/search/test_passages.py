"""Passages: which lines are shown, and what of them."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from thread_store.search.literal_matcher import LiteralMatcher
from thread_store.search.passages import LINE_CHARS_MAX, passages
from thread_store.search.search_hit import Passage


def found(needle: str, text: str, *, context_lines: int = 0) -> list[Passage]:
    matcher = LiteralMatcher(needle, case_sensitive=False, word=False)
    return list(passages(matcher.prepare(text), context_lines=context_lines))


def test_line_with_several_finds_is_one_passage() -> None:
    """Its number counts from 1, and its spans are places in it."""
    (passage,) = found("ab", "first\nan AB and an ab\nlast")
    assert (passage.line, passage.text, passage.spans) == (2, "an AB and an ab", ((3, 5), (13, 15)))


def test_context_is_of_the_same_text() -> None:
    """So many lines before and after, fewer at the ends."""
    one, two = found("x", "a\nb\nx\nc\nd\ne\nx", context_lines=2)
    assert (one.before, one.after) == (("a", "b"), ("c", "d"))
    assert (two.before, two.after) == (("d", "e"), ())


def test_find_over_several_lines_brings_them_all() -> None:
    """The text of the passage holds the line breaks that were looked for."""
    (passage,) = found("b\nc", "a b\nc d\ne")
    assert (passage.text, passage.spans) == ("a b\nc d", ((2, 5),))


def test_long_line_is_cut_around_the_find() -> None:
    """What is shown stays small, and says that it is cut."""
    (passage,) = found("needle", "x" * 100_000 + " needle " + "y" * 100_000)
    (span,) = passage.spans
    assert len(passage.text) == LINE_CHARS_MAX
    assert passage.text[slice(*span)] == "needle"
    assert passage.cut_before
    assert passage.cut_after


def test_find_that_is_longer_than_a_passage_is_cut_with_it() -> None:
    """A span never leads out of its text."""
    (passage,) = found("ab" * 1000, "ab" * 1000)
    assert passage.spans == ((0, LINE_CHARS_MAX),)


def test_many_finds_on_one_long_line_take_one_pass() -> None:
    """A line of two million finds is one passage."""
    assert [each.line for each in found("x", "x" * 2_000_000 + "\nx")] == [1, 2]


@given(st.text("ab\n", max_size=60), st.text("ab\n", min_size=1, max_size=3))
def test_each_line_on_which_something_begins_is_shown_once(text: str, needle: str) -> None:
    """All finds of a text without long lines are in its passages, in order, and no line comes twice."""
    shown = found(needle, text)
    spans = [passage.text[begin:end] for passage in shown for begin, end in passage.spans]
    assert spans == re.findall(needle, text)
    assert len({passage.line for passage in shown}) == len(shown)
    for passage in shown:
        assert text.split("\n")[passage.line - 1 :][: passage.text.count("\n") + 1] == passage.text.split(
            "\n"
        )
