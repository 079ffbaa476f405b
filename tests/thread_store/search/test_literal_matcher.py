"""Literal texts: what is equal in any case, where it stands, and what a word is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thread_store.search import literal_matcher
from thread_store.search.literal_matcher import LiteralMatcher, is_word


def places(needle: str, text: str, *, case_sensitive: bool = False, word: bool = False) -> list[str]:
    """What is found, as it stands in the text."""
    searched = LiteralMatcher(needle, case_sensitive=case_sensitive, word=word).prepare(text)
    found, at = [], 0
    while (place := searched.find(at)) is not None:
        found.append(text[place[0] : place[1]])
        at = place[1]
    return found


@pytest.mark.case("B86")
@pytest.mark.parametrize(
    ("needle", "text", "found"),
    [
        ("straße", "STRASSE Straße strasse STRAẞE", ["STRASSE", "Straße", "strasse", "STRAẞE"]),
        ("σας", "ΣΑΣ σας", ["ΣΑΣ", "σας"]),
        ("kelvin", "\u212aelvin", ["\u212aelvin"]),
        ("file", "ﬁle FILE", ["ﬁle", "FILE"]),
        ("i\u0307", "İ", ["İ"]),
        ("istanbul", "İstanbul ıstanbul Istanbul", ["Istanbul"]),
        ("ı", "Iiİı", ["ı"]),
        ("s", "ß", ["ß"]),
        ("ss", "ßß", ["ß", "ß"]),
        ("xs", "xß", ["xß"]),
        ("é", "É e\u0301", ["É"]),
        ("日本", "日本語", ["日本"]),
        ("😀", "a😀", ["😀"]),
        ("\ud83d", "\ud83d x", ["\ud83d"]),
    ],
)
def test_any_case_is_found_by_full_folding(needle: str, text: str, found: list[str]) -> None:
    """Case folds as Unicode does without a locale; a character that is met in part counts whole."""
    assert places(needle, text) == found


def test_exact_search_takes_case_as_it_is() -> None:
    """With case, only the very characters are found."""
    assert places("Key", "key Key KEY", case_sensitive=True) == ["Key"]


@pytest.mark.parametrize(
    ("needle", "text", "found"),
    [
        ("cat", "cat concat cats cat_ cat-cat", 3),
        ("größe", "größe größen übergröße", 1),
        ("e", "e e\u0301 né", 1),
        ("foo.", "foo.bar foo. foo.", 2),
        ("ss", "ss ß sss", 2),
        ("aa", "aaa aa", 1),
        ("-x", "a -x b-x", 1),
        ("日", "日本 日", 1),
    ],
)
def test_whole_words_are_of_any_script(needle: str, text: str, found: int) -> None:
    """A word ends where no letter, digit, mark or underscore follows."""
    assert len(places(needle, text, word=True)) == found


@given(st.text("aAsß ﬁİσς-_é", max_size=30), st.text("aAsß ﬁİσςfi", min_size=1, max_size=3))
def test_something_is_found_exactly_where_the_folded_text_holds_it(text: str, needle: str) -> None:
    """What is found holds the needle, and there is something iff the folded text has it."""
    found = places(needle, text)
    assert bool(found) == (needle.casefold() in text.casefold())
    assert all(needle.casefold() in each.casefold() for each in found)


def test_all_characters_that_grow_are_known() -> None:
    """The table of characters that folding makes longer is that of this Python."""
    growing = {chr(code) for code in range(0x110000) if len(chr(code).casefold()) > 1}
    assert growing == {chr(code) for code in range(0x110000) if literal_matcher._EXPANDING.match(chr(code))}


def test_whole_word_in_a_text_without_words_takes_one_pass() -> None:
    """In a text without spaces the search goes from word to word and not from letter to letter."""
    matcher = LiteralMatcher("x", case_sensitive=False, word=True)
    searched = matcher.prepare("x" * 2_000_000)
    assert searched.find(0) is None
    assert [is_word(each) for each in "aé日1_\u0301 -."] == [True] * 6 + [False] * 3
