"""Recorded text on a terminal: readable, and nothing more."""

from __future__ import annotations

import json
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thread_store.cli.safe_text import safe_json, safe_line, safe_text

ANY_TEXT = st.text(st.characters(exclude_categories=()))  # lone surrogates too
ESCAPES = st.lists(
    st.sampled_from(["\x1b", "[", "]", "P", "0;", "m", "\x07", "\x9b", "\\", "x", "\n", "\x9c"])
).map("".join)


@pytest.mark.case("B105")
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[2J\x1b[1;1Hgone", "gone"),
        ("\x9b31mred", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bPq#0;2\x1b\\sixel", "sixel"),
        ("\x1bctext", "text"),
        ("\x1b(0text", "text"),
        ("a\x1b", "a"),
        ("bell\x07 back\x08space nul\x00", "bell backspace nul"),
        ("one\r\ntwo\rthree", "one\ntwo\nthree"),
        ("tab\tand\nline", "tab\tand\nline"),
    ],
)
def test_escapes_and_controls_are_dropped(text: str, shown: str) -> None:
    """A sequence that would move, colour or rename the terminal leaves only its text."""
    assert safe_text(text) == shown


@pytest.mark.case("B105")
def test_open_sequence_hides_nothing() -> None:
    """A string sequence without an end can't swallow what follows it."""
    assert "important" in safe_text("\x1b]0;never ended\nimportant")


@pytest.mark.case("B105")
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\u202eb", "a<U+202E>b"),
        ("\u2066x\u2069", "<U+2066>x<U+2069>"),
        ("\u200fx", "<U+200F>x"),
        ("one\u2028two", "one<U+2028>two"),
        ("next\x85line", "next<U+0085>line"),
        ("\ufeffx", "<U+FEFF>x"),
        ("\U000e0041", "<U+E0041>"),
        ("\ud83d", "<U+D83D>"),
    ],
)
def test_misleading_characters_are_named(text: str, shown: str) -> None:
    """What turns the direction of writing, or doesn't show, is shown by its number."""
    assert safe_text(text) == shown


@pytest.mark.parametrize("text", ["grüße", "日本語", "👩\u200d💻", "e\u0301", "→ ✓ │"])
def test_ordinary_writing_is_left_alone(text: str) -> None:
    """Accents, other scripts and joined emoji are text."""
    assert safe_text(text) == text


@pytest.mark.case("B105")
@given(ANY_TEXT | ESCAPES)
def test_no_text_keeps_a_control_character(text: str) -> None:
    """Whatever the text, nothing but newline and tab is left of control, format and surrogate codes."""
    shown = safe_text(text)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029]", shown)
    assert not {character for character in shown if unicodedata.bidirectional(character) in BIDI_CONTROLS}
    assert "\n" not in safe_line(text)


BIDI_CONTROLS = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


@pytest.mark.case("B105")
@given(ANY_TEXT)
def test_json_is_harmless_and_equal(text: str) -> None:
    """Escaped characters mean what they meant: the value is the same."""
    encoded = json.dumps({"text": text}, ensure_ascii=False)
    shown = safe_json(encoded)
    assert json.loads(shown) == json.loads(json.dumps({"text": text}))
    assert not re.search("[\x00-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]", shown)
