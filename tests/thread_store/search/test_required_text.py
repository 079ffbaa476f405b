"""The text that each match of a pattern holds."""

from __future__ import annotations

import pytest

from thread_store.search.required_text import required_text


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("cancel scope", "cancel scope"),
        ("cancel sc[oa]pe", "cancel sc"),
        ("time(d )?out", "time"),
        ("abc?d", "ab"),
        ("ab+cd", "ab"),
        ("abc+de", "abc"),
        ("ab{0,2}cdef", "cdef"),
        ("a|bcd", ""),
        ("(a|b)cd", "cd"),
        ("(?i)abc", "abc"),
        (r"a\.b", "a.b"),
        (r"a\wbc", "bc"),
        (r"\Qabc\E", ""),
        (r"[abc]", ""),
        (r"x[]abc]yz", "yz"),
        (r"\x41bc", "bc"),
        ("^abc$", "abc"),
        ("größe.", "größe"),
        ("((a)(b))cd{2}e", "c"),
    ],
)
def test_only_what_must_be_there_is_taken(pattern: str, text: str) -> None:
    """Groups, classes, ways and what may be absent are left out."""
    assert required_text(pattern) == text
