"""Patterns: RE2 with Unicode classes and borders; no pattern hangs."""

from __future__ import annotations

import pytest

from thread_store.errors import SearchInvalid
from thread_store.search import pattern_matcher
from thread_store.search.passages import TextTooCostly
from thread_store.search.pattern_matcher import PatternMatcher, compile_pattern


def places(pattern: str, text: str, *, case_sensitive: bool = False, word: bool = False) -> list[str]:
    searched = PatternMatcher(pattern, case_sensitive=case_sensitive, word=word).prepare(text)
    found, at = [], 0
    while (place := searched.find(at)) is not None:
        found.append(text[place[0] : place[1]])
        at = place[1]
    return found


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("gr[öo]ße", "x GRÖßE größe grosse", ["GRÖßE", "größe"]),
        (r"\w+", "né, 日本_1", ["né", "日本_1"]),
        (r"[\w-]+", "é-b c", ["é-b", "c"]),
        (r"\W", "é\u2003ß", ["\u2003"]),
        (r"\d+", "12 ٣٤", ["12", "٣٤"]),
        (r"a\sb", "a\u00a0b a b", ["a\u00a0b", "a b"]),
        (r"\bäpfel\b", "äpfel bratäpfel äpfeln", ["äpfel"]),
        (r"\bcat\b", "cat concat", ["cat"]),
        (r"\Qa.b\E", "a.b axb", ["a.b"]),
        (r"[[:alpha:]\d]+", "ab1", ["ab1"]),
        (r"[]\w]+", "]é", ["]é"]),
        (r"\pL+", "aé1", ["aé"]),
        (r"x*", "axxb", ["xx"]),
        ("😀.", "a😀é", ["😀é"]),
        (r"(?s)a.b", "a\nb", ["a\nb"]),
    ],
)
def test_patterns_know_all_scripts(pattern: str, text: str, found: list[str]) -> None:
    """Places are those of characters; classes and borders at the ends know every script."""
    assert places(pattern, text) == found


def test_whole_word_pattern_stands_alone() -> None:
    """With `word` a match counts only where no word goes on."""
    assert places("[a-z]at", "cat concat bats é at-hat", word=True) == ["cat", "hat"]
    assert places("bat", "ébat bat", word=True) == ["bat"]


def test_case_counts_where_it_is_asked_for() -> None:
    """With case, only the very letters match."""
    assert places("K[a-z]y", "key Key", case_sensitive=True) == ["Key"]


@pytest.mark.parametrize("pattern", ["(", "[", r"\C", "(?=a)", r"(a)\1", "(a{900}){900}", "\ud800", "*"])
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    """What RE2 doesn't take, or takes too much memory for, is an error that says why."""
    with pytest.raises(SearchInvalid) as caught:
        compile_pattern(pattern, case_sensitive=False)
    assert caught.value.text == pattern
    assert caught.value.reason


@pytest.mark.case("B80")
def test_costly_pattern_on_a_long_text_is_bounded() -> None:
    """What makes a backtracking engine hang is answered in one pass."""
    assert places("(a+)+$", "a" * 5_000_000 + "b") == []
    assert places("(x+x+)+y", "x" * 5_000_000) == []


@pytest.mark.case("B80")
def test_matches_that_never_count_have_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a pattern matches at each letter and never at a border, the text is given up."""
    monkeypatch.setattr(pattern_matcher, "_BYTES_FREE", 1000)
    searched = PatternMatcher(r"x\b", case_sensitive=False, word=False).prepare("é" + "x" * 1000 + "é" * 100)
    with pytest.raises(TextTooCostly):
        for _ in range(20):
            searched = PatternMatcher(r"[^-]*x\b", case_sensitive=False, word=False).prepare(
                ("x" * 400 + "é") * 200
            )
            searched.find(0)
