"""`rollout erase`: what it would overwrite is shown without it, and it asks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.thread_store.conftest import Run, objects
from tests.thread_store.erasing.homes import (
    CANARY,
    COPY,
    NEEDLE,
    PARENT,
    files_holding,
    full_home,
)
from tests.thread_store.histories import Script, meta, place_of, turns, write_thread
from thread_store import LocalThreads
from thread_store.erasing.needle import Needle
from thread_store.home import Home

SECRET = "hunter2-hunter2"


@pytest.fixture
def path(home: Path) -> Path:
    script = Script(1)
    script.user(f"my {SECRET}")
    return write_thread(Home(home), PARENT, script.bytes + turns(1, ordinal=script.next_ordinal))


def test_dry_run_shows_what_it_would_overwrite_masked(rollout: Run, path: Path) -> None:
    """And changes nothing."""
    before = path.read_bytes()
    ran = rollout("erase", "--text", SECRET, "--dry-run")
    assert ran.returncode == 0
    assert f"{PARENT}#1 response_item".encode() in ran.stdout
    assert b"my ***" in ran.stdout
    assert SECRET.encode() not in ran.stdout + ran.stderr
    assert path.read_bytes() == before


def test_it_refuses_without_anybody_to_ask(rollout: Run, path: Path) -> None:
    """Exit code 7; nothing is changed."""
    before = path.read_bytes()
    ran = rollout("erase", "--text", SECRET)
    assert ran.returncode == 7
    assert b"--yes" in ran.stderr
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "arguments", [["--text", SECRET], [f"{PARENT}#2"], ["--text", "hunter\\d-h", "--regex"]]
)
def test_it_is_gone_with_yes(rollout: Run, home: Path, path: Path, arguments: list[str]) -> None:
    """From every file of the home."""
    ran = rollout("erase", *arguments, "-y", "--reason", "pasted")
    assert ran.returncode == 0, ran.stderr
    assert files_holding(Home(home), Needle.text(SECRET)) == []
    assert b'"reason":"pasted"' in path.read_bytes()
    assert rollout("check", PARENT).returncode == 0


def test_nothing_found_is_exit_code_1(rollout: Run, path: Path) -> None:
    """As a search without a hit."""
    before = path.read_bytes()
    ran = rollout("erase", "--text", "not there", "-y")
    assert ran.returncode == 1
    assert path.read_bytes() == before


def test_json_is_one_object_a_place_and_a_summary(rollout: Run, home: Path) -> None:
    """Copies in other threads are in it."""
    full_home(Home(home))
    ran = rollout("erase", PARENT, "--text", "-", "--json", "-y", input=CANARY.encode())
    assert ran.returncode == 0, ran.stderr
    *places, summary = objects(ran.stdout)
    assert {each["kind"] for each in places} == {"erase"}
    assert summary["kind"] == "erased"
    assert summary["changed"] is True
    assert COPY in {each["thread"] for each in summary["copies"]}
    assert not NEEDLE.is_in(place_of(Home(home), PARENT).read_bytes())
    assert NEEDLE.is_in(place_of(Home(home), COPY).read_bytes())


def test_copies_in_other_threads_are_named_and_go_with_all(rollout: Run, home: Path) -> None:
    """`--all` is for the whole home."""
    full_home(Home(home))
    ran = rollout("erase", PARENT, "--text", "-", "-y", input=CANARY.encode())
    assert COPY.encode() in ran.stderr
    ran = rollout("erase", "--all", "--text", "-", "-y", input=CANARY.encode())
    assert ran.returncode == 0
    assert files_holding(Home(home)) == []


def test_secret_on_the_command_line_is_in_no_lock(rollout: Run, home: Path, path: Path) -> None:
    """The lock of an erasure says what runs, without what is erased."""
    with LocalThreads(Home(home)) as store:
        lock = store.locks.acquire(PARENT)
        ran = rollout("erase", f"--text={SECRET}", "-y")
        assert ran.returncode == 6
        assert b"is being written by" in ran.stderr
        lock.release()
    from thread_store.locks import holder

    shown = holder._without_secrets(
        ["rollout", "erase", "--text", SECRET, f"--text={SECRET}", f"--te={SECRET}"]
    )
    assert SECRET not in " ".join(shown)
    assert path.exists()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ([], 2),
        ([PARENT], 2),
        ([f"{PARENT}#1", "--text", SECRET], 2),
        ([f"{PARENT}#1..3"], 2),
        ([f"{PARENT}#77", "-y"], 3),
        (["0000dead", "--text", SECRET], 3),
        (["--text", "abc", "-y"], 7),
        ([f"{PARENT}#0", "-y"], 7),
        (["--text", "(", "--regex", "-y"], 7),
    ],
)
def test_what_makes_no_sense_is_refused(rollout: Run, path: Path, arguments: list[str], code: int) -> None:
    """With the exit code that says why; nothing is changed."""
    before = path.read_bytes()
    assert rollout("erase", *arguments).returncode == code
    assert path.read_bytes() == before


def test_finish_says_when_there_is_nothing(rollout: Run, path: Path) -> None:
    """Nothing was cut short."""
    ran = rollout("erase", "--finish")
    assert ran.returncode == 0
    assert b"nothing was cut short" in ran.stderr


def test_file_by_itself_is_erased_by_its_path(rollout: Run, tmp_path: Path) -> None:
    """It lies in no home."""
    path = tmp_path / "alone.jsonl"
    script = Script(1)
    script.user(SECRET)
    path.write_bytes(meta(PARENT) + script.bytes)
    assert rollout("erase", str(path), "--text", SECRET, "-y").returncode == 0
    assert SECRET.encode() not in path.read_bytes()
    script.user("another secret that is long")
    path.write_bytes(meta(PARENT) + script.bytes)
    assert rollout("erase", f"{path}#4", "-y").returncode == 0
    assert b"another secret" not in path.read_bytes()


def test_erased_item_is_shown_as_such(rollout: Run, path: Path) -> None:
    """Under its number."""
    rollout("erase", f"{PARENT}#1", "-y", "--reason", "pasted")
    ran = rollout("show", f"{PARENT}#1")
    assert b"bytes erased: pasted" in ran.stdout
    shown = [json.loads(each) for each in rollout("show", PARENT, "--json").stdout.splitlines()]
    assert 1 in [each.get("ordinal") for each in shown]
