"""Looks at names that change meanwhile: what only an earlier one saw is told apart."""

from __future__ import annotations

from thread_store.looks import only_earlier


def name_of(path: str) -> str:
    return path.rpartition("/")[2]


def test_what_the_last_look_saw_is_not_told() -> None:
    """Under whatever folder, compressed or not."""
    assert only_earlier([["live/a", "live/b.zst"], ["archived/a", "live/b"]], name_of) == []


def test_what_only_earlier_looks_saw_is_told_as_the_latest_saw_it() -> None:
    """And once."""
    looks = [["one/a", "one/b", "one/c"], ["two/a.zst", "two/b"], ["three/b"]]
    assert sorted(only_earlier(looks, name_of)) == ["one/c", "two/a.zst"]


def test_a_single_look_is_all_there_is() -> None:
    """Nothing was seen before."""
    assert only_earlier([["one/a"]], name_of) == []
