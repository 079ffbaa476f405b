"""What stands at a recorded folder is told in time, whatever the file system does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from thread_store import workspace
from thread_store.workspace import WorkspaceKind, find_workspace_kind


def test_each_kind_of_thing_is_told_apart(tmp_path: Path) -> None:
    """A folder, a link to one, a file, nothing, and names that can't be."""
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path)
    found = {
        name: find_workspace_kind(str(tmp_path / name))
        for name in (".", "link", "file", "none", "nul\0", "x" * 5000)
    }
    assert found == {
        ".": WorkspaceKind.FOLDER,
        "link": WorkspaceKind.SYMLINK,
        "file": WorkspaceKind.MISSING,
        "none": WorkspaceKind.MISSING,
        "nul\0": WorkspaceKind.MISSING,
        "x" * 5000: WorkspaceKind.MISSING,
    }
    assert find_workspace_kind("") is WorkspaceKind.MISSING


@pytest.fixture
def hung(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Every look hangs until the event is set."""
    answers = threading.Event()

    def look(folder: str) -> WorkspaceKind:
        answers.wait()
        return WorkspaceKind.FOLDER

    monkeypatch.setattr(workspace, "_look", look)
    yield answers
    answers.set()


@pytest.mark.case("B130")
def test_folder_on_a_mount_that_hangs_holds_nobody_up(hung: threading.Event) -> None:
    """Then nothing is known of it."""
    assert find_workspace_kind("/mnt/gone", seconds_max=0.01) is WorkspaceKind.SILENT
