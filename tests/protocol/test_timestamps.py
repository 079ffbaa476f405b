"""Timestamps: UTC, milliseconds, never an error when read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import format_timestamp, now_ms, parse_timestamp


def test_format_is_the_one_of_the_format_page() -> None:
    """Stamps are UTC with three digits of milliseconds and a `Z`."""
    assert format_timestamp(1795947072345) == "2026-11-29T10:11:12.345Z"


@given(st.integers(min_value=-62_135_596_800_000, max_value=253_402_300_799_999))
def test_written_stamp_reads_back_to_the_millisecond(at_ms: int) -> None:
    """What is written is read back exactly."""
    stamp = parse_timestamp(format_timestamp(at_ms))
    assert stamp is not None
    assert stamp - datetime(1970, 1, 1, tzinfo=UTC) == timedelta(milliseconds=at_ms)


@pytest.mark.parametrize(
    ("text", "hour"),
    [("2026-11-29T10:11:12Z", 10), ("2026-11-29T10:11:12.123456789+02:00", 8), ("2026-11-29T10:11:12", 10)],
)
def test_stamps_of_others_are_read_as_utc(text: str, hour: int) -> None:
    """Other precisions and zones are understood; no zone is UTC."""
    stamp = parse_timestamp(text)
    assert stamp is not None
    assert (stamp.hour, stamp.tzinfo) == (hour, UTC)


@pytest.mark.parametrize(
    "text",
    [None, "", "yesterday", "9999-12-31T23:59:59-23:00", "0001-01-01T00:00:00+23:00", "2026-13-01T00:00:00Z"],
)
def test_stamp_that_is_none_gives_none(text: str | None) -> None:
    """A stamp that can't be read is no error."""
    assert parse_timestamp(text) is None


@given(st.text(max_size=40))
def test_any_text_is_read_or_passed_over(text: str) -> None:
    """No text makes the parser raise."""
    stamp = parse_timestamp(text)
    assert stamp is None or stamp.tzinfo is UTC


def test_now_is_in_milliseconds() -> None:
    """The clock's unit is the one of the stamps."""
    stamp = parse_timestamp(format_timestamp(now_ms()))
    assert stamp is not None
    assert abs((datetime.now(UTC) - stamp).total_seconds()) < 60
