"""Everything is found that a naive search finds, and nothing else, however the JSON is written."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.thread_store.search.written import THREAD, encoded, escaped, line, meta, plain_json
from thread_store.search.line_blocks import LineBlocks
from thread_store.search.rollout_search import RolloutSearch, SearchedFile
from thread_store.search.search_hit import SearchHit
from thread_store.search.search_query import make_query

# Few characters, so that needles are met: those with more than one case, longer or shorter when folded, with
# escapes of their own, of one to four bytes.
LETTERS = [*'aksSKfiIt/n u0\\"\n\t\x1b_-', *"ßẞſKﬁﬃﬆİı̇σςΣéÉ日ŉǰΐᾳ😀Ა", "\u2028", "\x7f", "\ud83d", "\ude00"]
TEXTS = st.text(st.sampled_from(LETTERS), max_size=40)
NEEDLES = st.text(st.sampled_from(LETTERS), min_size=1, max_size=5)
DAMAGE = st.sampled_from([b"", b"\xff", b"{", b"\xe2", b'{"a":"\xf0\x9f', b"\0\0\0", b'{"text":"s'])

Record = tuple[str, str, bytes]
"""The text, how it stands in the record, and a damaged line before it."""
RECORDS = st.lists(st.tuples(TEXTS, st.sampled_from(["output", "args", "custom"]), DAMAGE), max_size=6)


def text_line(number: int, text: str, kind: str, chance: random.Random, share: float) -> bytes:
    """A record whose only text this is, in a call's arguments inside JSON in a JSON string."""
    call_id = f"call_{number}"
    if kind == "args":
        inner = '{"cmd":' + escaped(text, chance, share) + "}"
        payload = {"type": "function_call", "name": "x", "call_id": call_id, "arguments": "@"}
    elif kind == "custom":
        inner = text if not text.lstrip().startswith(("{", "[")) else ""
        payload = {"type": "custom_tool_call", "name": "x", "call_id": call_id, "input": "@"}
    else:
        inner = text
        payload = {"type": "function_call_output", "call_id": call_id, "output": "@"}
    raw = plain_json(line("response_item", payload, ordinal=number))
    string = escaped(inner, chance, share).encode("utf-8", "surrogatepass")
    return raw.replace(b'"@"', string)


def found_lines(path: Path, text: str, *, buffer_bytes: int, **options: bool) -> set[int | None]:
    search = RolloutSearch(make_query(text, **options))
    search._blocks = LineBlocks(buffer_bytes=buffer_bytes)
    found = search.search(SearchedFile(THREAD, str(path)))
    return {each.ordinal for each in found if isinstance(each, SearchHit)}


def write(path: Path, records: list[Record], seed: int, share: float) -> list[str]:
    """Write the records; returns the texts by their ordinals less one, as json reads them."""
    chance = random.Random(seed)
    lines, texts = [plain_json(meta())], []
    for number, (text, kind, damage) in enumerate(records, 1):
        if damage:
            lines.append(damage)
        raw = text_line(number, text, kind, chance, share)
        payload = json.loads(raw)["payload"]
        told = payload.get("output", payload.get("input", ""))
        if kind == "args":
            told = json.loads(payload["arguments"])["cmd"]
        texts.append(told)
        lines.append(raw)
    path.write_bytes(encoded(lines))
    return texts


@pytest.mark.case("B86")
@pytest.mark.case("B39")
@pytest.mark.case("B40")
@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(RECORDS, NEEDLES, st.integers(0, 99), st.sampled_from([0.0, 0.1, 0.5, 1.0]), st.booleans())
@example([("ß", "output", b"")], "s", 0, 0.0, False)
@example([("ß", "output", b"")], "s", 0, 1.0, False)
@example([("a/b", "args", b"")], "a/b", 0, 1.0, True)
@example([("\n", "args", b"")], "\n", 0, 0.0, True)
@example([("😀", "args", b"")], "\ud83d", 0, 1.0, True)
@example([("\ud83d", "output", b"")], "\ud83d", 0, 1.0, False)
def test_literal_search_equals_the_naive_one(
    tmp_path: Path, records: list[Record], needle: str, seed: int, share: float, exact: bool
) -> None:
    """A text is found if and only if the needle is in it, both case-folded unless case counts."""
    path = tmp_path / "rollout.jsonl"
    texts = write(path, records, seed, share)
    found = found_lines(path, needle, buffer_bytes=64 + seed, case_sensitive=exact)
    naive = {
        number
        for number, text in enumerate(texts, 1)
        if (needle in text if exact else needle.casefold() in text.casefold())
    }
    assert found == naive


PIECES = st.sampled_from(
    [*"aksSfiIt", "ß", "σ", "é", ".", "a+", "s?", "k*", "(ab|st)", "[ks]", "f{1,2}", "\\\\", "/"]
)
PATTERNS = st.lists(PIECES, min_size=1, max_size=4).map("".join)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(RECORDS, PATTERNS, st.integers(0, 99), st.sampled_from([0.0, 0.3, 1.0]))
def test_pattern_search_equals_the_naive_one(
    tmp_path: Path, records: list[Record], pattern: str, seed: int, share: float
) -> None:
    """A text is found if and only if the pattern matches something in it."""
    path = tmp_path / "rollout.jsonl"
    texts = write(path, records, seed, share)
    found = found_lines(path, pattern, buffer_bytes=64 + seed, regex=True, case_sensitive=True)
    known = re.compile(pattern)
    naive = {number for number, text in enumerate(texts, 1) if any(each[0] for each in known.finditer(text))}
    assert found == naive


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(RECORDS, PATTERNS, st.integers(0, 99), st.sampled_from([0.0, 0.3, 1.0]))
def test_raw_bytes_hide_no_match_of_a_pattern_in_any_case(
    tmp_path: Path, records: list[Record], pattern: str, seed: int, share: float
) -> None:
    """Where case doesn't count, the same is found with the look at raw bytes and without it."""
    path = tmp_path / "rollout.jsonl"
    write(path, records, seed, share)
    found = found_lines(path, pattern, buffer_bytes=64 + seed, regex=True)
    every = found_lines(path, f"(?:{pattern})", buffer_bytes=1 << 20, regex=True)  # groups tell no raw text
    assert found == every
