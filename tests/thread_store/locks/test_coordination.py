"""The coordination lock: one at a time, never waited for without end, and whoever has it is named."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.errors import ActiveWriter, RolloutUnreadable
from protocol.ids import ThreadId
from tests.thread_store.locks.faulty import FaultyLockCalls
from thread_store.locks import LocksBusy, LockState, ThreadLocks
from thread_store.locks.coordination import CoordinationLock
from thread_store.locks.folder import LockFolder

THREAD = ThreadId("01960000-0000-7000-8000-000000000101")

_HOLDS = (
    "import fcntl, os, sys; d = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600); "
    "fcntl.flock(d, fcntl.LOCK_EX); print(flush=True); sys.stdin.read()"
)


@pytest.fixture
def calls() -> FaultyLockCalls:
    return FaultyLockCalls()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "thread-writer-locks" / ".coordination.lock"


@pytest.fixture
def coordination(tmp_path: Path, calls: FaultyLockCalls) -> CoordinationLock:
    return CoordinationLock(LockFolder(tmp_path, calls), calls)


@pytest.fixture
def stopped(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that was stopped with the lock in its hands."""
    path.parent.mkdir()
    command = [sys.executable, "-c", _HOLDS, path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGSTOP)
        yield process
        process.kill()


def flocked(path: Path) -> bool:
    """Whether somebody holds it."""
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_lock_is_held_for_the_block_and_its_file_stays(coordination: CoordinationLock, path: Path) -> None:
    """A flock on `.coordination.lock`, as Codex takes it."""
    with coordination.held():
        assert flocked(path)
    assert not flocked(path)
    assert path.read_bytes() == b""


def test_error_in_the_block_gives_it_back(coordination: CoordinationLock, path: Path) -> None:
    """Whatever happens inside."""
    with pytest.raises(KeyError), coordination.held():
        raise KeyError
    assert not flocked(path)


def test_waiting_ends_with_an_error_that_names_the_holder(
    coordination: CoordinationLock, calls: FaultyLockCalls, stopped: subprocess.Popen[bytes]
) -> None:
    """Ten seconds by default, in steps that grow."""
    with pytest.raises(LocksBusy, match=f"pid {stopped.pid}") as caught, coordination.held():
        pass
    assert caught.value.holder.pid == stopped.pid
    assert caught.value.seconds == 10
    assert sum(calls.slept) == pytest.approx(10)
    assert calls.slept[:9] == sorted(calls.slept[:9])
    assert max(calls.slept) < 0.1


def test_stopped_process_stops_nobody_for_ever(
    tmp_path: Path, calls: FaultyLockCalls, stopped: subprocess.Popen[bytes]
) -> None:
    """Acquire and sweep say who it is; a lock that is held verifies and is given back all the same."""
    locks = ThreadLocks(tmp_path, calls=calls)
    for call in (lambda: locks.acquire(THREAD), lambda: locks.take_over(THREAD), locks.sweep):
        with pytest.raises(LocksBusy) as caught:
            call()
        assert caught.value.holder.pid == stopped.pid


def test_look_at_holders_works_while_the_lock_is_stuck(
    tmp_path: Path, calls: FaultyLockCalls, path: Path
) -> None:
    """That is when somebody asks: whoever is seen to hold one is live, of the others nothing is known."""
    locks = ThreadLocks(tmp_path, calls=calls)
    lock = locks.acquire(THREAD)
    (path.parent / "01960000-0000-7000-8000-000000000102.lock").touch()
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        states = {each.thread_id[-1]: each.state for each in locks.holders()}
        assert states == {"1": LockState.LIVE, "2": LockState.UNKNOWN}
        assert sum(calls.slept) == pytest.approx(1)
    lock.release()


def test_release_frees_the_thread_while_the_lock_is_stuck(
    tmp_path: Path, calls: FaultyLockCalls, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The flock is given up though the file can't be removed now; that is said, and nothing is raised."""
    locks = ThreadLocks(tmp_path, calls=calls)
    lock = locks.acquire(THREAD)
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        lock.release()
    assert "its file stays" in caplog.text
    assert not flocked(Path(lock.path))
    assert locks.sweep() == [THREAD]


def test_lock_file_that_was_replaced_while_waiting_is_found_again(
    coordination: CoordinationLock, calls: FaultyLockCalls, path: Path
) -> None:
    """Whoever cleans the home must not leave us waiting for a file that nobody knows any more."""
    path.parent.mkdir()
    path.touch()
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        calls.meanwhile("flock", path.unlink)
        with coordination.held():
            assert flocked(path)
        assert len(calls.slept) == 1


def test_lock_on_a_file_that_lost_its_name_is_none(
    coordination: CoordinationLock, calls: FaultyLockCalls, path: Path
) -> None:
    """Removed between opening and locking: others would lock the one that is made anew."""
    calls.meanwhile("flock", path.unlink)
    with coordination.held():
        assert flocked(path)


def test_planted_link_is_refused(tmp_path: Path, path: Path) -> None:
    """In the place of the coordination lock, too; the error names the path."""
    path.parent.mkdir()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RolloutUnreadable, match="symbolic link") as caught:
        ThreadLocks(tmp_path).acquire(THREAD)
    assert caught.value.path == os.fspath(path)
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("name", ["open", "flock", "make_folder", "fstat", "lstat"])
def test_error_of_the_system_is_told_and_leaves_nothing_locked(
    tmp_path: Path, calls: FaultyLockCalls, path: Path, name: str
) -> None:
    """As our own error, with its number; the next attempt succeeds."""
    locks = ThreadLocks(tmp_path, calls=calls)
    calls.fail(name, errno.EIO)
    with pytest.raises(RolloutUnreadable) as caught:
        locks.acquire(THREAD)
    assert caught.value.errno == errno.EIO
    lock = locks.acquire(THREAD)
    with pytest.raises(ActiveWriter):
        locks.acquire(THREAD)
    lock.release()
    assert not flocked(path)
