"""`rollout record`: lines become records as they come, and whatever ends it, what was accepted is saved."""

from __future__ import annotations

import json
import os
import pty
import resource
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rollout import blocking
from tests.thread_store.conftest import COMMAND, THREAD, Run, environment, line, meta_line, objects, said
from thread_store.cli.failures import ExitCode
from thread_store.locks import ThreadLocks

PATIENCE_SECONDS = 60.0
OWN = ("session_meta", "x_memory", "x_writer")


def note(number: int, size: int = 0) -> bytes:
    """One line of input: an item that tells its number."""
    return json.dumps({"type": "x_note", "payload": {"n": number, "pad": "x" * size}}).encode() + b"\n"


def only_rollout(home: Path) -> Path:
    (path,) = home.rglob("rollout-*.jsonl")
    return path


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a file, as they stand on disk."""
    data = path.read_bytes()
    return [json.loads(each) for each in data[: data.rfind(b"\n") + 1].splitlines()]


def items_of(path: Path) -> list[dict[str, Any]]:
    return [each for each in lines_of(path) if each["type"] not in OWN]


def numbers_in(path: Path) -> list[int]:
    return [each["payload"]["n"] for each in items_of(path)]


def wait_until(holds: Callable[[], bool]) -> None:
    """Poll for what another process does; fails if it never does."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    pause = threading.Event()
    while not holds():
        assert time.monotonic() < deadline, "it never happened"
        pause.wait(0.01)


def _heed_signals() -> None:
    """The tests themselves may run under nohup, or in the background of a script, where some are ignored."""
    for number, _ in SIGNALS:
        signal.signal(number, signal.SIG_DFL)


class Recording:
    """A `rollout record` that is running, its input a pipe."""

    def __init__(
        self, home: Path, cwd: Path, *arguments: str, program: tuple[str, ...] = COMMAND, **settings: Any
    ):
        self.home = home
        self.process = subprocess.Popen(
            [*program, "record", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env=environment(home),
            **{"preexec_fn": _heed_signals, **settings},
        )
        assert self.process.stdin is not None
        self.input = self.process.stdin

    def feed(self, *numbers: int, size: int = 0) -> None:
        self.input.write(b"".join(note(number, size) for number in numbers))
        self.input.flush()

    def has_written(self, *numbers: int) -> bool:
        found = list(self.home.rglob("rollout-*.jsonl"))
        return bool(found) and numbers_in(found[0]) == list(numbers)

    def finish(self) -> tuple[int, bytes, bytes]:
        output, complaints = self.process.communicate(timeout=PATIENCE_SECONDS)
        return self.process.returncode, output, complaints


@pytest.fixture
def start(home: Path, tmp_path: Path) -> Iterator[Callable[..., Recording]]:
    started: list[Recording] = []

    def begin(*arguments: str, **settings: Any) -> Recording:
        recording = Recording(home, tmp_path, *arguments, **settings)
        started.append(recording)
        return recording

    yield begin
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
        for stream in (each.process.stdout, each.process.stderr):
            assert stream is not None
            stream.close()
        try:
            each.input.close()
        except BrokenPipeError:
            continue  # it ended before it had read everything
        finally:
            each.process.wait(PATIENCE_SECONDS)


# What becomes of the input


def test_items_are_recorded_in_order_and_acknowledged(rollout: Run, home: Path) -> None:
    """Items of a pipe come into a new rollout of the home; the answer names thread, file and offset."""
    done = rollout("record", "--json", input=note(1) + note(2))
    (answer,) = objects(done.stdout)
    path = only_rollout(home)
    assert (done.returncode, done.stderr) == (0, b"")
    assert numbers_in(path) == [1, 2]
    assert answer == {
        "v": 1,
        "kind": "recorded",
        "thread": path.stem[-36:],
        "path": str(path),
        "lines": 2,
        "bad_lines": 0,
        "items": 2,
        "synced_bytes": path.stat().st_size,
        "stopped_by": None,
        "redactions": {},
    }


def test_answer_for_people_is_one_line(rollout: Run, home: Path) -> None:
    """Without --json it is one line on stdout, and with -q the thread id alone."""
    done = rollout("record", input=note(1))
    path = only_rollout(home)
    said_line = f"{path.stem[-36:]}  1 items, synced to byte {path.stat().st_size:,} of {path}\n"
    assert done.stdout.decode() == said_line
    quiet = rollout("-q", "record", "--thread", "@", input=note(2))
    assert quiet.stdout.decode() == f"{path.stem[-36:]}\n"
    assert quiet.stderr == b""


def test_file_is_read_like_a_pipe(rollout: Run, home: Path, tmp_path: Path) -> None:
    """FILE instead of stdin; a last line without newline counts."""
    (tmp_path / "in.jsonl").write_bytes(note(1) + note(2).rstrip(b"\n"))
    assert rollout("record", "in.jsonl").returncode == 0
    assert numbers_in(only_rollout(home)) == [1, 2]


def test_new_thread_is_about_the_folder(rollout: Run, home: Path, tmp_path: Path) -> None:
    """The meta line tells the working folder, or the one of --cwd."""
    rollout("record", input=note(1))
    rollout("record", "--cwd", "/srv/elsewhere", input=note(1))
    first, second = sorted(home.rglob("rollout-*.jsonl"))
    assert lines_of(first)[0]["payload"]["cwd"] == str(tmp_path)
    assert lines_of(second)[0]["payload"]["cwd"] == "/srv/elsewhere"


def test_whole_envelopes_are_taken_as_items(rollout: Run, home: Path) -> None:
    """Lines of a rollout can be recorded again: their stamp and number are replaced."""
    rollout("record", input=json.dumps(line(99, "response_item", said("user", "hi"))).encode())
    (item,) = items_of(only_rollout(home))
    assert item["ordinal"] == 1
    assert item["timestamp"] > "2026-03-04T05:06:08.000Z"
    assert item["payload"] == said("user", "hi")


@pytest.mark.case("B39")
@pytest.mark.case("B40")
@pytest.mark.case("B47")
def test_payload_is_kept_byte_for_byte(rollout: Run, home: Path) -> None:
    """Separators, lone surrogates, long numbers and escapes are in the file as they came."""
    payload = '{"t":"a\u2028b\\ud83d\\u0000","n":123456789012345678901234567890.10,"e":1E+2}'
    rollout("record", input=f'{{"type":"x_note","payload":{payload}}}\n'.encode())
    assert payload.encode() in only_rollout(home).read_bytes()


def test_text_lines_are_messages_on_both_tracks(rollout: Run, home: Path) -> None:
    """With --text a line is what a user typed; blank lines say nothing, CRLF is one line end."""
    done = rollout("record", "--text", input="run the tests\r\n\n  \ngrüße".encode())
    assert done.returncode == 0
    texts = [
        each["payload"]["message"] for each in items_of(only_rollout(home)) if "message" in each["payload"]
    ]
    assert texts == ["run the tests", "grüße"]
    shown = rollout("show", "@", "--json").stdout
    assert [each["text"] for each in objects(shown) if each["type"] == "user"] == ["run the tests", "grüße"]


def test_text_is_one_turn_from_the_first_line_to_the_end(rollout: Run, home: Path) -> None:
    """Codex shows only what is in a turn; blank lines begin none, and the next call makes its own."""
    rollout("record", "--text", input=b"\n \n")
    assert list(home.rglob("rollout-*.jsonl")) == []
    rollout("record", "--text", input=b"one\ntwo\n")
    rollout("record", "--text", "--thread", "@", input=b"three\n")
    items = [each["payload"] for each in items_of(only_rollout(home))]
    kinds = [
        each["type"] for each in items if each["type"] in ("task_started", "task_complete", "user_message")
    ]
    turn = ["task_started", "user_message", "user_message", "task_complete"]
    assert kinds == [*turn, "task_started", "user_message", "task_complete"]
    ids = [each["turn_id"] for each in items if each["type"] in ("task_started", "task_complete")]
    assert ids[0] == ids[1] != ids[2] == ids[3]
    assert {each["turn_id"] for each in items if each["type"] == "item_completed"} == {ids[0], ids[2]}


def test_refused_text_opens_no_turn_of_its_own(rollout: Run, home: Path) -> None:
    """A line that is no text before the first good one changes nothing about the turn."""
    done = rollout("record", "--text", input=b"\xff\nhello\n")
    assert done.returncode == ExitCode.PROBLEMS
    kinds = [each["payload"]["type"] for each in items_of(only_rollout(home))]
    assert (kinds.count("task_started"), kinds.count("task_complete")) == (1, 1)


def test_turn_of_text_ends_when_a_signal_comes(start: Callable[..., Recording]) -> None:
    """Stopped, the turn is completed before everything is saved."""
    recording = start("--text")
    recording.input.write(b"one\n")
    recording.input.flush()
    wait_until(lambda: any(len(items_of(path)) == 4 for path in recording.home.rglob("rollout-*.jsonl")))
    recording.process.send_signal(signal.SIGTERM)
    assert recording.finish()[0] == 143
    assert items_of(only_rollout(recording.home))[-1]["payload"]["type"] == "task_complete"


def test_new_thread_knows_its_repository(rollout: Run, home: Path, tmp_path: Path) -> None:
    """The branch that the agent works on stands in the meta line."""
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    subprocess.run([*git, "init", "-q", "-b", "topic", "."], cwd=tmp_path, check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], cwd=tmp_path, check=True)
    rollout("record", input=note(1))
    assert lines_of(only_rollout(home))[0]["payload"]["git"]["branch"] == "topic"


@pytest.mark.parametrize("name", [THREAD, "f00d", "@", "PATH"])
def test_existing_thread_is_appended_to(rollout: Run, write: Callable[..., Path], name: str) -> None:
    """--thread takes what every command takes; the old bytes stay, the numbers go on."""
    path = write(meta_line(), line(1, "response_item", said("user", "hi")))
    before = path.read_bytes()
    item = {"type": "response_item", "payload": said("assistant", "yes")}
    done = rollout(
        "record", "--thread", str(path) if name == "PATH" else name, input=json.dumps(item).encode()
    )
    assert done.returncode == 0
    assert path.read_bytes().startswith(before)
    assert [each.get("ordinal") for each in items_of(path)] == [1, 2]


def test_bad_lines_are_named_and_the_rest_is_recorded(rollout: Run, home: Path) -> None:
    """Each bad line is told by number and reason; the exit code is 1 and the summary counts."""
    bad = [
        b"not json\n",
        b"[1]\n",
        b'{"payload":1}\n',
        b'{"type":"x_note"}\n',
        b'{"type":"x","payload":NaN}\n',
        b"\xff\n",
    ]
    done = rollout("record", input=note(1) + b"".join(bad) + b"\n \n" + note(2))
    complaints = done.stderr.decode().splitlines()
    assert done.returncode == ExitCode.PROBLEMS
    assert numbers_in(only_rollout(home)) == [1, 2]
    assert [each.partition(" was not recorded: ")[0] for each in complaints[:-1]] == [
        f"rollout: line {number}" for number in range(2, 8)
    ]
    assert complaints[-1] == "rollout: 6 lines were not recorded, 2 were"


def test_bad_lines_with_json_are_objects(rollout: Run) -> None:
    """With --json every complaint is an object on stderr with the line's number."""
    done = rollout("record", "--json", input=b"oops\n" + note(1))
    (warning,) = objects(done.stderr)
    (answer,) = objects(done.stdout)
    assert (warning["kind"], warning["code"], warning["line"]) == ("warning", "not_json", 1)
    assert (answer["lines"], answer["bad_lines"]) == (1, 1)


@pytest.mark.case("B105")
def test_bad_line_cannot_speak_to_the_terminal(rollout: Run) -> None:
    """What a bad line holds is not printed as it is."""
    done = rollout("record", "--thread", "\x1b[31mx", input=b"\x1b[2J\n")
    assert b"\x1b" not in done.stderr


def test_line_beyond_the_limit_is_passed_over(rollout: Run, home: Path) -> None:
    """A line of more than 32 MiB is refused by number, in bounded memory, and the next one is recorded."""
    done = rollout("record", input=note(1) + b"x" * (33 << 20) + b"\n" + note(2))
    assert done.returncode == ExitCode.PROBLEMS
    assert b"line 2 was not recorded: it is longer than" in done.stderr
    assert numbers_in(only_rollout(home)) == [1, 2]


@pytest.mark.parametrize("input", [b"", b"\n\n"])
def test_empty_input_makes_no_file(rollout: Run, home: Path, input: bytes) -> None:
    """A thread that never said anything leaves nothing."""
    done = rollout("record", input=input)
    assert (done.returncode, done.stdout) == (0, b"")
    assert b"nothing to record" in done.stderr
    files = [each.name for each in home.rglob("*") if not each.is_dir()]
    assert files == [".coordination.lock"]


def test_empty_input_leaves_an_existing_file_alone(rollout: Run, write: Callable[..., Path]) -> None:
    """An open that records nothing changes neither bytes nor time."""
    path = write(meta_line())
    before = (path.read_bytes(), path.stat().st_mtime_ns)
    assert rollout("record", "--thread", THREAD).returncode == 0
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before


def test_rollout_is_not_recorded_into_itself(rollout: Run, write: Callable[..., Path]) -> None:
    """That would never end."""
    path = write(meta_line())
    before = path.read_bytes()
    assert rollout("record", path, "--thread", path).returncode == ExitCode.USAGE
    assert path.read_bytes() == before


@pytest.mark.case("B101")
def test_files_are_private_under_any_umask(home: Path, tmp_path: Path) -> None:
    """Files are 0600 and folders 0700, though the umask would allow all."""
    subprocess.run(
        [*COMMAND, "record"],
        input=note(1),
        cwd=tmp_path,
        env=environment(home),
        umask=0,
        check=True,
        timeout=120,
    )
    modes = {stat.S_IMODE(each.stat().st_mode) for each in home.rglob("*") if each.is_file()}
    folders = {stat.S_IMODE(each.stat().st_mode) for each in (home, *home.rglob("*")) if each.is_dir()}
    assert (modes, folders) == ({0o600}, {0o700})


@pytest.mark.case("B44")
def test_file_is_utf8_in_an_ascii_locale(rollout: Run, home: Path) -> None:
    """The locale is about the terminal, never about the file."""
    done = rollout(
        "record", "--text", input="grüße".encode(), LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0"
    )
    assert done.returncode == 0
    assert "grüße".encode() in only_rollout(home).read_bytes()


@pytest.mark.case("B104")
@pytest.mark.parametrize("name", ["../x", "/nowhere/x", "..", "x/../../y.jsonl"])
def test_name_of_a_thread_never_makes_a_path(rollout: Run, tmp_path: Path, name: str) -> None:
    """A name that fits no thread makes no file anywhere."""
    before = sorted(tmp_path.rglob("*"))
    done = rollout("record", "--thread", name, input=note(1))
    assert done.returncode in (ExitCode.NOT_FOUND, ExitCode.DAMAGED)
    assert sorted(tmp_path.rglob("*")) == before


# Others at the same file


@pytest.mark.case("B32")
def test_thread_held_by_another_is_busy(rollout: Run, write: Callable[..., Path]) -> None:
    """The second writer is refused with exit code 6 and told who holds it; nothing is written."""
    path = write(meta_line())
    with blocking.open(path):
        done = rollout("record", "--thread", THREAD, "--json", input=note(1))
    (error,) = objects(done.stderr)
    assert (done.returncode, done.stdout) == (ExitCode.BUSY, b"")
    assert (error["code"], error["retryable"]) == ("active_writer", True)
    assert error["holder"]["pid"] == os.getpid()
    assert len(lines_of(path)) == 1


@pytest.mark.case("B32")
@pytest.mark.parametrize("name", [THREAD, "PATH", "LINKED HOME"])
def test_lock_of_the_thread_keeps_a_second_writer_out(
    rollout: Run, write: Callable[..., Path], home: Path, tmp_path: Path, name: str
) -> None:
    """Whoever holds the thread's lock is named, however the thread was named, through a linked home too."""
    path = write(meta_line())
    (tmp_path / "linked").symlink_to(home)
    words = {"PATH": (str(path),), "LINKED HOME": (THREAD, "--home", str(tmp_path / "linked"))}.get(
        name, (name,)
    )
    lock = ThreadLocks(home).acquire(THREAD)
    done = rollout("record", "--json", "--thread", *words, input=note(1))
    lock.release()
    (error,) = objects(done.stderr)
    assert (done.returncode, error["code"], error["holder"]["pid"]) == (6, "active_writer", os.getpid())
    assert len(lines_of(path)) == 1


def test_recording_holds_the_lock_until_it_ends(start: Callable[..., Recording], rollout: Run) -> None:
    """Meanwhile nobody else gets the thread, and afterwards no lock file is left."""
    recording = start()
    recording.feed(1)
    wait_until(lambda: recording.has_written(1))
    (thread,) = objects(rollout("who", "--json").stdout)
    assert thread["pid"] == recording.process.pid
    assert rollout("record", "--thread", thread["thread"], input=note(2)).returncode == ExitCode.BUSY
    assert recording.finish()[0] == 0
    assert rollout("who").returncode == 1


def test_older_rollout_of_a_reverted_thread_is_refused(rollout: Run, home: Path) -> None:
    """What others rest on isn't appended to: the thread is named by its id, or the file is forked."""
    rollout("record", "--text", input=b"one\ntwo\n")
    older = only_rollout(home)
    assert rollout("revert", f"{older}#5", "-y").returncode == 0
    before = older.read_bytes()
    done = rollout("record", "--thread", older, "--json", input=note(1))
    (error,) = objects(done.stderr)
    assert (done.returncode, error["code"]) == (ExitCode.REFUSED, "not_current_rollout")
    assert Path(error["current_path"]) == next(
        each for each in home.rglob("rollout-*.jsonl") if each != older
    )
    assert older.read_bytes() == before


def test_file_outside_a_home_is_recorded_by_itself(
    rollout: Run, write: Callable[..., Path], home: Path, tmp_path: Path
) -> None:
    """No home is made for it, and no lock file."""
    path = write(meta_line(), path=tmp_path / "alone.jsonl")
    assert rollout("record", "--thread", path, input=note(1)).returncode == 0
    assert numbers_in(path) == [1]
    assert not home.exists()


# As it comes


def test_lines_of_a_slow_pipe_are_written_as_they_come(start: Callable[..., Recording]) -> None:
    """Nobody waits for the end of the input: each line is in the file while the pipe is open."""
    recording = start()
    for count in range(1, 4):
        recording.feed(count)
        wait_until(lambda count=count: recording.has_written(*range(1, count + 1)))  # type: ignore[misc]
    assert recording.finish()[0] == 0


def test_half_a_line_waits_for_its_rest(start: Callable[..., Recording]) -> None:
    """A line is taken when its newline comes, whatever pieces it came in."""
    recording = start()
    recording.feed(1)
    first, second = note(2)[:20], note(2)[20:]
    recording.input.write(first)
    recording.input.flush()
    wait_until(lambda: recording.has_written(1))
    recording.input.write(second)
    recording.input.flush()
    wait_until(lambda: recording.has_written(1, 2))
    assert recording.finish()[0] == 0


SIGNALS = [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]


@pytest.mark.case("B19")
@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_signal_while_waiting_saves_everything(
    start: Callable[..., Recording], number: signal.Signals, code: int
) -> None:
    """What was accepted is synced and the file closed; the exit code tells the signal; the lock is free."""
    recording = start("--json")
    recording.feed(1, 2, 3)
    wait_until(lambda: recording.has_written(1, 2, 3))
    recording.process.send_signal(number)
    returncode, output, complaints = recording.finish()
    (answer,) = objects(output)
    path = only_rollout(recording.home)
    assert (returncode, complaints) == (code, b"")
    assert (answer["items"], answer["stopped_by"]) == (3, number.name)
    assert answer["synced_bytes"] == path.stat().st_size
    assert lines_of(path)[-1]["payload"]["event"] == "closed"
    with blocking.open(path):
        pass


@pytest.mark.case("B19")
@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_signal_in_full_flow_saves_what_it_counts(
    start: Callable[..., Recording], number: signal.Signals, code: int
) -> None:
    """A signal in the middle of much input: exactly the lines that the answer counts are in the file."""
    recording = start("--json")

    def pour() -> None:
        try:
            for number in range(10_000_000):
                recording.feed(number)
        except OSError:  # it stopped reading
            return

    pouring = threading.Thread(target=pour)
    pouring.start()
    wait_until(lambda: bool(list(recording.home.rglob("rollout-*.jsonl"))))
    recording.process.send_signal(number)
    assert recording.process.stdout is not None
    assert recording.process.stderr is not None
    (answer,) = objects(recording.process.stdout.read())
    recording.process.stderr.read()
    assert recording.process.wait(PATIENCE_SECONDS) == code
    pouring.join()
    assert answer["lines"] == answer["items"]
    assert numbers_in(only_rollout(recording.home)) == list(range(answer["items"]))


@pytest.mark.case("B19")
def test_line_cut_by_a_signal_is_not_recorded(start: Callable[..., Recording]) -> None:
    """Half a line is told of and left out."""
    recording = start()
    recording.feed(1)
    recording.input.write(note(2)[:20])
    recording.input.flush()
    wait_until(lambda: recording.has_written(1))
    recording.process.send_signal(signal.SIGTERM)
    assert recording.process.wait(PATIENCE_SECONDS) == 143  # with the pipe still open
    _, _, complaints = recording.finish()
    assert b"line 2 was not recorded: the signal came before its end" in complaints
    assert numbers_in(only_rollout(recording.home)) == [1]


def test_signal_that_was_ignored_stays_ignored(start: Callable[..., Recording]) -> None:
    """Under nohup a hangup ends nothing."""
    recording = start(preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    recording.feed(1)
    wait_until(lambda: recording.has_written(1))
    recording.process.send_signal(signal.SIGHUP)
    recording.feed(2)
    wait_until(lambda: recording.has_written(1, 2))
    assert recording.finish()[0] == 0


@pytest.mark.case("B18")
def test_killed_after_the_first_prompt_keeps_it(start: Callable[..., Recording], rollout: Run) -> None:
    """kill -9 with one flushed message: it is there, and the file is a rollout that can be gone on with."""
    recording = start("--text")
    recording.input.write(b"the only prompt\n")
    recording.input.flush()
    wait_until(lambda: any(len(items_of(path)) == 4 for path in recording.home.rglob("rollout-*.jsonl")))
    recording.process.kill()
    assert recording.finish()[0] == -signal.SIGKILL
    assert b"the only prompt" in rollout("show", "@").stdout
    assert rollout("record", "--text", "--thread", "@", input=b"and on").returncode == 0
    assert rollout("check", "@").returncode == 0


# A disk without room, acted out by a limit on the size of files


def limited(size_bytes: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, resource.RLIM_INFINITY))


@pytest.mark.case("B139")
@pytest.mark.case("B14")
def test_full_disk_is_told_and_waited_for(start: Callable[..., Recording]) -> None:
    """While nothing can be written the command says so and goes on; when there is room nothing was lost."""
    recording = start(preexec_fn=limited(16 << 10))
    recording.feed(1)
    wait_until(lambda: recording.has_written(1))
    recording.feed(*range(2, 40), size=1000)
    assert recording.process.stderr is not None
    trouble = recording.process.stderr.readline()
    assert b"File too large" in trouble
    assert b"wait in memory" in trouble
    resource.prlimit(
        recording.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    )
    recording.feed(40)
    wait_until(lambda: recording.has_written(*range(1, 41)))
    returncode, _, complaints = recording.finish()
    assert returncode == 0
    assert b"writing works again" in complaints


IMPATIENT = (
    sys.executable,
    "-c",
    "import functools, sys\n"
    "from rollout.config import RecorderConfig\n"
    "from thread_store.local_threads import LocalThreads\n"
    "config = RecorderConfig(close_seconds=0.2)\n"
    "LocalThreads.create = functools.partialmethod(LocalThreads.create, config=config)\n"
    "from thread_store.cli import main\n"
    "sys.exit(main())\n",
)


def test_what_can_not_be_written_is_kept_and_named(start: Callable[..., Recording], rollout: Run) -> None:
    """A file that can't be written to the end: exit code 8, and repair brings back what was kept."""
    recording = start("--json", program=IMPATIENT)
    recording.feed(1)
    wait_until(lambda: recording.has_written(1))
    path = only_rollout(recording.home)
    elsewhere = path.rename(path.with_suffix(".moved"))
    recording.feed(2, 3)
    returncode, output, complaints = recording.finish()
    (error,) = (each for each in objects(complaints) if each["kind"] == "error")
    assert (returncode, output) == (ExitCode.SYSTEM, b"")
    assert error["code"] == "unwritten_items"
    assert Path(error["kept_path"]).parent == recording.home / "thread-store" / "kept"
    elsewhere.rename(path)
    assert rollout("repair", path, "--replay", "-y").returncode == 0
    assert numbers_in(path) == [1, 2, 3]


def test_what_can_be_kept_nowhere_is_said_to_be_lost(start: Callable[..., Recording]) -> None:
    """A disk that stays full for the kept file too: the command doesn't pretend otherwise."""
    recording = start(program=IMPATIENT, preexec_fn=limited(16 << 10))
    recording.feed(*range(100), size=1000)
    returncode, output, complaints = recording.finish()
    assert (returncode, output) == (ExitCode.SYSTEM, b"")
    assert b"File too large" in complaints
    assert b"could be kept nowhere" in complaints


# On a terminal


def test_terminal_as_input_gets_a_hint(home: Path, tmp_path: Path) -> None:
    """Who starts it without input is told that it waits, and for what."""
    control, terminal = pty.openpty()
    with subprocess.Popen(
        [*COMMAND, "record"], stdin=terminal, stderr=subprocess.PIPE, cwd=tmp_path, env=environment(home)
    ) as process:
        os.close(terminal)
        assert process.stderr is not None
        assert b"reading from this terminal; end with Ctrl-D" in process.stderr.readline()
        os.write(control, b"\x04")
        process.stderr.read()
        assert process.wait(PATIENCE_SECONDS) == 0
    os.close(control)


def test_long_input_shows_progress_on_a_terminal_only(home: Path, tmp_path: Path) -> None:
    """A progress line is drawn on a terminal's stderr, and taken away again before the answer."""
    (tmp_path / "in.jsonl").write_bytes(b"".join(note(number, 500) for number in range(3000)))
    script = (
        "import sys\nfrom thread_store.cli import main, progress\n"
        "progress._QUIET_SECONDS = 0\nsys.exit(main(['record', 'in.jsonl']))"
    )
    control, terminal = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=terminal,
        cwd=tmp_path,
        env=environment(home, TERM="xterm"),
    ) as process:
        os.close(terminal)
        drawn = b""
        while b"lines" not in drawn:
            drawn += os.read(control, 1 << 16)
        assert process.stdout is not None
        assert b"3,000 items" in process.stdout.read()
        assert process.wait(PATIENCE_SECONDS) == 0
    os.close(control)
    assert len(numbers_in(only_rollout(home))) == 3000
