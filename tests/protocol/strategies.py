"""What the property tests draw: JSON of all shapes, as bytes written in many ways, and damaged."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

KEYS = ["timestamp", "ordinal", "type", "payload", "\x7fsource", "\x7fupcast_from", "record_type", "id"]

# Lone surrogates, NUL, separators that are no line ends, control and non-ASCII characters.
AWKWARD = '\ud800\udfff\0\u2028\u2029\x85\x0b\x0c\x1c\x1d\x1e\x7f\ufeff\uffff\U0010ffffé\\"/[{}]'
texts = st.one_of(
    st.text(st.characters(exclude_categories=()), max_size=12),
    st.text(st.sampled_from(AWKWARD), max_size=6),
    st.sampled_from(["session_meta", "response_item", "2026-11-29T10:11:12.345Z", "NaN", "null"]),
)
finite = st.floats(allow_nan=False, allow_infinity=False)
numbers = st.one_of(st.integers(), st.sampled_from([2**63, -(2**63) - 1, 2**64, 10**40]), finite)
scalars = st.one_of(st.none(), st.booleans(), numbers, texts)


def _containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=4))


values = st.recursive(scalars, _containers, max_leaves=12)
objects = st.dictionaries(st.one_of(st.sampled_from(KEYS), texts), values, max_size=6)
anything = st.recursive(st.one_of(scalars, st.floats()), _containers, max_leaves=12)


def paired(value: Any) -> Any:
    """The value as JSON can hold it: two surrogates that make a pair are one character."""
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    if isinstance(value, list):
        return [paired(each) for each in value]
    if isinstance(value, dict):
        return {paired(key): paired(each) for key, each in value.items()}
    return value


@st.composite
def json_bytes(draw: st.DrawFn, inner: st.SearchStrategy[Any] = objects) -> bytes:
    """A value as JSON text, compact or spaced, escaped or not, lone surrogates always escaped."""
    value = draw(inner)
    spaced = draw(st.booleans())
    text = json.dumps(
        value,
        ensure_ascii=draw(st.booleans()),
        separators=(" , ", ": ") if spaced else (",", ":"),
    )
    padding = draw(st.sampled_from([("", ""), (" ", "\r"), ("\t", " ")]))
    whole = padding[0] + text + padding[1]
    return "".join(f"\\u{ord(each):04x}" if 0xD800 <= ord(each) < 0xE000 else each for each in whole).encode()


PIECES = [
    *(b"\x00 \xff \xc3 \xed\xa0\x80 \xef\xbb\xbf \x01 \x1f \x7f \t \r \x0b \x85".split(b" ")),
    *(b'" \\ \\u \\ud800 \\u0000 \\x { } [ ] , : - . e 0 01 1. .5 1e 1e999 -0 + NaN Infinity'.split(b" ")),
    *(b'-Infinity nul null true 0x1 // {} [] {}, "a": "type":1, "payload":2,'.split(b" ")),
    b" ",
    b"9" * 5000,
    b"[" * 127 + b"]" * 127,
    b'{"a":' * 128 + b"1" + b"}" * 128,
    "\u2028\u0085é".encode(),
]


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """JSON bytes with pieces cut out, put in and doubled."""
    data = draw(json_bytes())
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data)))
        cut = draw(st.integers(0, 3))
        data = data[:at] + draw(st.sampled_from(PIECES)) + data[at + cut :]
    return data
