"""What stands against a resume around the rollout: the workspace, the commit in it, a writer, the archive."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from protocol.errors import WriterHolder
from tests.thread_store.histories import Script
from tests.thread_store.resumed import state_of
from thread_store.home import Home
from thread_store.resume import resume_surroundings
from thread_store.resume.resume_refusals import Refusal
from thread_store.resume.resume_state import ResumeState
from thread_store.resume.resume_surroundings import surrounding_refusals
from thread_store.workspace import WorkspaceKind

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def in_folder(home: Home, folder: Path | str, commit: str | None = None) -> ResumeState:
    git = {} if commit is None else {"git": {"commit_hash": commit}}
    return state_of(Script(), home, cwd=os.fspath(folder), **git)


def reasons(found: list[Refusal]) -> list[str]:
    return [each.reason.value for each in found]


def repository(folder: Path) -> str:
    """Makes a commit in it, and returns its hash."""
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.invalid", "-c", "commit.gpgsign=false"]
    for arguments in (["init", "-q"], [*identity, "commit", "-q", "--allow-empty", "-m", "one"]):
        subprocess.run(["git", "-C", folder, *arguments], check=True, capture_output=True)
    done = subprocess.run(["git", "-C", folder, "rev-parse", "HEAD"], check=True, capture_output=True)
    return done.stdout.decode().strip()


def test_folder_that_is_there_stands_against_nothing(home: Home, workspace: Path) -> None:
    """Where no commit was recorded git isn't asked."""
    assert surrounding_refusals(in_folder(home, workspace)) == []


def test_workspace_that_is_gone_forbids_a_resume(home: Home, workspace: Path) -> None:
    """One that is a file now is gone too, and so is one that was never named."""
    state = in_folder(home, workspace, COMMIT)
    workspace.rmdir()
    assert reasons(surrounding_refusals(state)) == ["workspace_missing"]
    workspace.write_bytes(b"")
    (refusal,) = surrounding_refusals(state)
    assert (refusal.reason, refusal.details["cwd"]) == ("workspace_missing", os.fspath(workspace))
    assert reasons(surrounding_refusals(in_folder(home, ""))) == ["workspace_missing"]


def test_workspace_that_is_a_link_forbids_a_resume(home: Home, workspace: Path, tmp_path: Path) -> None:
    """It may lead anywhere by now; links above it are the system's business."""
    link = tmp_path / "link"
    link.symlink_to(workspace)
    assert reasons(surrounding_refusals(in_folder(home, link))) == ["workspace_is_symlink"]
    (workspace / "below").mkdir()
    assert surrounding_refusals(in_folder(home, link / "below")) == []


def test_other_commit_than_the_recorded_one_forbids_a_resume(home: Home, workspace: Path) -> None:
    """The refusal names both; the same commit stands against nothing."""
    head = repository(workspace)
    assert surrounding_refusals(in_folder(home, workspace, head)) == []
    (refusal,) = surrounding_refusals(in_folder(home, workspace, COMMIT))
    assert refusal.reason == "head_differs"
    assert (refusal.details["recorded"], refusal.details["found"]) == (COMMIT, head)


def test_repository_that_is_gone_forbids_a_resume(home: Home, workspace: Path) -> None:
    """What git doesn't tell is not what was recorded."""
    head = repository(workspace)
    shutil.rmtree(workspace / ".git")
    (refusal,) = surrounding_refusals(in_folder(home, workspace, head))
    assert refusal.reason == "head_differs"
    assert "found" not in refusal.details


def test_writer_is_named(home: Home, workspace: Path) -> None:
    """By process and host."""
    state = in_folder(home, workspace)
    (refusal,) = surrounding_refusals(state, writer=WriterHolder(7, "here", "then", "agent"))
    assert refusal.reason == "live_writer"
    assert refusal.details == {"pid": 7, "host": "here", "since": "then", "command": "agent"}
    assert "7" in refusal.message


@pytest.mark.case("B130")
def test_workspace_that_does_not_answer_forbids_a_resume(
    home: Home, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its mount may hang; that is said, and git isn't asked."""
    state = in_folder(home, workspace, COMMIT)
    monkeypatch.setattr(resume_surroundings, "find_workspace_kind", lambda _: WorkspaceKind.SILENT)
    [refusal] = surrounding_refusals(state)
    assert refusal.reason.value == "workspace_missing"
    assert "doesn't answer" in refusal.message
