"""`rollout list`, `rename` and `label` as a person and a program see them."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
from pathlib import Path

import pytest

from tests.thread_store.conftest import COMMAND, Run, environment, objects
from tests.thread_store.listing.homes import HandMadeHome, event, meta, record, typed, uuid
from thread_store.cli.failures import ExitCode
from thread_store.cli.list_view import format_bytes
from thread_store.cli.since import parse_since
from thread_store.locks import ThreadLocks


@pytest.fixture
def made(home: Path) -> HandMadeHome:
    """Five threads: ended, crashed, damaged, archived, and a fork."""
    made = HandMadeHome(home)
    git = {"branch": "main"}
    made.add(1, meta(1, git=git), typed("budget for the cache"), event("task_complete"))
    call = {"type": "function_call", "name": "shell", "call_id": "c", "arguments": "{}"}
    turn = event("task_started", at=11), record("response_item", call, at=11)
    made.add(2, meta(2, at=10), typed("migrate the schema", at=11), *turn, at=10)
    made.write(made.place(3, at=20), b"hello\n", at=20)
    made.add(4, at=30, archived=True)
    fork = {"forked_from_id": uuid(1), "forked_from_ordinal_exclusive": 41}
    made.add(5, meta(5, at=40, **fork), typed("budget", at=41), at=40)
    return made


def test_table_tells_threads_apart(made: HandMadeHome, rollout: Run) -> None:
    """Mark, id, age, items, size, where, state, title; the last written first."""
    done = rollout("list")
    lines = done.stdout.decode().splitlines()
    assert lines[0].split() == ["ID", "AGE", "ITEMS", "SIZE", "WHERE", "STATE", "TITLE"]
    assert [re.sub(r"\s+", " ", each).strip() for each in lines[1:]] == [
        f"⑂ 0005 {_age(lines[1])} {_size(lines[1])} demo ended budget (fork of 00000001#40)",
        f"✗ 0003 {_age(lines[2])} 6 damaged {lines[2].partition('damaged')[2].strip()}",
        f"✗ 0002 {_age(lines[3])} {_size(lines[3])} demo crashed, 1 open migrate the schema",
        f"0001 {_age(lines[4])} {_size(lines[4])} demo@main ended budget for the cache",
    ]
    assert "not one of its lines is valid" in lines[2]
    assert (done.returncode, done.stderr) == (0, b"")


def _age(line: str) -> str:
    return re.findall(r" (\d+[wdhm]|now) ", line)[0]


def _size(line: str) -> str:
    return re.findall(r" (\d+)  demo", line)[0]


def test_json_has_an_object_for_each_thread(made: HandMadeHome, rollout: Run) -> None:
    """With everything that is known; paths and ids as they are."""
    found = objects(rollout("list", "--json", "--all", "--sort", "created").stdout)
    assert [each["id"] for each in found] == [uuid(each) for each in (5, 4, 3, 2, 1)]
    first = found[-1]
    assert (first["v"], first["kind"], first["state"]) == (1, "thread", "ended")
    assert (first["title"], first["branch"], first["cwd"]) == ("budget for the cache", "main", "/srv/demo")
    assert first["path"] == str(made.place(1))
    assert found[0]["parent"] == {"id": uuid(1), "ordinal": 40}
    assert [each["state"] for each in found] == ["ended", "archived", "damaged", "crashed", "ended"]


def test_pages_go_on_by_cursor(made: HandMadeHome, rollout: Run) -> None:
    """The last object says where."""
    seen: list[str] = []
    cursor: tuple[str, ...] = ()
    for _ in range(5):
        found = objects(rollout("list", "--json", "-n", "1", *cursor).stdout)
        seen += [each["id"] for each in found if each["kind"] == "thread"]
        if found[-1]["kind"] != "page":
            break
        cursor = ("--cursor", found[-1]["cursor"])
    assert seen == [uuid(each) for each in (5, 3, 2, 1)]


def test_ids_are_printed_alone(made: HandMadeHome, rollout: Run) -> None:
    """For another command to take."""
    done = rollout("list", "--ids", "-n", "2")
    assert done.stdout.decode().split() == [uuid(5), uuid(3)]


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        (("--archived",), [4]),
        (("--broken",), [3]),
        (("--name", "MIGRATE*"), [2]),
        (("--title", "budget"), [5, 1]),
        (("--source", "cli"), [5, 2, 1]),
        (("--cwd", "/srv/demo"), [5, 2, 1]),
        (("--under", "/srv"), [5, 2, 1]),
        (("--reverse",), [1, 2, 3, 5]),
        (("--sort", "created", "-n", "1"), [5]),
        (("--until", "2026-03-04T04:53:40Z"), [2, 1]),
    ],
)
def test_filters(made: HandMadeHome, rollout: Run, options: tuple[str, ...], numbers: list[int]) -> None:
    """Each as its help says."""
    assert rollout("list", "--ids", *options).stdout.decode().split() == [uuid(each) for each in numbers]


@pytest.mark.parametrize(
    "options", [("--label", "x"), ("--since", "1s"), ("--live",), ("--name", "zz"), ("--here",)]
)
def test_filters_that_leave_nothing_exit_1(
    made: HandMadeHome, rollout: Run, options: tuple[str, ...]
) -> None:
    """As grep does."""
    done = rollout("list", *options)
    assert (done.returncode, done.stdout) == (ExitCode.PROBLEMS, b"")
    assert b"rollout list --all" in done.stderr


def test_empty_home_says_what_to_do(rollout: Run, home: Path) -> None:
    """It is no mistake, and nothing is made."""
    done = rollout("list")
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr.decode() == f"rollout: no threads yet in {home}. Try: rollout record\n"
    assert not home.exists()


def test_current_folder_is_found(made: HandMadeHome, rollout: Run, tmp_path: Path) -> None:
    """The commands of these tests run in that one."""
    made.add(9, meta(9, cwd=str(tmp_path)), typed("here"), at=99)
    assert rollout("list", "--here", "--ids").stdout.decode().split() == [uuid(9)]


def test_live_thread_names_its_writer(made: HandMadeHome, rollout: Run) -> None:
    """And is marked."""
    lock = ThreadLocks(made.path).acquire(uuid(1))
    try:
        assert f"writing pid {os.getpid()}" in rollout("list").stdout.decode()
        assert [each["pid"] for each in objects(rollout("list", "--live", "--json").stdout)] == [os.getpid()]
    finally:
        lock.release()


@pytest.mark.case("B105")
def test_recorded_text_is_harmless_on_a_terminal(made: HandMadeHome, home: Path, tmp_path: Path) -> None:
    """In a title, a folder, a branch; no row is longer than a line, and a footer sums up."""
    evil = "\x1b]0;PWNED\x07\x1b[31m\u202e" + "x" * 300
    made.add(9, meta(9, cwd=f"/srv/{evil}", git={"branch": evil}), typed(evil), at=99)
    leader, follower = pty.openpty()
    command = [*COMMAND, "list", "--color", "never"]
    with subprocess.Popen(
        command,
        stdin=follower,
        stdout=follower,
        stderr=follower,
        cwd=tmp_path,
        env=environment(home, COLUMNS="100"),
    ) as process:
        os.close(follower)
        shown = b""
        try:
            while data := os.read(leader, 4096):
                shown += data
        except OSError:  # Linux says so when the other end is closed
            pass
        os.close(leader)
        assert process.wait() == 0
    lines = shown.decode().replace("\r\n", "\n").splitlines()
    assert "\x1b" not in shown.decode()
    assert all(len(each) <= 100 for each in lines)
    assert lines[-1] == "5 of 6 threads · 1 crashed · 1 damaged · rollout list --all"


def test_corrupt_index_is_a_remark(made: HandMadeHome, rollout: Run) -> None:
    """Once, on stderr; the list is as it was."""
    before = rollout("list").stdout
    made.index.write_bytes(b"x" * 5000)
    done = rollout("list")
    assert done.stdout == before
    assert done.stderr.count(b"\n") == 1
    assert b"index" in done.stderr
    assert rollout("list").stderr == b""


@pytest.mark.parametrize(
    "arguments",
    [
        ("list", "--since", "2 hrs"),
        ("list", "-n", "0"),
        ("list", "--sort", "colour"),
        ("list", "--cursor", "x"),
        ("list", "--here", "--cwd", "/"),
        ("rename", "@", " "),
        ("label", "@", "+a b"),
    ],
)
def test_mistakes_are_one_line(made: HandMadeHome, rollout: Run, arguments: tuple[str, ...]) -> None:
    """Exit code 2 and what to do."""
    done = rollout(*arguments)
    assert done.returncode == ExitCode.USAGE
    assert done.stderr.count(b"\n") == 1


def test_bad_time_is_told_as_such(rollout: Run) -> None:
    done = rollout("list", "--since", "2 hrs")
    assert done.stderr.startswith(b"rollout: bad --since '2 hrs'; use 2h, 3d, yesterday or 2026-11-29.")


# Names and labels


def test_renamed_thread_is_listed_by_its_name(made: HandMadeHome, rollout: Run) -> None:
    """Also one that somebody writes; the rollout stays as it is."""
    before = made.place(1).read_bytes()
    lock = ThreadLocks(made.path).acquire(uuid(1))
    try:
        done = rollout("rename", "0001", "the\x1b[31m cache")
    finally:
        lock.release()
    assert (done.returncode, done.stdout) == (0, b"")
    assert "the cache" in rollout("list").stdout.decode()
    assert made.place(1).read_bytes() == before
    line = json.loads((made.path / "session_index.jsonl").read_bytes())
    assert list(line) == ["id", "thread_name", "updated_at"]
    (found,) = objects(rollout("rename", "0001", "again", "--json").stdout)
    assert (found["kind"], found["thread"], found["name"]) == ("name", uuid(1), "again")


def test_labels_are_put_on_and_taken_off(made: HandMadeHome, rollout: Run) -> None:
    """A minus is no option."""
    assert rollout("label", "0001", "+review", "+draft").stdout == b"draft\nreview\n"
    assert rollout("label", "-draft", "0001", "+keep").stdout == b"keep\nreview\n"
    assert rollout("label", "0001").stdout == b"keep\nreview\n"
    assert rollout("list", "--label", "keep", "--ids").stdout.decode().split() == [uuid(1)]
    (found,) = objects(rollout("label", "0001", "-keep", "--json").stdout)
    assert (found["kind"], found["labels"]) == ("labels", ["review"])
    assert rollout("label", "0001", "--", "-review", "+q").stdout == b"q\n"


@pytest.mark.parametrize("command", [("rename", "x"), ("label", "+x")])
def test_file_outside_a_home_has_no_name(rollout: Run, tmp_path: Path, command: tuple[str, str]) -> None:
    """It is no thread of a home."""
    path = tmp_path / "alone.jsonl"
    path.write_bytes(b"{}\n")
    assert rollout(command[0], path, command[1]).returncode == ExitCode.REFUSED


@pytest.mark.parametrize("command", [("rename", "ffff", "x"), ("label", "ffff", "+x")])
def test_unknown_thread_is_not_found(made: HandMadeHome, rollout: Run, command: tuple[str, ...]) -> None:
    assert rollout(*command).returncode == ExitCode.NOT_FOUND
    assert not (made.path / "session_index.jsonl").exists()


# Times and sizes


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("2h", "2026-03-04T02:53:20.000Z"),
        ("3d", "2026-03-01T04:53:20.000Z"),
        ("90 s", "2026-03-04T04:51:50.000Z"),
        ("2026-03-01T00:00:00+02:00", "2026-02-28T22:00:00.000Z"),
        ("2026-03-01T00:00:00Z", "2026-03-01T00:00:00.000Z"),
        ("2 hrs", None),
        ("", None),
        ("20260301", None),
        ("2026-13-01", None),
        ("-2h", None),
        ("999999w", "1970-01-01T00:00:00.000Z"),
    ],
)
def test_times_as_people_give_them(text: str, found: str | None) -> None:
    assert parse_since(text, now=1_772_600_000) == found


def test_days_are_local(monkeypatch: pytest.MonkeyPatch) -> None:
    """`yesterday` began at local midnight."""
    import time

    monkeypatch.setenv("TZ", "Etc/GMT-5")
    time.tzset()
    try:
        assert parse_since("yesterday", now=1_772_600_000) == "2026-03-02T19:00:00.000Z"
        assert parse_since("today", now=1_772_600_000) == "2026-03-03T19:00:00.000Z"
        assert parse_since("2026-03-01", now=1_772_600_000) == "2026-02-28T19:00:00.000Z"
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0"), (999, "999"), (1000, "1.0K"), (2_202_010, "2.1M"), (10_300, "10K"), (1 << 60, "1048576T")],
)
def test_sizes_are_short(count: int, text: str) -> None:
    assert format_bytes(count) == text
