"""Looks at names that change meanwhile: what only an earlier one saw is told apart."""

from __future__ import annotations

from thread_store.looks import only_earlier, places_of


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


NAME = "rollout-2026-03-04T05-06-07-01960000-aaaa-7000-8000-00000000a001.jsonl"


def test_rollout_may_stand_compressed_or_in_the_archive() -> None:
    """Its own place first."""
    day = "sessions/2026/03/04"
    assert [*places_of(day, NAME)] == [
        (day, NAME),
        (day, f"{NAME}.zst"),
        ("archived_sessions", NAME),
        ("archived_sessions", f"{NAME}.zst"),
    ]


def test_archived_rollout_may_be_back_in_the_folder_of_its_day() -> None:
    """As its name says."""
    found = [*places_of("archived_sessions", f"{NAME}.zst")]
    assert found[0] == ("archived_sessions", f"{NAME}.zst")
    assert ("sessions/2026/03/04", NAME) in found
