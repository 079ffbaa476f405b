"""`rollout check` and `rollout repair`: damage is found, named, and mended only when asked."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from rollout import blocking
from tests.thread_store.conftest import (
    COMMAND,
    NAME,
    THREAD,
    Run,
    encoded,
    environment,
    line,
    meta_line,
    objects,
    said,
)
from thread_store.cli.failures import ExitCode

Write = Callable[..., Path]

GOOD = (meta_line(), line(1, "response_item", said("user", "hi")))
TORN = b'{"timestamp":"2026'


# check


def test_good_rollout_is_silent(rollout: Run, write: Write) -> None:
    """Nothing on either stream, exit code 0."""
    path = write(*GOOD)
    for name in (THREAD, "f00d", "@", path):
        done = rollout("check", name)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert rollout("check", "-", input=path.read_bytes()).returncode == 0


def test_good_rollout_with_json_is_a_summary(rollout: Run, write: Write) -> None:
    """Programs get the counts."""
    write(*GOOD)
    done = rollout("check", "@", "--json")
    assert objects(done.stdout) == [
        {"v": 1, "kind": "summary", "rollouts": 1, "damaged": 0, "records": 2, "findings": 0}
    ]


@pytest.mark.case("B01")
def test_damage_is_listed_with_place_and_command(rollout: Run, write: Write) -> None:
    """One line a finding, as compilers write it; exit code 1."""
    path = write(GOOD[0], b"broken\n", GOOD[1], TORN)
    done = rollout("check", path)
    bad, torn = done.stdout.decode().splitlines()
    assert done.returncode == ExitCode.PROBLEMS
    assert bad.startswith(f"{path}:2: error: byte {len(encoded(GOOD[:1])):,}: it is not JSON")
    assert torn.startswith(f"{path}:4: error: ")
    assert torn.endswith(f"[torn_tail]. Try: rollout repair {path}")
    assert done.stderr == b"rollout: 1 checked, 1 damaged, 2 records can be read\n"


def test_damage_as_json_is_one_object_each(rollout: Run, write: Write) -> None:
    """Level, code, place, what is lost, and the command that mends it."""
    path = write(*GOOD, TORN)
    finding, summary = objects(rollout("check", path, "--json").stdout)
    assert {
        key: finding[key] for key in ("kind", "level", "check", "thread", "path", "line", "lost_bytes", "fix")
    } == {
        "kind": "finding",
        "level": "error",
        "check": "torn_tail",
        "thread": THREAD,
        "path": str(path),
        "line": 3,
        "lost_bytes": len(TORN),
        "fix": f"rollout repair {path}",
    }
    assert summary["damaged"] == 1


def test_oddities_alone_are_no_damage(rollout: Run, write: Write) -> None:
    """A repeated ordinal is named, and the exit code stays 0."""
    write(*GOOD, GOOD[1])
    done = rollout("check", "@")
    assert done.returncode == 0
    assert b" warn: " in done.stdout
    assert b"[ordinal_repeated]" in done.stdout


def test_notes_are_shown_when_asked(rollout: Run, write: Write) -> None:
    """What is merely good to know comes with -v."""
    write(meta_line(), encoded([GOOD[1]]).rstrip(b"\n"))
    assert rollout("check", "@").stdout == b""
    assert b" note: " in rollout("check", "@", "-v").stdout


def test_several_rollouts_are_checked_though_one_is_missing(
    rollout: Run, write: Write, tmp_path: Path
) -> None:
    """A name that fits nothing keeps no other rollout from being checked; its code wins."""
    write(*GOOD)
    bad = write(*GOOD, TORN, path=tmp_path / "bad.jsonl")
    done = rollout("check", "ffff0000", bad, "@", "--json")
    assert done.returncode == ExitCode.NOT_FOUND
    assert [each["kind"] for each in objects(done.stdout)] == ["finding", "summary"]
    assert objects(done.stdout)[-1]["rollouts"] == 2


@pytest.mark.case("B135")
def test_file_that_is_no_rollout_is_one_finding(rollout: Run, tmp_path: Path) -> None:
    """It says what the file is."""
    (tmp_path / "x.jsonl").write_text('{"sessionId":"s","uuid":"u","type":"user"}\n')
    done = rollout("check", "./x.jsonl")
    assert done.returncode == ExitCode.PROBLEMS
    assert b"[not_a_rollout]" in done.stdout


def test_findings_on_a_terminal_are_a_table(write: Write, home: Path, tmp_path: Path) -> None:
    """A person gets columns; the words are the same."""
    path = write(GOOD[0], b"broken\n", path=tmp_path / "a.jsonl")
    control, terminal = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "check", path.name],
        stdout=terminal,
        stderr=subprocess.DEVNULL,
        cwd=tmp_path,
        env=environment(home, TERM="xterm", NO_COLOR="1", COLUMNS="120"),
    )
    os.close(terminal)
    shown = b""
    while b"not_json" not in shown:
        shown += os.read(control, 1 << 16)
    assert process.wait(60) == ExitCode.PROBLEMS
    os.close(control)
    assert b"error" in shown
    assert b"\x1b" not in shown


# repair


def test_dry_run_says_what_it_would_do_and_changes_nothing(rollout: Run, write: Write) -> None:
    """Without -y: the ranges, the command to go on with, exit code 1, the same bytes."""
    path = write(*GOOD, TORN)
    data, size = path.read_bytes(), len(encoded(GOOD))
    for options in ((), ("--dry-run",), ("--dry-run", "-y")):
        done = rollout("repair", path, *options)
        assert done.returncode == ExitCode.PROBLEMS
        kept, cut = done.stdout.decode().splitlines()
        assert kept == f"keep    bytes 0 to {size}"
        assert cut.startswith(f"cut     bytes {size} to {size + len(TORN)} ({len(TORN)} bytes): ")
        assert done.stderr.decode() == f"rollout: nothing was changed. To do it: rollout repair {path} -y\n"
    assert path.read_bytes() == data
    assert [each.name for each in path.parent.iterdir()] == [NAME]


@pytest.mark.case("B02")
@pytest.mark.case("B08")
def test_torn_tail_is_set_aside_and_cut(rollout: Run, write: Write, home: Path) -> None:
    """With -y: the whole lines stay as they were, the fragment is kept, a second run has nothing to do."""
    path = write(*GOOD, TORN)
    done = rollout("repair", path, "-y")
    (kept,) = (home / "thread-store" / "kept").iterdir()
    assert done.returncode == 0
    assert str(kept) in done.stdout.decode()
    assert kept.read_bytes() == TORN
    assert path.read_bytes().startswith(encoded(GOOD))
    assert path.read_bytes().endswith(b"}\n")
    again = rollout("repair", path)
    assert (again.returncode, again.stdout) == (0, b"")
    assert b"nothing to repair" in again.stderr
    assert rollout("check", path).returncode == 0


def test_line_without_newline_gets_one(rollout: Run, write: Write) -> None:
    """A valid last line is ended, not cut."""
    path = write(meta_line(), encoded([GOOD[1]]).rstrip(b"\n"))
    done = rollout("repair", path, "-y")
    assert done.returncode == 0
    assert b"\nend " in done.stdout
    assert path.read_bytes() == encoded(GOOD)


def test_repair_as_json_is_one_object(rollout: Run, write: Write) -> None:
    """What was done, and where what was cut went."""
    path = write(*GOOD, TORN)
    (dry,) = objects(rollout("repair", path, "--json").stdout)
    assert (dry["kind"], dry["dry_run"], dry["actions"][0]["kind"]) == ("repair", True, "cut_tail")
    (done,) = objects(rollout("repair", path, "--json", "-y").stdout)
    (action,) = done["actions"]
    assert done["thread"] == THREAD
    assert (action["offset_bytes"], action["size_bytes"]) == (len(encoded(GOOD)), len(TORN))
    assert Path(action["kept_path"]).read_bytes() == TORN


def test_rollout_that_is_being_written_is_not_repaired(rollout: Run, write: Write) -> None:
    """A live writer is named, exit code 6, and nothing is changed."""
    path = write(*GOOD)
    with blocking.open(path):
        done = rollout("repair", path, "-y", "--json")
    (error,) = objects(done.stderr)
    assert done.returncode == ExitCode.BUSY
    assert error["holder"]["pid"] == os.getpid()
    assert path.read_bytes() == encoded(GOOD)


@pytest.mark.parametrize("name", ["./none.jsonl", "./folder", "./text.jsonl"])
def test_what_is_no_rollout_is_not_repaired(rollout: Run, tmp_path: Path, name: str) -> None:
    """Nothing else is ever touched."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "text.jsonl").write_text("dear diary")
    done = rollout("repair", name, "-y")
    assert done.returncode in (ExitCode.NOT_FOUND, ExitCode.DAMAGED)
    assert (tmp_path / "text.jsonl").read_text() == "dear diary"
    assert json.loads(rollout("repair", name, "-y", "--json").stderr)["kind"] == "error"
