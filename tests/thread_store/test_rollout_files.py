"""Which file of a home an id means."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from protocol.ids import ThreadId
from rollout.paths import RolloutName
from thread_store.chain.rollout_files import RolloutFiles
from thread_store.home import Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def put(home: Home, rollout_id: str, *, day: datetime, folder: str | None = None, suffix: str = "") -> Path:
    name = RolloutName.make(rollout_id, created=day)
    path = home.path / (folder or name.folder) / (name.text + suffix)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


@pytest.mark.parametrize("days", [-400, -1, 0, 1, 400])
def test_file_is_found_in_whichever_folder_it_lies(home: Home, days: int) -> None:
    """The day of its id is only where it is looked for first."""
    rollout_id = ThreadId.new()
    path = put(home, rollout_id, day=datetime.now() + timedelta(days=days))
    assert RolloutFiles(home).find(rollout_id.upper()) == path


def test_folder_of_the_day_is_looked_at_alone(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home of many threads is not looked through for the usual case."""
    rollout_id = ThreadId.new()
    path = put(home, rollout_id, day=datetime.now())
    monkeypatch.setattr(home, "rollouts", lambda: pytest.fail("all names were looked at"))
    assert RolloutFiles(home).find(rollout_id) == path


def test_live_plain_file_comes_first(home: Home) -> None:
    """Before a compressed twin and before an archived one."""
    rollout_id = ThreadId.new()
    put(home, rollout_id, day=datetime.now(), folder="archived_sessions")
    put(home, rollout_id, day=datetime.now(), suffix=".zst")
    path = put(home, rollout_id, day=datetime.now())
    assert RolloutFiles(home).find(rollout_id) == path


def test_revert_is_found_by_its_rollout_id(home: Home) -> None:
    """And the thread's first file by the thread's."""
    thread_id, rollout_id = ThreadId.new(), ThreadId.new()
    first = put(home, thread_id, day=datetime.now())
    name = RolloutName.make(thread_id, created=datetime.now(), rollout_id=rollout_id)
    second = first.with_name(name.text)
    second.touch()
    assert (RolloutFiles(home).find(thread_id), RolloutFiles(home).find(rollout_id)) == (first, second)


@pytest.mark.parametrize(
    "text", ["", "x", "../../etc/passwd", "ffffffff-ffff-4fff-bfff-ffffffffffff", str(ThreadId.new())]
)
def test_what_no_file_is_called_is_not_found(home: Home, text: str) -> None:
    """No text becomes a path."""
    put(home, ThreadId.new(), day=datetime.now())
    assert RolloutFiles(home).find(text) is None


def test_link_is_no_rollout_of_the_home(home: Home, tmp_path: Path) -> None:
    """Nor is a folder of that name."""
    rollout_id = ThreadId.new()
    path = put(home, rollout_id, day=datetime.now())
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert RolloutFiles(home).find(rollout_id) is None
