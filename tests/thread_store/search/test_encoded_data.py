"""Base64 in texts."""

from __future__ import annotations

import base64
import random

import pytest

from thread_store.search.encoded_data import encoded_run_end

IMAGE = base64.b64encode(random.Random(7).randbytes(3000)).decode()


@pytest.mark.case("B75")
def test_place_inside_base64_is_known() -> None:
    """A place in the middle of an image's bytes is told to lie in them, up to their end."""
    text = f"see {IMAGE} there"
    assert encoded_run_end(text, 1000, 1004) == 4 + len(IMAGE)
    assert encoded_run_end(text, 4, 8) == 4 + len(IMAGE)
    assert encoded_run_end(text, 0, 3) is None
    assert encoded_run_end(text, len(text) - 5, len(text)) is None


def test_short_data_url_is_known() -> None:
    """What says that it is base64 is, whatever its length."""
    assert encoded_run_end("data:image/png;base64,iVBOR w", 22, 25) == 27


@pytest.mark.parametrize(
    "text", ["x" * 5000, "ab/cd-" * 500, "0123456789" * 100, "Word " * 400, "a.B1" * 300]
)
def test_long_words_are_no_base64(text: str) -> None:
    """Letters of one kind, paths and numbers are text, however long."""
    middle = len(text) // 2
    assert encoded_run_end(text, middle, middle + 1) is None
