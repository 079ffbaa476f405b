"""The needle is found however JSON escaped it, and only where it is."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.thread_store.erasing.escaping import escape
from thread_store.erasing.errors import EraseRefused
from thread_store.erasing.masking import mask_line
from thread_store.erasing.needle import Needle, escape_levels

TEXTS = st.text(min_size=4, max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(text=TEXTS, before=VALUES, levels=st.integers(0, 4), seed=st.integers(0, 1 << 32))
@settings(max_examples=400)
def test_text_is_found_at_any_level_of_escaping(text: str, before: Any, levels: int, seed: int) -> None:
    """As a value, as a key, within JSON in JSON, each character in any form."""
    rng = random.Random(seed)
    held = escape(f"x{text}y", rng)
    for _ in range(levels):
        held = escape(f'{{"arguments":{held},"k":[1,{held}]}}', rng)
    if rng.random() < 0.3:
        line = f'{{"type":"t","payload":{{{held}:{json.dumps(before)}}}}}'
    else:
        line = f'{{"type":"t","payload":[{json.dumps(before)},{held}]}}'
    data = line.encode(errors="surrogatepass")
    json.loads(line)
    assert Needle.text(text).is_in(data)
    assert Needle.text(text).may_be_in(b"\n".join((b"other", data, b"other")))
    cut = data[: len(data) - rng.randint(0, 3)]
    assert Needle.text(text).is_in(cut)


@given(text=TEXTS, value=VALUES, levels=st.integers(0, 2), seed=st.integers(0, 1 << 32))
@settings(max_examples=300)
def test_masked_line_is_as_long_and_says_the_rest(text: str, value: Any, levels: int, seed: int) -> None:
    """It is valid JSON still, of the same shape, with the same bytes around."""
    rng = random.Random(seed)
    held = escape(f"before {text} behind", rng)
    for _ in range(levels):
        held = escape(f'{{"a":{held}}}', rng)
    line = f'{{"quiet":{json.dumps({"k": "v"})},"held":{held},"n":[1,true]}}'
    data = line.encode(errors="surrogatepass")
    needle = Needle.text(text)
    masked = mask_line(data, needle)
    if masked is None:  # it stands in what is around, too
        assert needle.is_in(re.sub(rb'"held":.*,"n"', b"", data))
        return
    assert len(masked) == len(data)
    assert not needle.is_in(masked)
    found = json.loads(masked)
    assert isinstance(found["held"], str)


@given(text=TEXTS, value=VALUES)
@settings(max_examples=300)
def test_text_that_no_value_holds_is_not_found(text: str, value: Any) -> None:
    """Unless it stands in the JSON itself: quotes, brackets and all."""
    data = json.dumps(value, ensure_ascii=False).encode(errors="surrogatepass")
    plain = list(escape_levels(data.decode(errors="surrogateescape")))
    if not any(text in each for each in plain):
        assert not Needle.text(text).is_in(data)


@pytest.mark.parametrize("text", ["", "abc", "\u00e9\u00e9\u00e9"])
def test_text_that_is_too_short_is_refused(text: str) -> None:
    """It would be found everywhere."""
    with pytest.raises(EraseRefused):
        Needle.text(text)


@pytest.mark.parametrize("pattern", ["(", "a*", ".*", "^", ""])
def test_pattern_that_fits_everything_or_is_none_is_refused(pattern: str) -> None:
    """Before anything is looked at."""
    with pytest.raises(EraseRefused):
        Needle.pattern(pattern)


def test_pattern_does_not_reach_over_values() -> None:
    """Each string and number is looked at by itself."""
    data = b'{"a":"first","b":"second","n":12345}'
    assert not Needle.pattern("first.*second").is_in(data)
    assert Needle.pattern("^12345$").is_in(data)
    assert Needle.pattern("^second$").is_in(data)
    assert Needle.pattern("first.*sec").is_in(data[: data.index(b"ond")])  # what is no JSON is one text


def test_damaged_bytes_are_looked_through() -> None:
    """Bytes that are no UTF-8, and a text whose beginning is cut off."""
    needle = Needle.text("s\u00e9cret-9")
    assert needle.is_in(b"\xff\xfe" + "s\u00e9cret-9".encode() + b"\xff")
    assert needle.is_in(b'ords","x":"s\\u00e9cr\\u0065t-9')
    assert not needle.is_in(b"\xff\xfesecret")


def test_number_that_is_the_text_is_masked() -> None:
    """A digit stays, so that it is a number."""
    masked = mask_line(b'{"pin":123456,"other":7}', Needle.text("123456"))
    assert masked is not None
    assert json.loads(masked) == {"pin": 0, "other": 7}
