"""Locks by flock: the protocol that Codex keeps, and what befalls it."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from protocol.errors import ActiveWriter, RolloutUnreadable, WriterFenced
from protocol.ids import ThreadId
from tests.thread_store.locks.faulty import FaultyLockCalls
from thread_store.locks import LockState, ThreadLocks
from thread_store.locks.holder import LockHolder, decode_holder, describe_self, encode_holder

pytestmark = pytest.mark.guarantee("G4")

THREAD = ThreadId("01960000-0000-7000-8000-000000000101")


@pytest.fixture
def calls() -> FaultyLockCalls:
    return FaultyLockCalls()


@pytest.fixture
def locks(tmp_path: Path, calls: FaultyLockCalls) -> ThreadLocks:
    return ThreadLocks(tmp_path, calls=calls)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "thread-writer-locks" / f"{THREAD}.lock"
    path.parent.mkdir()
    return path


def hold(path: Path) -> int:
    """A flock as Codex takes it: the file stays as it is."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return descriptor


def write_holder(path: Path, holder: LockHolder) -> None:
    path.write_bytes(encode_holder(holder))


@pytest.mark.case("B30")
@pytest.mark.parametrize("content", [b"", b"garbage", b'{"pid":'])
def test_flock_decides_whatever_the_file_says(locks: ThreadLocks, path: Path, content: bytes) -> None:
    """An empty file that nobody locked is free at once, with no grace (Codex's are empty)."""
    path.write_bytes(content)
    lock = locks.acquire(THREAD)
    assert lock.fence == 1
    lock.release()


@pytest.mark.case("B30")
def test_empty_file_that_is_flocked_is_held(locks: ThreadLocks, path: Path) -> None:
    """As Codex holds it; the holder is what the system shows."""
    descriptor = hold(path)
    with pytest.raises(ActiveWriter) as caught:
        locks.acquire(THREAD)
    assert (caught.value.holder.pid, caught.value.holder.since) == (os.getpid(), None)
    assert [(each.state, each.holder) for each in locks.holders()] == [(LockState.LIVE, None)]
    assert path.read_bytes() == b""
    os.close(descriptor)


def test_holder_that_leaves_anothers_text_is_named_rightly(locks: ThreadLocks, path: Path) -> None:
    """Codex locks a file that a dead process of ours left, and doesn't touch what it says."""
    write_holder(path, replace(describe_self(fence=1), pid=1))
    descriptor = hold(path)
    with pytest.raises(ActiveWriter) as caught:
        locks.acquire(THREAD)
    assert caught.value.holder.pid == os.getpid()
    os.close(descriptor)


@pytest.mark.case("B28")
def test_stale_file_of_a_living_process_is_free(locks: ThreadLocks, path: Path) -> None:
    """Not the pid decides but the flock; the fence rises over the one that was found."""
    write_holder(path, describe_self(fence=41))
    lock = locks.acquire(THREAD)
    assert lock.fence == 42
    lock.release()


def test_take_over_from_a_holder_that_says_nothing(locks: ThreadLocks, path: Path) -> None:
    """It keeps its flock on a file that has no name any more; the path is ours."""
    descriptor = hold(path)
    lock, old = locks.take_over(THREAD)
    assert old is not None
    assert old.pid == os.getpid()
    assert os.fstat(descriptor).st_nlink == 0
    os.close(descriptor)
    lock.verify()
    lock.release()


def test_file_that_is_unlinked_before_it_is_locked_is_not_the_lock(
    locks: ThreadLocks, calls: FaultyLockCalls, path: Path
) -> None:
    """The inode is compared after locking: nobody can make us hold a file that has no name."""

    def replaced() -> None:
        path.unlink(missing_ok=True)
        path.write_bytes(b"another's")

    calls.meanwhile("flock", lambda: None)  # the coordination lock's
    calls.meanwhile("flock", replaced)
    lock = locks.acquire(THREAD)
    lock.verify()
    written = decode_holder(path.read_bytes())
    assert written is not None
    assert written.token == lock.token
    lock.release()
    assert not path.exists()


def test_file_that_is_replaced_again_and_again_is_given_up(
    locks: ThreadLocks, calls: FaultyLockCalls, path: Path
) -> None:
    """Somebody who fights us has an error, not our endless loop."""
    calls.meanwhile("flock", lambda: None)
    for _ in range(50):
        calls.meanwhile("flock", lambda: path.unlink(missing_ok=True))
    with pytest.raises(RolloutUnreadable, match="keeps replacing"):
        locks.acquire(THREAD)


def test_full_disk_does_not_refuse_the_lock(
    locks: ThreadLocks, calls: FaultyLockCalls, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The flock is the lock; the text only names its holder, and that it couldn't is said."""
    calls.fail("overwrite", errno.ENOSPC)
    lock = locks.acquire(THREAD)
    assert "No space left" in caplog.text
    lock.verify()
    with pytest.raises(ActiveWriter) as caught:
        locks.acquire(THREAD)
    assert caught.value.holder.pid == os.getpid()
    lock.release()


@pytest.mark.parametrize("name", ["unlink", "unlock", "close", "lstat", "open"])
def test_release_says_what_failed_and_frees_the_thread(
    locks: ThreadLocks, calls: FaultyLockCalls, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Never an error, never silence, and the lock is given up."""
    lock = locks.acquire(THREAD)
    calls.fail(name, errno.EIO)
    lock.release()
    assert "Input/output error" in caplog.text
    locks.acquire(THREAD).release()


def test_verify_that_cannot_ask_does_not_say_fenced(locks: ThreadLocks, calls: FaultyLockCalls) -> None:
    """An error of the disk is one; the next answer counts."""
    lock = locks.acquire(THREAD)
    calls.fail("lstat", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        lock.verify()
    lock.verify()
    lock.release()


def test_release_after_a_take_over_leaves_the_new_file(locks: ThreadLocks, path: Path) -> None:
    """The path is unlinked only if it still is our inode."""
    first = locks.acquire(THREAD)
    second, _ = locks.take_over(THREAD)
    first.release()
    second.verify()
    second.release()
    assert not path.exists()


def test_take_over_that_dies_half_way_leaves_the_thread_free(
    locks: ThreadLocks, calls: FaultyLockCalls, path: Path
) -> None:
    """After the unlink, before the new file: the old holder is fenced, the next one acquires."""
    first = locks.acquire(THREAD)
    calls.meanwhile("unlink", lambda: calls.fail("open", errno.EIO))
    with pytest.raises(RolloutUnreadable):
        locks.take_over(THREAD)
    with pytest.raises(WriterFenced, match="removed"):
        first.verify()
    locks.acquire(THREAD).release()
    first.release()


def test_lease_of_another_system_is_respected(locks: ThreadLocks, path: Path) -> None:
    """A host without flock holds it as a lease: that it can be flocked here proves nothing."""
    write_holder(path, replace(describe_self(fence=1, lease=True), host="elsewhere"))
    with pytest.raises(ActiveWriter) as caught:
        locks.acquire(THREAD)
    assert caught.value.holder.host == "elsewhere"
    assert locks.sweep() == []
    assert [each.state for each in locks.holders()] == [LockState.LIVE]
    lock, old = locks.take_over(THREAD)
    assert old is not None
    assert (old.host, lock.fence) == ("elsewhere", 2)
    lock.release()


@pytest.mark.case("B28")
def test_lease_of_the_dead_is_reclaimed_by_flock(locks: ThreadLocks, path: Path) -> None:
    """Where flock came back, a lease whose process is gone is as stale as any file."""
    own = describe_self(fence=5, lease=True)
    assert own.started is not None
    write_holder(path, replace(own, started=own.started - 1))
    assert [each.state for each in locks.holders()] == [LockState.STALE]
    lock = locks.acquire(THREAD)
    assert lock.fence == 6
    lock.release()


@pytest.mark.case("B36")
def test_fork_while_a_lock_file_is_being_opened_gives_the_child_no_lock(
    locks: ThreadLocks, calls: FaultyLockCalls, path: Path, tmp_path: Path
) -> None:
    """The child inherits an opening that it doesn't know; the parent opens anew before it locks."""
    os.mkfifo(tmp_path / "pipe")
    children: list[int] = []

    def fork() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            try:
                (tmp_path / "pipe").read_bytes()
            finally:
                os._exit(0)
        children.append(pid)

    calls.after["open"] = [lambda: None, fork]  # the first one is the coordination lock's
    lock = locks.acquire(THREAD)
    # As a kill does, and unlike release: no unlocking, only the descriptors of this process go.
    os.close(lock._file._descriptor)  # type: ignore[attr-defined]
    lock._file._descriptor = -1  # type: ignore[attr-defined]
    try:
        locks.acquire(THREAD).release()
    finally:
        (tmp_path / "pipe").write_bytes(b"end")
        os.waitpid(children[0], 0)


def test_many_threads_take_turns(tmp_path: Path) -> None:
    """One at a time in one process, too, and all of them get it."""
    inside: list[int] = []
    got: list[int] = []

    def fight(number: int) -> None:
        locks = ThreadLocks(tmp_path)
        while number not in got:
            try:
                lock = locks.acquire(THREAD)
            except ActiveWriter:
                continue
            inside.append(number)
            os.listdir(tmp_path)  # lets the others run
            assert inside == [number]
            got.append(number)
            inside.clear()
            lock.release()

    run_all([lambda number=number: fight(number) for number in range(8)])
    assert sorted(got) == list(range(8))


def run_all(works: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_lock_that_is_refused_once_is_no_file_system_without_flock(
    locks: ThreadLocks, calls: FaultyLockCalls, path: Path
) -> None:
    """Under the coordination lock, which is flocked, ENOLCK passes; leases would find a file in their way."""
    locks.acquire(THREAD).release()
    calls.before["flock"] = [lambda: None, lambda: _refuse(errno.ENOLCK)]
    with pytest.raises(RolloutUnreadable):
        locks.acquire(THREAD)
    lock = locks.acquire(THREAD)
    assert not lock.holder.lease
    lock.release()


def _refuse(number: int) -> None:
    raise OSError(number, os.strerror(number))


@pytest.mark.guarantee("G2")
def test_name_of_a_new_home_is_synced_before_anything_stands_in_it(tmp_path: Path) -> None:
    """Who comes later finds the home there, and only looks at what is below it."""
    calls = FaultyLockCalls()
    home = tmp_path / "new" / "home"
    calls.fail("sync_folder", errno.EIO)
    locks = ThreadLocks(home, calls=calls)
    with pytest.raises(RolloutUnreadable):
        locks.acquire(THREAD)
    assert home.is_dir()
    assert not (home / "thread-writer-locks").exists()
    synced: list[str] = []
    calls.sync_folder = synced.append  # type: ignore[method-assign]
    locks.acquire(THREAD).release()
    assert synced == [str(home.parent)]


def test_folder_above_the_home_that_is_not_ours_to_sync_is_no_obstacle(tmp_path: Path) -> None:
    """A home below a folder that may not be read works as ever."""
    calls = FaultyLockCalls()
    calls.fail("sync_folder", errno.EACCES)
    ThreadLocks(tmp_path, calls=calls).acquire(THREAD).release()
