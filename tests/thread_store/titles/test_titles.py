"""Names, prompts and labels: what is appended to the small files that several programs share."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import InvalidThreadId, RolloutUnreadable, RolloutWriteError
from thread_store.titles.prompt_history import Prompt, PromptHistory
from thread_store.titles.session_index import NAME_CHARS_MAX, SessionIndex, read_names
from thread_store.titles.shared_file import ATTEMPTS, SharedCalls, SharedFile
from thread_store.titles.thread_labels import ThreadLabels

THREAD = "01960000-0000-7000-8000-000000000001"
OTHER = "01960000-0000-7000-8000-000000000002"


class Calls(SharedCalls):
    """Counts the pauses instead of making them, and fails where it is told to."""

    def __init__(self) -> None:
        self.pauses = 0
        self.failing: dict[str, Callable[..., Any]] = {}

    def sleep(self, seconds: float) -> None:
        self.pauses += 1
        if "sleep" in self.failing:
            self.failing["sleep"]()

    def try_lock(self, descriptor: int) -> bool:
        return self.failing["try_lock"]() if "try_lock" in self.failing else super().try_lock(descriptor)

    def write(self, descriptor: int, data: memoryview | bytes) -> int:
        if "write" in self.failing:
            return self.failing["write"](descriptor, data)
        return super().write(descriptor, data)

    def datasync(self, descriptor: int) -> None:
        if "datasync" in self.failing:
            self.failing["datasync"]()
        super().datasync(descriptor)


def test_name_is_written_as_codex_does(tmp_path: Path) -> None:
    """One compact line, keys in that order, non-ASCII as it is."""
    index = SessionIndex(tmp_path)
    assert index.append(THREAD, "  größer \n als ", at_ms=1_772_600_000_123) == "größer als"
    content = (tmp_path / "session_index.jsonl").read_bytes().decode()
    assert content == (
        f'{{"id":"{THREAD}","thread_name":"größer als","updated_at":"2026-03-04T04:53:20.123Z"}}\n'
    )
    assert index.names() == {THREAD: "größer als"}


def test_prompt_is_written_as_codex_does(tmp_path: Path) -> None:
    """Seconds since the epoch, the text as it was typed."""
    history = PromptHistory(tmp_path)
    history.append(THREAD, "a\nb", at_seconds=7)
    assert (tmp_path / "history.jsonl").read_text() == f'{{"session_id":"{THREAD}","ts":7,"text":"a\\nb"}}\n'
    with (tmp_path / "history.jsonl").open("a") as file:
        file.write(f'torn\n\n{{"conversation_id":"{OTHER}","ts":8,"text":"old form"}}\n')
    assert history.prompts() == [Prompt(THREAD, 7, "a\nb"), Prompt(OTHER, 8, "old form")]


@pytest.mark.case("B40")
@pytest.mark.parametrize("text", ["\ud800", "\0", "\u2028", "é🙂", '"\\', "x" * 3_000_000])
def test_any_prompt_comes_back(tmp_path: Path, text: str) -> None:
    """On one line, whatever it holds; what no reader of bytes can take says nothing."""
    history = PromptHistory(tmp_path)
    history.append(THREAD, text, at_seconds=1)
    history.append(THREAD, "next", at_seconds=2)
    assert (tmp_path / "history.jsonl").read_bytes().count(b"\n") == 2
    assert history.prompts()[-1].text == "next"
    assert json.loads((tmp_path / "history.jsonl").read_bytes().split(b"\n")[0])["text"] == text


@pytest.mark.parametrize(
    ("lines", "name"),
    [
        (['{"id":"%s","thread_name":"a","updated_at":""}', '{"id":"%s","thread_name":"b"}'], "b"),
        (['{"id":"%s","thread_name":"a"}', '{"id":"%s","thread_name":"  "}'], "a"),
        (['{"id":"%s","thread_name":"a"}', '{"id":"%s","thread_na'], "a"),
        (['{"id":"%s","thread_name":7}', "[]", "", "null"], None),
        (['{"id":"%s","thread_name":"a"}\r'], "a"),
        (['{"thread_name":"a","extra":{"x":[]},"id":"%s"}'], "a"),
    ],
)
def test_last_line_that_says_something_wins(lines: list[str], name: str | None) -> None:
    """Bad lines and blank names say nothing."""
    content = "\n".join(each.replace("%s", THREAD.upper()) for each in lines).encode()
    assert read_names(content).get(THREAD) == name


@given(st.binary(max_size=200))
def test_any_bytes_are_read(content: bytes) -> None:
    """Nothing raises."""
    read_names(content)


@pytest.mark.parametrize("name", ["", " ", "\n\t", "\u2003"])
def test_blank_name_is_refused(tmp_path: Path, name: str) -> None:
    """Nothing is written."""
    with pytest.raises(ValueError, match="blank"):
        SessionIndex(tmp_path).append(THREAD, name)
    assert list(tmp_path.iterdir()) == []


def test_long_name_is_cut(tmp_path: Path) -> None:
    """It is one line of a list."""
    assert len(SessionIndex(tmp_path).append(THREAD, "x" * 10_000)) == NAME_CHARS_MAX


@pytest.mark.case("B104")
@pytest.mark.parametrize("thread_id", ["../x", "", "x\0", "/etc/passwd"])
def test_id_that_is_none_is_refused(tmp_path: Path, thread_id: str) -> None:
    """By all three."""
    for append in (SessionIndex(tmp_path).append, PromptHistory(tmp_path).append):
        with pytest.raises(InvalidThreadId):
            append(thread_id, "x")
    with pytest.raises(InvalidThreadId):
        ThreadLabels(tmp_path).change(thread_id, add=["x"])


@pytest.mark.case("B101")
def test_files_are_private_under_any_umask(tmp_path: Path) -> None:
    """Files 0600, folders 0700; a file that was open to others is closed."""
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    (home / "history.jsonl").touch(mode=0o644)
    before = os.umask(0)
    try:
        SessionIndex(home).append(THREAD, "x")
        PromptHistory(home).append(THREAD, "x")
        ThreadLabels(home).change(THREAD, add=["x"])
    finally:
        os.umask(before)
    for path in home.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


@pytest.mark.parametrize("half", [b'{"id":"x","thread_na', b"\0\0\0"])
def test_line_that_somebody_left_unfinished_stays_apart(tmp_path: Path, half: bytes) -> None:
    """Ours begins on a line of its own; their bytes stay."""
    path = tmp_path / "session_index.jsonl"
    path.write_bytes(half)
    index = SessionIndex(tmp_path)
    index.append(THREAD, "mine")
    assert path.read_bytes().startswith(half + b"\n{")
    assert index.names() == {THREAD: "mine"}


@pytest.mark.parametrize(
    "failing",
    [
        {"write": lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full"))},
        {"write": lambda descriptor, data: os.write(descriptor, bytes(data)[:5])},
        {"datasync": lambda: (_ for _ in ()).throw(OSError(errno.EIO, "broken"))},
    ],
    ids=["full", "short", "unsynced"],
)
def test_failed_append_leaves_nothing(tmp_path: Path, failing: dict[str, Callable[..., Any]]) -> None:
    """It says so, and what was there is as it was."""
    calls = Calls()
    index = SessionIndex(tmp_path, calls=calls)
    index.append(THREAD, "first")
    before = (tmp_path / "session_index.jsonl").read_bytes()
    calls.failing = failing
    with pytest.raises(RolloutWriteError) as caught:
        index.append(THREAD, "second")
    assert "Nothing was written" in caught.value.hint
    assert (tmp_path / "session_index.jsonl").read_bytes() == before
    calls.failing = {}
    index.append(THREAD, "third")
    assert index.names() == {THREAD: "third"}


@pytest.mark.parametrize(
    ("make", "locked"), [(SessionIndex, "session_index.jsonl.lock"), (PromptHistory, "history.jsonl")]
)
def test_lock_of_another_program_is_waited_for(tmp_path: Path, make: Any, locked: str) -> None:
    """Until it is given back; for about a second, then it is an error."""
    (tmp_path / locked).touch(mode=0o600)
    with (tmp_path / locked).open() as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        calls = Calls()
        with pytest.raises(RolloutWriteError, match="locked"):
            make(tmp_path, calls=calls).append(THREAD, "x")
        assert calls.pauses == ATTEMPTS - 1
        calls.failing["sleep"] = lambda: fcntl.flock(holder, fcntl.LOCK_UN)
        make(tmp_path, calls=calls).append(THREAD, "x")
    assert THREAD in (tmp_path / locked.removesuffix(".lock")).read_text()


def test_file_that_was_replaced_while_its_lock_was_taken_is_opened_anew(tmp_path: Path) -> None:
    """An erase puts a new file in its place: the line goes into that one."""
    history, calls = tmp_path / "history.jsonl", Calls()
    history.write_bytes(b"old\n")

    def replace_once() -> bool:
        calls.failing.clear()
        (tmp_path / "new").write_bytes(b"new\n")
        (tmp_path / "new").rename(history)
        return True

    calls.failing["try_lock"] = replace_once
    PromptHistory(tmp_path, calls=calls).append(THREAD, "x", at_seconds=1)
    assert history.read_bytes().startswith(b"new\n{")


def test_file_system_without_flock_is_appended_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """O_APPEND keeps the lines apart."""

    def unsupported(*given: object) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    SessionIndex(tmp_path).append(THREAD, "x")
    assert SessionIndex(tmp_path).names() == {THREAD: "x"}


@pytest.mark.case("B97")
@pytest.mark.parametrize("name", ["session_index.jsonl", "session_index.jsonl.lock", "history.jsonl"])
def test_planted_link_is_not_written_through(tmp_path: Path, name: str) -> None:
    """It is refused, and its target stays."""
    target = tmp_path / "target"
    target.write_bytes(b"precious\n")
    home = tmp_path / "home"
    home.mkdir()
    (home / name).symlink_to(target)
    with pytest.raises(RolloutWriteError):
        (PromptHistory(home) if name.startswith("h") else SessionIndex(home)).append(THREAD, "x")
    assert target.read_bytes() == b"precious\n"


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_what_is_no_file_is_not_read(tmp_path: Path, make: Callable[[str], None]) -> None:
    """A folder or a pipe in its place is an error, and nothing hangs."""
    make(str(tmp_path / "session_index.jsonl"))
    with pytest.raises(RolloutUnreadable):
        SessionIndex(tmp_path).names()


def test_many_processes_append_without_loss(tmp_path: Path) -> None:
    """Each line whole, none missing."""
    script = """
        import sys
        from thread_store.titles.session_index import SessionIndex
        from thread_store.titles.thread_labels import ThreadLabels
        for number in range(20):
            SessionIndex(sys.argv[1]).append(sys.argv[2], f"{sys.argv[3]} {number}")
        ThreadLabels(sys.argv[1]).change(sys.argv[2], add=[sys.argv[3]])
    """
    command = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path), THREAD]
    running = [subprocess.Popen([*command, f"p{number}"]) for number in range(4)]
    assert [each.wait() for each in running] == [0] * 4
    lines = (tmp_path / "session_index.jsonl").read_text().splitlines()
    names = sorted(json.loads(each)["thread_name"] for each in lines)
    assert names == sorted(f"p{writer} {number}" for writer in range(4) for number in range(20))
    assert ThreadLabels(tmp_path).labels() == {THREAD: ["p0", "p1", "p2", "p3"]}


# Labels


def test_labels_stick_and_come_off(tmp_path: Path) -> None:
    """A change that changes nothing writes nothing."""
    labels = ThreadLabels(tmp_path)
    assert labels.change(THREAD, add=["b", "a"]) == ["a", "b"]
    assert labels.change(THREAD, add=["c"], remove=["a"]) == ["b", "c"]
    size = Path(labels.path).stat().st_size
    assert labels.change(THREAD, add=["c"], remove=["zz"]) == ["b", "c"]
    assert Path(labels.path).stat().st_size == size
    assert labels.labels() == {THREAD: ["b", "c"]}


def test_label_made_by_another_meanwhile_is_kept(tmp_path: Path) -> None:
    """Lines tell of changes, not of what somebody thought there was."""
    labels = ThreadLabels(tmp_path)
    labels.change(THREAD, add=["mine"])
    line = {"id": THREAD, "add": ["theirs"], "remove": [], "updated_at": ""}
    SharedFile(labels.path).append(json.dumps(line).encode() + b"\n")
    labels.change(THREAD, add=["more"])
    assert labels.labels() == {THREAD: ["mine", "more", "theirs"]}


@pytest.mark.parametrize("label", ["", "a b", "\t", "x" * 61, "\x1b[31m", "a\nb", "\u202e"])
def test_what_is_no_word_is_no_label(tmp_path: Path, label: str) -> None:
    """It is shown in a column and typed on a command line."""
    with pytest.raises(ValueError, match="no label"):
        ThreadLabels(tmp_path).change(THREAD, add=[label])
