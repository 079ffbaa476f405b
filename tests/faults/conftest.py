"""Most of these tests need a machine to break: root, for file systems that fill up, and a C compiler, for
the shim below Python. They carry the marker `system`; `pytest` alone leaves them out, `.ci/run` runs them
(`pytest -m system`)."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent
ANYWHERE = {
    *("test_kill.py", "test_disk_model.py", "test_fuzz.py", "test_lock_fight.py", "test_prefixes.py"),
    "test_reliability.py",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == HERE and item.path.name not in ANYWHERE:
            item.add_marker(pytest.mark.system)
