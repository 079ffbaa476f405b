"""`rollout who` and `rollout unlock`: who writes what, and a thread got back from a writer that hangs."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol import tracks
from protocol.errors import WriterFenced
from tests.thread_store.conftest import COMMAND, Run, environment, objects
from tests.thread_store.histories import history, turns, uuid, write_thread
from thread_store.blocking_thread import BlockingThread
from thread_store.cli.failures import ExitCode
from thread_store.home import Home
from thread_store.local_threads import LocalThreads
from thread_store.locks import ThreadLocks

THREAD = uuid(0xD1)
LEFT_BEHIND = {
    "pid": 1 << 22,
    "host": "here",
    "token": "0" * 32,
    "since": "2026-03-04T05:06:07.000Z",
    "fence": 3,
    "command": "agent",
}


@pytest.fixture
def source(home: Path) -> Path:
    return write_thread(Home(home), THREAD, turns(1))


@pytest.fixture
def writer(home: Path, source: Path) -> Iterator[BlockingThread]:
    """This process, writing the thread."""
    with LocalThreads(Home(home)) as threads:
        thread = BlockingThread(threads.open(THREAD))
        yield thread
        try:
            thread.close()
        except WriterFenced:
            return  # it was taken from us: that is what some tests are about


def leave_lock(home: Path, thread_id: str = THREAD) -> Path:
    """A lock file that nobody holds."""
    path = home / "thread-writer-locks" / f"{thread_id}.lock"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(LEFT_BEHIND))
    return path


# who


def test_nobody_is_exit_code_1(rollout: Run, home: Path) -> None:
    """As grep has it; and the home is left as it was."""
    done = rollout("who")
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.decode() == f"rollout: nobody is writing a thread of {home}\n"
    assert not home.exists()


def test_live_writer_is_named_with_its_newest_item(rollout: Run, writer: BlockingThread) -> None:
    """Thread, process, since when, and how far it got; what waits in it can't be seen from outside."""
    writer.record(tracks.user_message("hello"))
    writer.flush()
    done = rollout("who", "--json")
    (found,) = objects(done.stdout)
    assert done.returncode == 0
    assert (found["kind"], found["thread"], found["pid"]) == ("writer", THREAD, os.getpid())
    assert (found["alive"], found["state"], found["lease"]) == (True, "live", False)
    assert (found["last_ordinal"], found["queued"]) == (11, None)
    assert found["last_ts"] > found["since"][:10]
    heading, row = rollout("who").stdout.decode().splitlines()
    assert heading.split() == ["THREAD", "PID", "HOST", "SINCE", "LAST", "ITEM", "LAG", "COMMAND"]
    assert row.split()[:3] == ["00d1", str(os.getpid()), "here"]
    assert "#11 " in row


def test_lock_of_a_dead_writer_is_told_apart(rollout: Run, home: Path, source: Path) -> None:
    """It is listed as dead, with the command that removes it; looking doesn't."""
    path = leave_lock(home)
    (found,) = objects(rollout("who", "--json").stdout)
    assert (found["alive"], found["state"], found["last_ordinal"]) == (False, "stale", 8)
    row = rollout("who").stdout.decode().splitlines()[1]
    assert "dead" in row
    assert row.endswith("rollout unlock 00d1")
    assert path.exists()


def test_thread_that_has_no_record_yet_is_listed(rollout: Run, home: Path) -> None:
    """A lock comes before the file."""
    lock = ThreadLocks(home).acquire(THREAD)
    (found,) = objects(rollout("who", "--json").stdout)
    lock.release()
    assert (found["thread"], found["last_ordinal"], found["last_ts"]) == (THREAD, None, None)


class Watching:
    """A `rollout who --watch` that is running."""

    def __init__(self, home: Path, cwd: Path, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, "who", "--watch", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env=environment(home),
        )

    def next_line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode()

    def stop(self) -> tuple[int, bytes]:
        self.process.send_signal(signal.SIGINT)
        _, complaints = self.process.communicate(timeout=60)
        return self.process.returncode, complaints


def test_watch_in_a_pipe_prints_changes_until_interrupted(home: Path, source: Path, tmp_path: Path) -> None:
    """Who comes, who gets further, who goes: a line each, and nothing again; Ctrl-C ends it quietly."""
    with LocalThreads(Home(home)) as threads:
        thread = BlockingThread(threads.open(THREAD))
        watching = Watching(home, tmp_path, "--json")
        came = json.loads(watching.next_line())
        thread.record(tracks.user_message("hello"))
        thread.flush()
        further = json.loads(watching.next_line())
        thread.close()
        gone = json.loads(watching.next_line())
    assert [came["state"], further["state"], gone["state"]] == ["live", "live", "gone"]
    assert (came["last_ordinal"], further["last_ordinal"]) == (8, 11)
    assert watching.stop() == (130, b"")


def test_watch_on_a_terminal_is_redrawn(home: Path, tmp_path: Path, writer: BlockingThread) -> None:
    """The table stays in its place, and Ctrl-C ends it."""
    control, terminal = pty.openpty()
    with subprocess.Popen(
        [*COMMAND, "who", "--watch"],
        stdout=terminal,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        env=environment(home, TERM="xterm", COLUMNS="120"),
    ) as process:
        os.close(terminal)
        drawn = b""
        while drawn.count(b"00d1") < 2:
            drawn += os.read(control, 1 << 12)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stderr is not None
        assert process.stderr.read() == b""
    os.close(control)
    assert b"THREAD" in drawn


# unlock


def test_without_force_the_holder_is_named(rollout: Run, writer: BlockingThread) -> None:
    """Exit code 7 and nothing done: the writer goes on."""
    done = rollout("unlock", THREAD)
    assert (done.returncode, done.stdout) == (ExitCode.REFUSED, b"")
    assert f"{THREAD} is held by pid {os.getpid()} on " in done.stderr.decode()
    assert done.stderr.decode().endswith(f"Try: rollout unlock {THREAD} --force\n")
    (error,) = objects(rollout("unlock", THREAD, "--json").stderr)
    assert (error["code"], error["holder"]["pid"]) == ("needs_force", os.getpid())
    writer.record(tracks.user_message("still here"))
    writer.sync()


@pytest.mark.parametrize("force", [(), ("--force",)])
def test_thread_that_nobody_holds_is_left_alone(
    rollout: Run, home: Path, source: Path, force: tuple[str, ...]
) -> None:
    """No lock, no new rollout."""
    done = rollout("unlock", THREAD, *force)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode() == f"nobody holds {THREAD}\n"
    assert list(home.rglob("rollout-*.jsonl")) == [source]


def test_lock_of_a_dead_writer_is_removed(rollout: Run, home: Path, source: Path) -> None:
    """No force is needed for that, and it is said; also where the thread has no record yet."""
    path = leave_lock(home)
    done = rollout("unlock", THREAD)
    assert done.stdout.decode() == f"nobody holds {THREAD}; the lock of a dead writer was removed\n"
    assert not path.exists()
    path.write_text(json.dumps(LEFT_BEHIND))
    source.unlink()
    (found,) = objects(rollout("unlock", "00d1", "--json").stdout)
    assert (found["thread"], found["swept"]) == (THREAD, True)


@pytest.mark.guarantee("G4")
def test_forced_takeover_goes_on_elsewhere(rollout: Run, home: Path, writer: BlockingThread) -> None:
    """It is said from whom, and where the thread goes on; the old writer notices before it writes more."""
    writer.record(tracks.user_message("mine"))
    writer.sync()
    old = Path(writer.path)
    (found,) = objects(rollout("unlock", THREAD, "--force", "--json").stdout)
    assert (found["kind"], found["taken_from"]["pid"], found["late_bytes"]) == ("unlocked", os.getpid(), 0)
    assert Path(found["path"]) == Home(home).find_thread(THREAD) != old
    before = old.read_bytes()
    writer.record(tracks.user_message("too late"))
    with pytest.raises(WriterFenced):
        writer.sync()
    assert old.read_bytes() == before
    assert b"mine" in b"".join(history(found["path"], Home(home)))
    assert rollout("record", "--text", "--thread", THREAD, input=b"next").returncode == 0


def test_late_bytes_are_no_part_of_the_thread_and_reported(
    rollout: Run, home: Path, writer: BlockingThread
) -> None:
    """What a stopped writer still wrote stands behind the base: show leaves it out, check tells of it."""
    old = Path(writer.path)
    rollout("unlock", THREAD, "--force")
    late = b'{"timestamp":"2026-03-04T05:06:09.000Z","ordinal":9,"type":"x_note","payload":{"late":1}}\n'
    with old.open("ab") as file:
        file.write(late)
    assert b"late" not in rollout("show", THREAD, "--view", "full").stdout
    done = rollout("check", THREAD, "--json")
    (finding, _) = objects(done.stdout)
    assert done.returncode == 0
    assert (finding["check"], finding["level"], finding["lost_bytes"]) == ("late_bytes", "warn", len(late))
    assert str(old) in finding["message"]


def test_recording_that_loses_its_lock_ends_once(
    home: Path, source: Path, tmp_path: Path, rollout: Run
) -> None:
    """`rollout record` says in one line that the thread was taken from it."""
    recording = subprocess.Popen(
        [*COMMAND, "record", "--text", "--thread", THREAD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        env=environment(home),
    )
    while not objects(rollout("who", "--json").stdout):
        assert recording.poll() is None
    assert rollout("unlock", THREAD, "--force").returncode == 0
    output, complaints = recording.communicate(b"too late\n", timeout=60)
    assert (recording.returncode, output) == (ExitCode.BUSY, b"")
    assert complaints.count(b"\n") == 1
    assert b"lost its lock" in complaints


def test_closed_pipe_ends_watching(home: Path, tmp_path: Path, writer: BlockingThread) -> None:
    """Whoever reads it may stop: exit code 141, no complaint."""
    watching = Watching(home, tmp_path, "--json")
    watching.next_line()
    assert watching.process.stdout is not None
    watching.process.stdout.close()
    writer.record(tracks.user_message("more"))
    writer.flush()
    assert watching.process.wait(60) == ExitCode.CLOSED_PIPE
    assert watching.process.stderr is not None
    assert watching.process.stderr.read() == b""
    watching.process.stderr.close()
