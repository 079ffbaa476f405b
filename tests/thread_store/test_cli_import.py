"""`rollout import`: what other programs recorded becomes threads of this home."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.thread_store.conftest import Run, objects
from tests.thread_store.importing.made import claude, write_lines
from thread_store.cli.failures import ExitCode
from thread_store.home import Home

ROWS = [claude(1, "user", "run the tests"), claude(2, "assistant", [{"type": "text", "text": "green"}])]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with one session of two rows."""
    found = tmp_path / "projects" / "demo"
    found.mkdir(parents=True)
    write_lines(found / "session.jsonl", ROWS)
    return found


def test_folder_is_imported_once(rollout: Run, folder: Path, home: Path) -> None:
    """It is shown and listed like any other; the second time there is nothing to do."""
    first, second = rollout("import", str(folder)), rollout("import", str(folder))
    assert (first.returncode, second.returncode) == (0, 0)
    assert b"new" in first.stdout
    assert (second.stdout, b"1 unchanged" in second.stderr) == (b"", True)
    assert len([*Home(home).rollouts()]) == 1
    assert b"green" in rollout("show", "@").stdout


def test_dry_run_makes_no_home(rollout: Run, folder: Path, home: Path) -> None:
    """And tells what would be."""
    done = rollout("import", str(folder), "--dry-run")
    assert done.returncode == 0
    assert b"nothing was changed" in done.stderr
    assert not home.exists()


def test_as_json_it_is_an_object_a_thread_and_a_summary(rollout: Run, folder: Path) -> None:
    """With what was kept and damaged."""
    with (folder / "session.jsonl").open("a") as file:
        file.write('{"type":"mode","mode":"plan"}\nbroken\n')
    done = rollout("import", str(folder), "--json")
    found, summary = objects(done.stdout)
    assert done.returncode == ExitCode.PROBLEMS
    assert (found["kind"], found["state"], found["kept"]) == ("import", "new", {"mode": 1})
    assert [each["line"] for each in found["damaged"]] == [4]
    assert (summary["kind"], summary["new"], summary["damaged"]) == ("import_summary", 1, 1)


def test_damage_and_other_contents_are_told(rollout: Run, folder: Path) -> None:
    """With the file, the line and the offset; the rest is imported."""
    path = folder / "session.jsonl"
    path.write_bytes(b"broken\n" + path.read_bytes())
    done = rollout("import", str(path))
    assert done.returncode == ExitCode.PROBLEMS
    assert b"line 1, byte 0" in done.stderr
    write_lines(path, [claude(1, "user", "something else"), *ROWS[1:]])
    done = rollout("import", str(path))
    assert done.returncode == ExitCode.PROBLEMS
    assert b"left alone" in done.stderr


def test_file_of_another_kind_is_refused(rollout: Run, tmp_path: Path) -> None:
    """It is named, and what may be done."""
    (tmp_path / "x.json").write_text("{}")
    done = rollout("import", str(tmp_path / "x.json"))
    assert done.returncode == ExitCode.DAMAGED
    assert b"x.json" in done.stderr
    assert b"--from" in done.stderr
    missing = rollout("import", str(tmp_path / "none"))
    assert missing.returncode == ExitCode.USAGE
    assert b"does not exist" in missing.stderr


def test_folder_without_sessions_says_so(rollout: Run, tmp_path: Path) -> None:
    """Nothing is no success."""
    (tmp_path / "empty").mkdir()
    done = rollout("import", str(tmp_path / "empty"))
    assert done.returncode == ExitCode.PROBLEMS
    assert b"no sessions" in done.stderr
