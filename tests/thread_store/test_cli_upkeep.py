"""`rollout archive`, `unarchive`, `compress`, `delete`, `prune` and `stats`."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.thread_store.conftest import COMMAND, Run, environment, objects
from tests.thread_store.histories import place_of, turns, uuid, write_thread
from thread_store.cli.amounts import format_bytes, parse_age, parse_size
from thread_store.cli.failures import ExitCode
from thread_store.forks.fork import make_fork
from thread_store.home import Home
from thread_store.locks import ThreadLocks

A, B, C = uuid(0xA00A), uuid(0xB00B), uuid(0xC00C)


@pytest.fixture
def store(home: Path) -> Home:
    """A home of two threads, 40 days and a moment old."""
    found = Home(home)
    path = write_thread(found, A, turns(3))
    os.utime(path, (time.time() - 40 * 86_400,) * 2)
    write_thread(found, B, turns(1))
    return found


def where(store: Home, thread_id: str) -> str:
    path = store.find_thread(thread_id).relative_to(store.path)
    return f"{path.parts[0]}{''.join(path.suffixes[-1:])}"


# Archive


@pytest.mark.case("B109")
def test_archive_moves_and_says_where(rollout: Run, store: Home) -> None:
    """Twice is once; both calls end well; back again it is live."""
    first, second = rollout("archive", A, B), rollout("archive", A)
    assert (first.returncode, second.returncode) == (0, 0)
    assert first.stdout.decode().count(" archived: ") == 2
    assert b"was archived already" in second.stdout
    assert (where(store, A), where(store, B)) == ("archived_sessions.jsonl",) * 2
    assert b"unarchived: " in rollout("unarchive", A).stdout
    assert where(store, A) == "sessions.jsonl"


def test_archive_as_json_is_an_object_a_thread(rollout: Run, store: Home) -> None:
    """With what was moved."""
    (found,) = objects(rollout("archive", A, "--json").stdout)
    path = str(store.find_thread(A))
    assert found == {
        "v": 1,
        "kind": "archived",
        "thread": A,
        "path": path,
        "paths": [path],
        "changed": True,
        "dry_run": False,
    }


@pytest.mark.case("B109")
def test_live_thread_is_told_and_the_others_are_done(rollout: Run, store: Home) -> None:
    """Exit code 6, and who writes it."""
    lock = ThreadLocks(store.path).acquire(A)
    try:
        done = rollout("archive", A, B)
    finally:
        lock.release()
    assert done.returncode == ExitCode.BUSY
    assert f"pid {os.getpid()}".encode() in done.stderr
    assert (where(store, A), where(store, B)) == ("sessions.jsonl", "archived_sessions.jsonl")


def test_archived_thread_says_how_to_go_on(rollout: Run, store: Home) -> None:
    """An append is refused with the command that helps."""
    rollout("archive", A)
    done = rollout("record", "--thread", A, "--text", input=b"more\n")
    assert done.returncode == ExitCode.DAMAGED
    assert f"rollout unarchive {A}".encode() in done.stderr
    resumed = rollout("resume", A)
    assert f"rollout unarchive {A}".encode() in resumed.stdout + resumed.stderr


def test_many_are_archived_only_with_a_yes(rollout: Run, store: Home) -> None:
    """A dry run names them; without anybody to ask exit code 7."""
    assert rollout("archive", "--older-than", "30d", "--dry-run").stdout.split()[0].decode() == A
    done = rollout("archive", "--older-than", "30d")
    assert (done.returncode, where(store, A)) == (ExitCode.REFUSED, "sessions.jsonl")
    assert rollout("archive", "--older-than", "30d", "-y").returncode == 0
    assert (where(store, A), where(store, B)) == ("archived_sessions.jsonl", "sessions.jsonl")


def test_here_means_the_recorded_folder_alone(rollout: Run, store: Home, tmp_path: Path) -> None:
    """Compared as text: nobody looks where it leads."""
    write_thread(store, C, turns(1), cwd=os.path.realpath(tmp_path))
    assert rollout("archive", "--here", "-y").returncode == 0
    assert [where(store, each) for each in (A, C)] == ["sessions.jsonl", "archived_sessions.jsonl"]
    assert rollout("unarchive", "--here", "-y").returncode == 0
    assert where(store, C) == "sessions.jsonl"


@pytest.mark.parametrize(
    "arguments",
    [("archive",), ("archive", A, "--here"), ("unarchive",), ("compress",), ("compress", A, "--all")],
)
def test_threads_are_named_or_picked(rollout: Run, store: Home, arguments: tuple[str, ...]) -> None:
    """One of both, else it is wrong usage."""
    assert rollout(*arguments).returncode == ExitCode.USAGE


@pytest.mark.parametrize("command", ["archive", "unarchive", "compress", "delete"])
def test_nothing_is_done_if_one_name_is_wrong(rollout: Run, store: Home, command: str) -> None:
    """All are found before the first is touched."""
    before = {path: path.stat().st_mtime_ns for path in store.path.rglob("*")}
    assert rollout(command, A, "0000dead").returncode == ExitCode.NOT_FOUND
    assert {path: path.stat().st_mtime_ns for path in store.path.rglob("*")} == before


# Compress


def test_compress_says_what_it_saves_and_show_reads_on(rollout: Run, store: Home) -> None:
    """The same records; expanded again the file is the old one."""
    path = store.find_thread(A)
    data, shown = path.read_bytes(), rollout("show", A, "--json").stdout
    done = rollout("compress", A)
    assert (done.returncode, where(store, A)) == (0, "sessions.zst")
    assert b"compressed: " in done.stdout
    assert rollout("show", A, "--json").stdout == shown
    assert b"is compressed already" in rollout("compress", A).stdout
    assert rollout("compress", A, "--expand").returncode == 0
    assert path.read_bytes() == data


def test_compress_all_takes_the_cold_ones(rollout: Run, store: Home) -> None:
    """Of at least a week; level and age can be said."""
    assert rollout("compress", "--all", "--dry-run").stdout.split()[0].decode() == A
    assert rollout("compress", "--all").returncode == ExitCode.REFUSED
    assert rollout("compress", "--all", "-y", "--level", "19").returncode == 0
    assert (where(store, A), where(store, B)) == ("sessions.zst", "sessions.jsonl")
    (found,) = objects(rollout("compress", "--all", "--older-than", "0s", "-y", "--json").stdout)
    assert (found["thread"], found["changed"]) == (B, True)
    assert found["stored_bytes"] < found["bytes"]


def test_record_goes_on_in_a_compressed_thread(rollout: Run, store: Home) -> None:
    """It is expanded first."""
    rollout("compress", A)
    assert rollout("record", "--thread", A, "--text", input=b"more\n").returncode == 0
    assert where(store, A) == "sessions.jsonl"


# Delete


def test_delete_needs_a_yes(rollout: Run, store: Home) -> None:
    """Where nobody can be asked exit code 7; a dry run names the files."""
    done = rollout("delete", A)
    assert (done.returncode, where(store, A)) == (ExitCode.REFUSED, "sessions.jsonl")
    looked = rollout("delete", A, "--dry-run")
    assert str(store.find_thread(A)).encode() in looked.stdout
    assert rollout("delete", A, "-y").returncode == 0
    assert rollout("show", A).returncode == ExitCode.NOT_FOUND


def test_delete_asks_on_a_terminal(store: Home, home: Path, tmp_path: Path) -> None:
    """And does nothing without a yes."""
    for answer, left in (("n", True), ("y", False)):
        ours, theirs = pty.openpty()
        running = subprocess.Popen(
            [*COMMAND, "delete", A],
            stdin=theirs,
            stderr=theirs,
            stdout=subprocess.PIPE,
            env=environment(home),
        )
        os.close(theirs)
        os.write(ours, f"{answer}\n".encode())
        running.communicate(timeout=60)
        os.close(ours)
        assert any(each.name.thread_id == A for each in store.rollouts()) == left


def test_thread_that_a_fork_rests_on_needs_cascade(rollout: Run, store: Home) -> None:
    """Exit code 7 names the fork; with --cascade that is made self-contained."""
    fork = make_fork(store.find_thread(A), place_of(store, C), thread_id=C, home=store, mode="reference")
    shown = rollout("show", C, "--json").stdout
    done = rollout("delete", A, "-y")
    assert done.returncode == ExitCode.REFUSED
    assert C.encode() in done.stderr
    assert b"--cascade" in done.stderr
    (looked,) = objects(rollout("delete", A, "--dry-run", "--json").stdout)
    assert looked["referenced_by"] == [C]
    assert fork.path.encode() in rollout("delete", A, "--cascade", "-y").stdout
    assert _texts(rollout("show", C, "--json").stdout) == _texts(shown)


def _texts(output: bytes) -> list[str]:
    return [each["text"] for each in objects(output) if each.get("record_type") == "response_item"]


# Prune


@pytest.mark.case("B106")
def test_prune_says_what_it_would_take_and_takes_nothing(rollout: Run, store: Home) -> None:
    """A line a thread, a sum, and how to do it."""
    before = {path: path.stat().st_mtime_ns for path in store.path.rglob("*")}
    done = rollout("prune", "--older-than", "30d")
    assert done.returncode == 0
    assert done.stdout.split()[0].decode() == A
    assert b"1 thread would go" in done.stderr
    assert b"nothing was changed" in done.stderr
    assert {path: path.stat().st_mtime_ns for path in store.path.rglob("*")} == before


def test_prune_with_a_yes_takes_it(rollout: Run, store: Home) -> None:
    """And says what is free now."""
    done = rollout("prune", "--older-than", "30d", "-y")
    assert b"1 thread deleted" in done.stdout
    assert [each.name.thread_id for each in store.rollouts()] == [B]
    assert b"there is nothing to prune" in rollout("prune", "--older-than", "30d").stderr


def test_prune_as_json_ends_in_a_sum(rollout: Run, store: Home) -> None:
    """What stays though a limit would take it is told with the reason."""
    lock = ThreadLocks(store.path).acquire(B)
    try:
        *threads, summary = objects(rollout("prune", "--keep", "0", "--json").stdout)
    finally:
        lock.release()
    assert [each["thread"] for each in threads] == [A]
    assert threads[0]["updated"].endswith("Z")
    assert summary == {
        "v": 1,
        "kind": "pruned",
        "dry_run": True,
        "threads": 1,
        "bytes": store.find_thread(A).stat().st_size,
        "leftovers": 0,
        "blobs": 0,
        "staying": {B: "live"},
    }


# Stats


def test_stats_show_where_the_bytes_are(rollout: Run, store: Home) -> None:
    """A line a kind that has files; as JSON all kinds and a sum."""
    rollout("archive", A)
    shown = rollout("stats").stdout.decode()
    assert [each.split()[0] for each in shown.splitlines()] == ["live", "archived", "locks"]
    *kinds, summary = objects(rollout("stats", "--json").stdout)
    assert {each["what"]: each["files"] for each in kinds if each["files"]} == {
        "live": 1,
        "archived": 1,
        "locks": 1,
    }
    assert (summary["threads"], summary["archived_threads"]) == (2, 1)


def test_stats_of_nothing_are_exit_code_1(rollout: Run, home: Path) -> None:
    """And no home is made."""
    assert rollout("stats").returncode == ExitCode.PROBLEMS
    assert not home.exists()


# Amounts


@pytest.mark.parametrize(
    ("text", "value"), [("90s", 90), ("2h", 7200), ("30d", 2_592_000), ("1.5h", 5400), ("1y", 31_536_000)]
)
def test_age_is_seconds(text: str, value: float) -> None:
    """With a unit."""
    assert parse_age(text) == value


@pytest.mark.parametrize("text", ["", "30", "d", "-1d", "1 month", "1e9d", "٣d"])
@pytest.mark.parametrize("parse", [parse_age])
def test_age_that_is_none_is_refused(text: str, parse: Callable[[str], float]) -> None:
    """A number alone is no age."""
    with pytest.raises(Exception, match="is no age"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "value"), [("0", 0), ("500", 500), ("1k", 1024), ("2G", 2 << 30), ("1.5MiB", 1_572_864)]
)
def test_size_is_bytes(text: str, value: int) -> None:
    """K is 1,024."""
    assert parse_size(text) == value


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1,023 B"), (1024, "1.0 KiB"), (5 << 40, "5.0 TiB")]
)
def test_bytes_are_short(count: int, text: str) -> None:
    """As a person reads them."""
    assert format_bytes(count) == text


# Ctrl-C


def test_interrupt_leaves_the_thread_whole(store: Home, home: Path) -> None:
    """Before or after; exit code 130."""
    path = write_thread(store, C, turns(4000))
    data = path.read_bytes()
    script = (
        "import os, signal, sys; from thread_store.upkeep import successor\n"
        "blocks = successor._raw_blocks\n"
        "def stopped(*arguments):\n"
        "    for block in blocks(*arguments):\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "        yield block\n"
        "successor._raw_blocks = stopped\n"
        "from thread_store.cli.run import run; sys.exit(run(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "compress", C], env=environment(home), capture_output=True, timeout=60
    )
    assert done.returncode in (ExitCode.INTERRUPTED, -signal.SIGINT)
    assert path.read_bytes() == data
    assert not [*store.path.rglob("*.tmp")]
