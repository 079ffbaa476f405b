"""Git information: right, or not there, and never late."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from thread_store.git_info import find_git_info


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    done = subprocess.run(
        ["git", "-C", folder, *identity, *arguments], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """One commit on `main`."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    git(folder, "commit", "-q", "--allow-empty", "-m", "first")
    return folder


def test_commit_branch_and_origin_are_found(repository: Path) -> None:
    """Asked in any folder of the repository."""
    git(repository, "remote", "add", "origin", "git@example.org:team/tool.git")
    (repository / "src").mkdir()
    found = find_git_info(repository / "src", seconds_max=30)
    assert found is not None
    assert found.commit_hash == git(repository, "rev-parse", "HEAD")
    assert (found.branch, found.repository_url) == ("main", "git@example.org:team/tool.git")


@pytest.mark.parametrize("user", ["token@", "user:secret@", "x-access-token:ghp_abc@"])
def test_password_in_the_url_is_left_out(repository: Path, user: str) -> None:
    """Rollouts are shared more freely than credentials."""
    git(repository, "remote", "add", "origin", f"https://{user}example.org/team/tool.git")
    found = find_git_info(repository, seconds_max=30)
    assert found is not None
    assert found.repository_url == "https://example.org/team/tool.git"


def test_detached_head_has_no_branch_and_a_new_repository_no_commit(repository: Path, tmp_path: Path) -> None:
    """What there isn't stays None."""
    git(repository, "checkout", "-q", "--detach")
    detached = find_git_info(repository, seconds_max=30)
    assert detached is not None
    assert (detached.commit_hash is not None, detached.branch) == (True, None)
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    git(fresh, "init", "-q", "-b", "main")
    new = find_git_info(fresh, seconds_max=30)
    assert new is not None
    assert (new.commit_hash, new.branch, new.repository_url) == (None, "main", None)


def test_worktree_tells_its_own_branch(repository: Path, tmp_path: Path) -> None:
    """Its `.git` is a file."""
    git(repository, "worktree", "add", "-q", "-b", "other", str(tmp_path / "tree"))
    found = find_git_info(tmp_path / "tree", seconds_max=30)
    assert found is not None
    assert found.branch == "other"


def test_outside_a_repository_there_is_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor for a folder that doesn't exist."""
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert find_git_info(tmp_path, seconds_max=30) is None
    assert find_git_info(tmp_path / "gone", seconds_max=30) is None


@pytest.mark.case("B111")
@pytest.mark.parametrize(
    "script",
    [
        "exec sleep 600",
        "echo 0123456789abcdef; exec sleep 600",
        "(sleep 600 &) ; exec sleep 600",
        "echo true; exit 3",
    ],
    ids=["slow", "answers and hangs", "leaves a child behind", "fails"],
)
def test_git_that_hangs_or_fails_gives_nothing(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    """No information instead of a wrong one; and the caller goes on."""
    fake = tmp_path / "bin" / "git"
    fake.parent.mkdir()
    fake.write_text(f"#!/bin/sh\n{script}\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}{os.pathsep}{os.environ['PATH']}")
    assert find_git_info(repository, seconds_max=0.2) is None


@pytest.mark.case("B111")
def test_git_that_is_absent_gives_nothing(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine without git records all the same."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_git_info(repository, seconds_max=30) is None
