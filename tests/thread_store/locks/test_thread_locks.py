"""One writer a thread, over processes: by flock, and by leases where there is none. Each promise for both."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from protocol.errors import ActiveWriter, InvalidThreadId, RolloutUnreadable, WriterFenced
from protocol.ids import ThreadId
from tests.thread_store.locks.holding import Holding, calls_of
from thread_store.locks import LockState, ThreadLocks, WriterLock
from thread_store.locks.holder import decode_holder

pytestmark = pytest.mark.guarantee("G4")

THREAD = ThreadId("01960000-0000-7000-8000-000000000101")
OTHER = ThreadId("01960000-0000-7000-8000-000000000102")


@pytest.fixture(params=["flock", "lease"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def locks(home: Path, kind: str) -> ThreadLocks:
    return ThreadLocks(home, calls=calls_of(kind))


@pytest.fixture
def hold(home: Path, kind: str) -> Iterator[Callable[[], Holding]]:
    """Begin another process that holds the thread's lock."""
    begun: list[Holding] = []

    def begin() -> Holding:
        begun.append(Holding(home, THREAD, kind))
        return begun[-1]

    yield begin
    for each in begun:
        each.kill()


def lock_file(home: Path, thread_id: str = THREAD) -> Path:
    return home / "thread-writer-locks" / f"{thread_id}.lock"


def files_in(home: Path) -> list[str]:
    """Lock files and what belongs to them; the coordination lock always stays."""
    return sorted(set(os.listdir(home / "thread-writer-locks")) - {".coordination.lock"})


def in_child(work: Callable[[], bool]) -> bool:
    """Whether `work` said yes in a forked child."""
    with warnings.catch_warnings():
        # The heartbeat of leases is a second thread; the child does nothing that it could have stopped.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        done = False
        try:
            done = work()
        finally:
            os._exit(0 if done else 1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def is_fenced(lock: WriterLock) -> bool:
    try:
        lock.verify()
    except WriterFenced:
        return True
    return False


@pytest.mark.case("B25")
def test_lock_file_names_its_holder(locks: ThreadLocks, home: Path) -> None:
    """Pid, host, since and command stand in it, with a random token and a fence."""
    lock = locks.acquire(THREAD)
    written = decode_holder(lock_file(home).read_bytes())
    assert written == lock.holder
    assert written is not None
    assert (written.pid, written.host, written.fence) == (os.getpid(), os.uname().nodename, 1)
    assert len(written.token) == 32
    assert written.command
    lock.verify()
    lock.release()


def test_release_leaves_no_file(locks: ThreadLocks, home: Path) -> None:
    """Whatever was made for a lock is gone when it is given back; a second release does nothing."""
    lock = locks.acquire(THREAD)
    lock.release()
    assert files_in(home) == []
    again = locks.acquire(THREAD)
    lock.release()
    again.verify()
    again.release()


def test_released_lock_verifies_no_more(locks: ThreadLocks) -> None:
    """Who gave it back doesn't write any more, also after it was taken again."""
    lock = locks.acquire(THREAD)
    lock.release()
    again = locks.acquire(THREAD)
    with pytest.raises(WriterFenced, match="released"):
        lock.verify()
    again.release()


@pytest.mark.case("B35")
def test_second_acquisition_in_one_process_is_refused(locks: ThreadLocks, home: Path, kind: str) -> None:
    """Through the same object and through another one, naming this process."""
    lock = locks.acquire(THREAD)
    for other in (locks, ThreadLocks(home, calls=calls_of(kind))):
        with pytest.raises(ActiveWriter) as caught:
            other.acquire(THREAD)
        assert caught.value.holder.pid == os.getpid()
        assert caught.value.thread_id == THREAD
    lock.verify()
    lock.release()


@pytest.mark.case("B32")
def test_second_process_is_told_who_holds_it(
    locks: ThreadLocks, home: Path, kind: str, hold: Callable[[], Holding]
) -> None:
    """Also through a symlinked home: pid, host, since and command."""
    holding = hold()
    (home.parent / "link").symlink_to(home)
    for other in (locks, ThreadLocks(home.parent / "link", calls=calls_of(kind))):
        with pytest.raises(ActiveWriter) as caught:
            other.acquire(THREAD)
        named = caught.value.holder
        assert (named.pid, named.host) == (holding.pid, os.uname().nodename)
        assert named.since is not None
        assert "tests.thread_store.locks.holding" in str(named.command)
    holding.end()
    locks.acquire(THREAD).release()


@pytest.mark.case("B28")
def test_killed_holder_is_reclaimed_at_once(locks: ThreadLocks, hold: Callable[[], Holding]) -> None:
    """Its file stays behind; the next one takes it over at the first try, with a higher fence."""
    holding = hold()
    holding.kill()
    lock = locks.acquire(THREAD)
    assert lock.fence == 2
    lock.release()


@pytest.mark.case("B28")
def test_killed_holder_that_nobody_waited_for_is_reclaimed(
    locks: ThreadLocks, hold: Callable[[], Holding]
) -> None:
    """A zombie has a number and holds nothing."""
    holding = hold()
    holding.process.kill()
    os.waitid(os.P_PID, holding.pid, os.WEXITED | os.WNOWAIT)  # dead, and still there as a zombie
    locks.acquire(THREAD).release()


def test_threads_are_locked_apart(locks: ThreadLocks) -> None:
    """Another thread's lock is another lock."""
    first, second = locks.acquire(THREAD), locks.acquire(OTHER)
    first.release()
    second.verify()
    second.release()


@pytest.mark.case("B104")
@pytest.mark.parametrize("text", ["../x", "", "/etc/passwd", "01960000", f"{THREAD}/..", f"{THREAD}\0"])
def test_id_that_is_no_uuid_never_becomes_a_path(locks: ThreadLocks, home: Path, text: str) -> None:
    """Neither to acquire nor to take over; nothing is made."""
    for call in (locks.acquire, locks.take_over):
        with pytest.raises(InvalidThreadId):
            call(text)
    assert not home.exists()


@pytest.mark.case("B101")
@pytest.mark.parametrize("umask", [0, 0o777])
def test_modes_are_private_under_any_umask(locks: ThreadLocks, home: Path, umask: int) -> None:
    """0700 for the folders that were made, 0600 for the files."""
    before = os.umask(umask)
    try:
        lock = locks.acquire(THREAD)
    finally:
        os.umask(before)
    folder = home / "thread-writer-locks"
    assert [each.stat().st_mode & 0o777 for each in (home, folder)] == [0o700, 0o700]
    assert {each.stat().st_mode & 0o777 for each in folder.iterdir()} == {0o600}
    lock.release()


@pytest.mark.case("B29")
@pytest.mark.case("B97")
def test_symlink_as_lock_file_is_refused(locks: ThreadLocks, home: Path, tmp_path: Path) -> None:
    """By acquire, take-over and sweep; what it points at stays as it was."""
    target = tmp_path / "precious"
    target.write_text("precious")
    lock_file(home).parent.mkdir(parents=True)
    lock_file(home).symlink_to(target)
    for call in (locks.acquire, locks.take_over):
        with pytest.raises(RolloutUnreadable, match="symbolic link"):
            call(THREAD)
    assert locks.sweep() == []
    assert [(seen.state, seen.holder) for seen in locks.holders()] == [(LockState.UNKNOWN, None)]
    assert target.read_text() == "precious"
    assert lock_file(home).is_symlink()


@pytest.mark.case("B97")
@pytest.mark.parametrize("what", ["folder", "pipe"])
def test_what_is_no_file_is_refused_as_lock(locks: ThreadLocks, home: Path, what: str) -> None:
    """The error says what stands there; nothing hangs and nothing is removed."""
    lock_file(home).parent.mkdir(parents=True)
    lock_file(home).mkdir() if what == "folder" else os.mkfifo(lock_file(home))
    for call in (locks.acquire, locks.take_over):
        with pytest.raises(RolloutUnreadable, match=f"a {what}, not a lock file"):
            call(THREAD)
    assert locks.sweep() == []
    assert lock_file(home).exists()


@pytest.mark.case("B97")
def test_planted_link_in_place_of_the_folder_is_refused(
    locks: ThreadLocks, home: Path, tmp_path: Path
) -> None:
    """Nothing is made where it points."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    home.mkdir()
    (home / "thread-writer-locks").symlink_to(elsewhere)
    for call in (lambda: locks.acquire(THREAD), locks.sweep, locks.holders):
        with pytest.raises(RolloutUnreadable, match="symbolic link"):
            call()
    assert list(elsewhere.iterdir()) == []


@pytest.mark.case("B97")
def test_lock_file_with_another_name_is_never_written_into(
    locks: ThreadLocks, home: Path, tmp_path: Path
) -> None:
    """A hard link to another file stands there: the lock is a new file, the other one keeps its content."""
    target = tmp_path / "precious"
    target.write_text("precious")
    os.utime(target, (0, 0))
    lock_file(home).parent.mkdir(parents=True)
    os.link(target, lock_file(home))
    lock = locks.acquire(THREAD)
    assert target.read_text() == "precious"
    lock.verify()
    lock.release()
    assert files_in(home) == []


def test_lock_file_that_was_removed_fences(locks: ThreadLocks, home: Path) -> None:
    """Whoever has no file any more must not write, and stays fenced; release takes it calmly."""
    lock = locks.acquire(THREAD)
    lock_file(home).unlink()
    for _ in range(2):
        with pytest.raises(WriterFenced, match="removed") as caught:
            lock.verify()
    assert caught.value.holder.pid is None
    lock.release()
    locks.acquire(THREAD).release()


def test_lost_lock_is_never_found_again(locks: ThreadLocks, home: Path) -> None:
    """Not even if the very file comes back to its place."""
    lock = locks.acquire(THREAD)
    lock_file(home).rename(home / "aside")
    assert is_fenced(lock)
    (home / "aside").rename(lock_file(home))
    assert is_fenced(lock)
    lock.release()


def test_something_else_at_the_path_fences(locks: ThreadLocks, home: Path) -> None:
    """A folder or a link in the place of the lock file is no lock of ours."""
    lock = locks.acquire(THREAD)
    lock_file(home).unlink()
    lock_file(home).symlink_to(home / "nothing")
    assert is_fenced(lock)
    lock.release()
    assert lock_file(home).is_symlink()


def test_take_over_fences_a_stopped_holder(locks: ThreadLocks, hold: Callable[[], Holding]) -> None:
    """The one who hangs learns of it when it goes on; its release leaves the new lock alone."""
    holding = hold()
    holding.stop()
    lock, old = locks.take_over(THREAD)
    assert old is not None
    assert old.pid == holding.pid
    assert lock.fence == 2
    holding.go_on()
    assert holding.verify() == "fenced"
    holding.end()
    lock.verify()
    lock.release()


def test_take_over_of_a_free_thread_is_an_acquisition(locks: ThreadLocks, home: Path) -> None:
    """Nobody is named, and the fence begins at 1."""
    lock, old = locks.take_over(THREAD)
    assert (old, lock.fence) == (None, 1)
    lock.release()
    assert files_in(home) == []


@pytest.mark.case("B28")
def test_take_over_from_the_dead_names_nobody(locks: ThreadLocks, hold: Callable[[], Holding]) -> None:
    """Only who may still act is somebody."""
    hold().kill()
    lock, old = locks.take_over(THREAD)
    assert (old, lock.fence) == (None, 2)
    lock.release()


def test_fenced_writer_names_the_new_holder(locks: ThreadLocks) -> None:
    """Error and message say who has it now."""
    first = locks.acquire(THREAD)
    second, old = locks.take_over(THREAD)
    assert old is not None
    with pytest.raises(WriterFenced) as caught:
        first.verify()
    assert caught.value.holder.pid == os.getpid()
    assert caught.value.holder.since == second.holder.since
    assert str(THREAD) in str(caught.value)
    first.release()
    second.verify()
    second.release()


def test_raised_fence_is_what_the_next_holder_exceeds(locks: ThreadLocks, home: Path) -> None:
    """The rollout may know of more writers than the lock file; lowering is not possible."""
    first = locks.acquire(THREAD)
    first.raise_fence(41)
    first.raise_fence(7)
    assert first.fence == 41
    first.verify()
    written = decode_holder(lock_file(home).read_bytes())
    assert written is not None
    assert (written.fence, written.token) == (41, first.token)
    second, _ = locks.take_over(THREAD)
    assert second.fence == 42
    with pytest.raises(WriterFenced):
        first.raise_fence(100)
    first.release()
    second.release()
    assert files_in(home) == []


def test_sweep_removes_what_nobody_holds(locks: ThreadLocks, home: Path, hold: Callable[[], Holding]) -> None:
    """The files of the dead go; held ones, own and others', and foreign names stay."""
    hold().kill()
    lock_file(home).rename(lock_file(home, OTHER))
    holding, lock = hold(), locks.acquire(ThreadId.new())
    foreign = [".hidden", "notes.txt", f"{OTHER}.lock.bak", "name.lock", f"{OTHER}".upper() + ".lock"]
    foreign[4] = foreign[4].replace("01960000", "0196ABCD")
    for name in foreign:
        (lock_file(home).parent / name).touch()
    assert locks.sweep() == [OTHER]
    assert files_in(home) == sorted([lock_file(home).name, Path(lock.path).name, *foreign])
    assert holding.verify() == "ours"
    lock.verify()
    lock.release()


def test_sweep_and_look_make_nothing(locks: ThreadLocks, home: Path) -> None:
    """A home that isn't there stays so."""
    assert locks.sweep() == []
    assert locks.holders() == []
    assert not home.exists()


def test_holders_shows_who_lives_and_who_left_a_file(
    locks: ThreadLocks, home: Path, hold: Callable[[], Holding]
) -> None:
    """Each lock file with its state and holder; nothing is taken from anybody."""
    hold().kill()
    lock_file(home).rename(lock_file(home, OTHER))
    holding = hold()
    seen = {each.thread_id: each for each in locks.holders()}
    assert {thread_id: each.state for thread_id, each in seen.items()} == {
        THREAD: LockState.LIVE,
        OTHER: LockState.STALE,
    }
    assert seen[THREAD].writer.pid == holding.pid
    assert seen[THREAD].holder is not None
    assert holding.verify() == "ours"


def test_looking_at_holders_makes_no_acquisition_fail(locks: ThreadLocks, home: Path, kind: str) -> None:
    """A look while others acquire never makes a free thread seem held."""
    stop = threading.Event()
    looker = ThreadLocks(home, calls=calls_of(kind))

    def look() -> None:
        while not stop.is_set():
            looker.holders()

    thread = threading.Thread(target=look)
    thread.start()
    try:
        for _ in range(100):
            locks.acquire(THREAD).release()
    finally:
        stop.set()
        thread.join()


@pytest.mark.case("B36")
def test_forked_child_that_ends_leaves_the_lock_to_its_parent(
    locks: ThreadLocks, home: Path, kind: str
) -> None:
    """In the child the lock counts as lost and release does nothing; a third process is still refused."""
    lock = locks.acquire(THREAD)

    def work() -> bool:
        fenced = is_fenced(lock)
        lock.release()
        return fenced

    assert in_child(work)
    lock.verify()
    with pytest.raises(ActiveWriter):
        ThreadLocks(home, calls=calls_of(kind)).acquire(THREAD)
    lock.release()
    assert files_in(home) == []


@pytest.mark.case("B36")
def test_forked_child_can_take_locks_of_its_own(locks: ThreadLocks) -> None:
    """It is refused its parent's, and gets another."""
    lock = locks.acquire(THREAD)

    def work() -> bool:
        try:
            locks.acquire(THREAD)
        except ActiveWriter as error:
            other = locks.acquire(OTHER)
            other.verify()
            other.release()
            return error.holder.pid == os.getppid()
        return False

    assert in_child(work)
    lock.verify()
    lock.release()


@pytest.mark.case("B36")
def test_forked_child_that_lives_on_keeps_no_lock_of_its_parent(
    home: Path, kind: str, locks: ThreadLocks, tmp_path: Path
) -> None:
    """The parent is killed, its child is not: the thread is free."""
    os.mkfifo(tmp_path / "pipe")
    script = (
        "import os, signal, sys\n"
        "from tests.thread_store.locks.holding import calls_of\n"
        "from thread_store.locks import ThreadLocks\n"
        "lock = ThreadLocks(sys.argv[1], calls=calls_of(sys.argv[3])).acquire(sys.argv[2])\n"
        "if os.fork() == 0:\n"
        "    print(flush=True)\n"
        "    open(sys.argv[4]).read()\n"
        "    os._exit(0)\n"
        "signal.pause()\n"
    )
    command = [sys.executable, "-c", script, home, THREAD, kind, tmp_path / "pipe"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        try:
            locks.acquire(THREAD).release()
        finally:
            (tmp_path / "pipe").write_text("end")


@pytest.mark.case("B37")
def test_subprocess_that_inherited_the_descriptor_does_not_keep_the_lock(
    locks: ThreadLocks, home: Path
) -> None:
    """Release unlocks explicitly; what a child still has open is nobody's lock."""
    lock = locks.acquire(THREAD)
    passed = [int(name) for name in os.listdir("/proc/self/fd") if _is_of(home, int(name))]
    for descriptor in passed:
        os.set_inheritable(descriptor, True)
    command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=passed) as child:
        lock.release()
        again = locks.acquire(THREAD)
        again.verify()
        again.release()
        child.communicate()


def _is_of(home: Path, descriptor: int) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}").startswith(os.fspath(home))
    except OSError:  # it was the listing's own
        return False


def test_coordinated_work_excludes_other_coordinated_work(locks: ThreadLocks, home: Path, kind: str) -> None:
    """One at a time, over objects and threads; what they leave is no lock that anybody is shown."""
    inside, most = [0], [0]

    def work() -> None:
        own = ThreadLocks(home, calls=calls_of(kind))
        for _ in range(10):
            with own.coordinated():
                inside[0] += 1
                os.listdir(home)  # lets the others run
                most[0] = max(most[0], inside[0])
                inside[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]
    assert locks.holders() == []
    assert files_in(home) == []


@pytest.mark.case("B29")
def test_of_many_threads_one_gets_a_dead_holders_lock(
    home: Path, kind: str, hold: Callable[[], Holding]
) -> None:
    """Twenty at once reach for one stale lock: one has it, the others are told."""
    hold().kill()
    start = threading.Barrier(20)
    got: list[WriterLock] = []
    refused: list[int | None] = []

    def reach() -> None:
        own = ThreadLocks(home, calls=calls_of(kind))
        start.wait()
        try:
            got.append(own.acquire(THREAD))
        except ActiveWriter as error:
            refused.append(error.holder.pid)

    threads = [threading.Thread(target=reach) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 1
    assert set(refused) == {os.getpid()}
    got[0].verify()
    got[0].release()
    assert files_in(home) == []


def test_two_releases_at_once_give_back_once(locks: ThreadLocks, caplog: pytest.LogCaptureFixture) -> None:
    """The second one does nothing and complains of nothing."""
    lock = locks.acquire(THREAD)
    with caplog.at_level(logging.INFO):
        threads = [threading.Thread(target=lock.release) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not [record for record in caplog.records if "lock was given up" in record.message]
    locks.acquire(THREAD).release()
