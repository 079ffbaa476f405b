"""Which lines are decoded at all."""

from __future__ import annotations

import pytest

from tests.thread_store.search.written import encoded, message, plain_json
from thread_store.search import raw_pattern as raw_patterns
from thread_store.search.raw_pattern import raw_pattern
from thread_store.search.search_query import make_query


def candidates(data: bytes, text: str, **options: bool) -> list[bytes]:
    block = memoryview(data)
    lines = raw_pattern(make_query(text, **options)).lines(block)  # type: ignore[arg-type]
    return [bytes(block[begin:end]) for begin, end in lines]


def test_only_lines_that_may_hold_it_are_decoded() -> None:
    """A line without the text, and without an escape that could hide it, is passed over."""
    lines = [message("a b"), message("nothing"), message("A  B a B"), message("\x1b[31m red \x00")]
    data = encoded(lines)
    assert candidates(data, "a b") == [plain_json(lines[0]), plain_json(lines[2])]
    assert candidates(data, "a b", case_sensitive=True) == [plain_json(lines[0])]


def test_escapes_of_other_characters_are_passed_over() -> None:
    """A line that is full of escapes is decoded only for those that the text could be written with."""
    escaped = b'{"a":"\\u65e5\\u672c"}'
    assert candidates(escaped + b"\n", "hello") == []
    assert candidates(escaped + b"\n", "日") == [escaped]
    assert candidates(b'{"a":"\\u0068ello"}\n', "hello") == [b'{"a":"\\u0068ello"}']
    assert candidates(b'{"a":"\\u0065"}\n' * 3, "日", case_sensitive=True) == [b'{"a":"\\u0065"}'] * 3


def test_many_control_characters_hide_nothing() -> None:
    """However many escapes of control characters come first, another one is seen."""
    many = b'{"a":"' + b"\\u001b\\u0000" * 200 + b'"}'
    hidden = b'{"a":"' + b"\\u001b" * 200 + b'hell\\u006f"}'
    assert candidates(many + b"\n" + hidden + b"\n", "hello") == [hidden]


@pytest.mark.parametrize("text", ['"', "\n", "\\", "\x1b", "\ud800", "/", "\t\n", '""'])
def test_text_of_nothing_but_escaped_characters_has_candidates(text: str) -> None:
    """A quote, a line break, a control character: found by the way in which JSON writes it."""
    held, other = message(f"a{text}b"), message("ab")
    found = candidates(encoded([held, other]), text)
    assert plain_json(held) in found or b"\\ud800" in b"".join(found) or text == "\ud800"


def test_all_characters_that_fold_to_ascii_are_known() -> None:
    """The table of characters that folding makes ASCII is that of this Python."""
    folded = {
        chr(code) for code in range(128, 0x110000) if any(each.isascii() for each in chr(code).casefold())
    }
    assert folded == set(raw_patterns._FOLDED_TO_ASCII)
