from __future__ import annotations

from pathlib import Path

import pytest

from tests.thread_store.listing.homes import HandMadeHome


@pytest.fixture
def made(tmp_path: Path) -> HandMadeHome:
    return HandMadeHome(tmp_path / "home")
