"""`rollout revert`: the thread ends earlier, after a question, and nothing is erased."""

from __future__ import annotations

import os
import pty
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from tests.thread_store.conftest import COMMAND, Run, environment, objects
from tests.thread_store.histories import history, turns, uuid, write_thread
from thread_store.cli.failures import ExitCode
from thread_store.home import Home
from thread_store.locks import ThreadLocks

THREAD = uuid(0xB1)


@pytest.fixture
def source(home: Path) -> Path:
    """A thread of three turns, eight numbered records each and two of our own."""
    return write_thread(Home(home), THREAD, turns(3))


def shown(rollout: Run) -> list[int]:
    """The ordinals of what `rollout show` gives."""
    found = objects(rollout("show", THREAD, "--json").stdout)
    return [each["ordinal"] for each in found if each["record_type"] == "response_item"]


def test_dry_run_says_what_would_go_and_changes_nothing(rollout: Run, home: Path, source: Path) -> None:
    """Turns and records are counted; no file appears."""
    done = rollout("revert", f"{THREAD}#8", "--dry-run", "--json")
    (found,) = objects(done.stdout)
    assert (done.returncode, done.stderr) == (0, b"")
    assert found == {
        "v": 1,
        "kind": "reverted",
        "thread": THREAD,
        "ordinal": 8,
        "turns": 2,
        "records": 20,
        "path": None,
        "changed": False,
        "dry_run": True,
    }
    assert (
        b"2 turns, 20 records in all, behind #8 would go"
        in rollout("revert", f"{THREAD}#8", "--dry-run").stdout
    )
    assert list(home.rglob("rollout-*.jsonl")) == [source]


@pytest.mark.parametrize("arguments", [(f"{THREAD}#8", "-y"), (THREAD, "--turn", "1", "--yes")])
def test_thread_ends_with_the_named_item(
    rollout: Run, home: Path, source: Path, arguments: tuple[str, ...]
) -> None:
    """It goes on in a new rollout that reads as one conversation with what it rests on; the old one stays."""
    before = source.read_bytes()
    whole = shown(rollout)
    (found,) = objects(rollout("revert", *arguments, "--json").stdout)
    assert (found["ordinal"], found["changed"]) == (8, True)
    assert source.read_bytes() == before
    assert Path(found["path"]) == Home(home).find_thread(THREAD)
    assert shown(rollout) == [each for each in whole if each <= 8]
    assert list((home / "thread-writer-locks").glob("*-*.lock")) == []


def test_reverted_thread_goes_on_behind_the_point(rollout: Run, home: Path, source: Path) -> None:
    """What is recorded next follows the item that it was taken back to."""
    rollout("revert", f"{THREAD}#8", "-y")
    assert rollout("record", "--text", "--thread", THREAD, input=b"instead").returncode == 0
    data = b"".join(history(Home(home).find_thread(THREAD), Home(home)))
    assert data.index(b"question 1") < data.index(b"instead")
    assert b"question 2" not in data
    assert rollout("check", THREAD).returncode == 0


def test_end_that_is_there_already_changes_nothing(rollout: Run, home: Path, source: Path) -> None:
    """To revert to where it ends makes no new rollout, and needs no answer."""
    done = rollout("revert", f"{THREAD}#24")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == b"it ends there already; nothing was changed\n"
    assert list(home.rglob("rollout-*.jsonl")) == [source]


def test_without_a_terminal_it_needs_yes(rollout: Run, home: Path, source: Path) -> None:
    """Where nobody can be asked it refuses, and says how to look first."""
    done = rollout("revert", f"{THREAD}#8")
    assert (done.returncode, done.stdout) == (ExitCode.REFUSED, b"")
    assert done.stderr.decode() == (
        f"rollout: revert needs --yes when there is nobody to ask. Try: rollout revert {THREAD}#8 --dry-run\n"
    )
    assert list(home.rglob("rollout-*.jsonl")) == [source]


@pytest.mark.parametrize(("answer", "code", "files"), [(b"y\n", 0, 2), (b"n\n", 7, 1), (b"\x03", 130, 1)])
def test_on_a_terminal_it_asks(
    home: Path, source: Path, tmp_path: Path, answer: bytes, code: int, files: int
) -> None:
    """Yes does it, no leaves it, Ctrl-C too."""
    control, terminal = pty.openpty()
    command = [*COMMAND, "revert", f"{THREAD}#8"]
    with subprocess.Popen(
        command,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        cwd=tmp_path,
        env=environment(home, TERM="dumb"),
        preexec_fn=_own_terminal,
    ) as process:
        os.close(terminal)
        asked = b""
        while b"[y/N]" not in asked:
            asked += os.read(control, 1 << 12)
        for seconds in range(60):
            if seconds == 0 or answer == b"\x03":
                # A signal that comes between the prompt and the read below it is noticed when that ends.
                os.write(control, answer)
            with suppress(subprocess.TimeoutExpired):
                process.wait(1)
                break
        process.kill()
    assert process.returncode == code
    os.close(control)
    assert b"2 turns, 20 records in all, behind #8 will go" in asked
    assert len(list(home.rglob("rollout-*.jsonl"))) == files


def _own_terminal() -> None:
    """Ctrl-C is a signal only on the terminal that controls the session."""
    import fcntl
    import termios

    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def test_place_that_is_missing_is_wrong_usage(rollout: Run, source: Path) -> None:
    """Where it should end must be said."""
    done = rollout("revert", THREAD, "-y")
    assert done.returncode == ExitCode.USAGE
    assert b"say where it is to end" in done.stderr


def test_point_inside_a_call_names_commands(rollout: Run, source: Path) -> None:
    """As with forks, the nearest possible points are commands."""
    done = rollout("revert", f"{THREAD}#5", "-y")
    assert done.returncode == ExitCode.USAGE
    assert f"Try: rollout revert {THREAD}#4 or: rollout revert {THREAD}#6\n" in done.stderr.decode()


def test_thread_that_is_being_written_is_busy(rollout: Run, home: Path, source: Path) -> None:
    """Exit code 6, and who holds it."""
    lock = ThreadLocks(home).acquire(THREAD)
    done = rollout("revert", f"{THREAD}#8", "-y", "--json")
    lock.release()
    (error,) = objects(done.stderr)
    assert (done.returncode, error["code"], error["holder"]["pid"]) == (6, "active_writer", os.getpid())


def test_legacy_thread_records_how_many_turns_went(rollout: Run, home: Path) -> None:
    """It has no numbers, so turns are named, and its own file says that they don't count."""
    path = write_thread(Home(home), THREAD, turns(3, ordinal=None), ordinal=None)
    assert rollout("revert", f"{THREAD}#3", "-y").returncode == ExitCode.USAGE
    (found,) = objects(rollout("revert", THREAD, "--turn", "1", "-y", "--json").stdout)
    assert (found["turns"], found["ordinal"], found["path"]) == (2, None, str(path))
    assert b'"type":"thread_rolled_back","num_turns":2' in path.read_bytes()


@pytest.mark.parametrize("outside", [True, False])
def test_file_that_is_no_thread_or_an_older_one_is_refused(
    rollout: Run, source: Path, tmp_path: Path, outside: bool
) -> None:
    """A file by itself, and what was reverted already, are both told apart from the thread."""
    if outside:
        path = source.rename(tmp_path / source.name)
    else:
        rollout("revert", f"{THREAD}#8", "-y")
        path = source
    done = rollout("revert", f"{path}#3", "-y")
    assert (done.returncode, done.stdout) == (ExitCode.REFUSED, b"")
    assert f"rollout fork {path}" in done.stderr.decode()
