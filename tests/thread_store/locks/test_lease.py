"""Leases, where the file system has no flock: who is dead is reclaimed, who may live is respected."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from protocol.errors import ActiveWriter, RolloutUnreadable, WriterFenced
from protocol.ids import ThreadId
from tests.thread_store.locks.faulty import FaultyLockCalls
from tests.thread_store.locks.test_flocks import hold
from thread_store.locks import LockState, ThreadLocks
from thread_store.locks.holder import LockHolder, decode_holder, describe_self, encode_holder
from thread_store.locks.lease_file import GRACE_SECONDS

pytestmark = [pytest.mark.guarantee("G4"), pytest.mark.case("B93")]

THREAD = ThreadId("01960000-0000-7000-8000-000000000101")


class LeaseCalls(FaultyLockCalls):
    """No flock, scripted faults, and a clock that can be set."""

    later_seconds = 0.0

    def flock(self, descriptor: int) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    def now(self) -> float:
        return super().now() + self.later_seconds


@pytest.fixture
def calls() -> LeaseCalls:
    return LeaseCalls()


@pytest.fixture
def locks(tmp_path: Path, calls: LeaseCalls) -> ThreadLocks:
    return ThreadLocks(tmp_path, calls=calls)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "thread-writer-locks" / f"{THREAD}.lock"
    path.parent.mkdir()
    return path


@pytest.fixture
def own() -> LockHolder:
    return describe_self(fence=4, lease=True)


def dead(own: LockHolder) -> LockHolder:
    """Of a process that had our number before."""
    assert own.started is not None
    return replace(own, started=own.started - 1)


def files_in(path: Path) -> list[str]:
    return sorted(set(os.listdir(path.parent)) - {".coordination.lock"})


@pytest.mark.parametrize(
    "number",
    [errno.EBADF, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL],
    ids=errno.errorcode.get,
)
def test_missing_flock_is_answered_by_a_lease(
    tmp_path: Path, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Every way a file system says so; it is logged once."""
    calls = FaultyLockCalls()
    calls.fail("flock", number)
    locks = ThreadLocks(tmp_path, calls=calls)
    lock = locks.acquire(THREAD)
    assert lock.holder.lease
    with pytest.raises(ActiveWriter) as caught:
        locks.acquire(THREAD)
    assert caught.value.holder.pid == os.getpid()
    lock.release()
    assert len([record for record in caplog.records if "no flock here" in record.message]) == 1


@pytest.mark.case("B28")
@pytest.mark.parametrize("change", [{"started": 1}, {"pid": 2**22 + 5}], ids=str)
def test_lease_of_a_dead_process_is_reclaimed(
    locks: ThreadLocks, path: Path, own: LockHolder, change: dict[str, Any]
) -> None:
    """A dead pid, a reused one, our own one of an earlier life: at once, with a higher fence."""
    path.write_bytes(encode_holder(replace(own, **change)))
    lock = locks.acquire(THREAD)
    assert lock.fence == 5
    lock.verify()
    lock.release()
    assert files_in(path) == []


@pytest.mark.case("B28")
def test_lease_of_another_boot_is_reclaimed_when_it_beats_no_more(
    locks: ThreadLocks, calls: LeaseCalls, path: Path, own: LockHolder
) -> None:
    """As long as somebody renews it, another host has this host's name."""
    path.write_bytes(encode_holder(replace(own, boot_id="before")))
    with pytest.raises(ActiveWriter):
        locks.acquire(THREAD)
    calls.later_seconds = GRACE_SECONDS + 1
    locks.acquire(THREAD).release()


@pytest.mark.case("B28")
@pytest.mark.parametrize(
    "change", [{"host": "elsewhere"}, {"pid_ns": "pid:[1]"}, {"boot_id": None}, {}], ids=str
)
def test_lease_that_may_be_held_is_respected_for_ever(
    locks: ThreadLocks, calls: LeaseCalls, path: Path, own: LockHolder, change: dict[str, Any]
) -> None:
    """Another host, another pid namespace, something unknown, a live process: no time makes it stale."""
    holder = replace(own if not change else dead(own), **change)
    path.write_bytes(encode_holder(holder))
    calls.later_seconds = 10 * 365 * 86400
    with pytest.raises(ActiveWriter) as caught:
        locks.acquire(THREAD)
    assert caught.value.holder.host == holder.host
    assert locks.sweep() == []
    assert path.read_bytes() == encode_holder(holder)


@pytest.mark.case("B30")
@pytest.mark.parametrize("content", [b"", b"garbage", b'{"pid":41'], ids=["empty", "garbage", "torn"])
def test_garbage_has_a_time_of_grace(
    locks: ThreadLocks, calls: LeaseCalls, path: Path, content: bytes
) -> None:
    """Somebody may be about to write it; after 30 s without a change nobody is."""
    path.write_bytes(content)
    with pytest.raises(ActiveWriter):
        locks.acquire(THREAD)
    calls.later_seconds = GRACE_SECONDS - 1
    assert locks.sweep() == []
    calls.later_seconds = GRACE_SECONDS + 1
    lock = locks.acquire(THREAD)
    lock.verify()
    lock.release()
    assert files_in(path) == []


@pytest.mark.case("B30")
def test_empty_file_that_somebody_flocks_is_held(locks: ThreadLocks, calls: LeaseCalls, path: Path) -> None:
    """Codex got a flock on it where we got none: the system shows whose it is."""
    descriptor = hold(path)
    calls.later_seconds = GRACE_SECONDS + 1
    with pytest.raises(ActiveWriter) as caught:
        locks.acquire(THREAD)
    assert caught.value.holder.pid == os.getpid()
    assert [each.state for each in locks.holders()] == [LockState.LIVE]
    os.close(descriptor)
    locks.acquire(THREAD).release()


def test_holders_shows_live_stale_and_unknown_leases(
    locks: ThreadLocks, calls: LeaseCalls, path: Path, own: LockHolder
) -> None:
    """By the same verdict that decides, with the time since they were renewed."""
    states = {"1": own, "2": dead(own), "3": replace(own, host="elsewhere")}
    for digit, holder in states.items():
        path.with_name(f"{THREAD[:-1]}{digit}.lock").write_bytes(encode_holder(holder))
    calls.later_seconds = 3600
    assert all(3600 <= (each.age_seconds or 0) < 3700 for each in locks.holders())
    assert {each.thread_id[-1]: each.state for each in locks.holders()} == {
        "1": LockState.LIVE,
        "2": LockState.STALE,
        "3": LockState.UNKNOWN,
    }


def test_lease_that_was_replaced_is_lost(locks: ThreadLocks, path: Path, own: LockHolder) -> None:
    """The token tells, not the inode: a file system may use that again."""
    lock = locks.acquire(THREAD)
    path.write_bytes(encode_holder(own))
    with pytest.raises(WriterFenced) as caught:
        lock.verify()
    assert caught.value.holder.since == own.since
    lock.release()
    assert path.read_bytes() == encode_holder(own)


def test_lease_appears_whole(locks: ThreadLocks, calls: LeaseCalls, path: Path) -> None:
    """Until the moment when it has its name nothing stands there; from then on everything."""
    seen: list[bool] = []
    calls.meanwhile("link", lambda: seen.append(path.exists()))
    calls.after["link"] = [lambda: seen.append(decode_holder(path.read_bytes()) is not None)]
    locks.acquire(THREAD).release()
    assert seen == [False, True]


def test_link_that_was_made_and_reported_as_failed_counts(
    locks: ThreadLocks, calls: LeaseCalls, path: Path
) -> None:
    """Some file servers do that: the lease is there and ours, so nobody is refused by nobody."""
    calls.fail("link", errno.EIO, done=True)
    lock = locks.acquire(THREAD)
    lock.verify()
    lock.release()
    assert files_in(path) == []


@pytest.mark.parametrize("name", ["open_new", "make_private", "overwrite", "link", "open_to_read"])
def test_failed_acquisition_leaves_nothing(
    locks: ThreadLocks, calls: LeaseCalls, path: Path, name: str
) -> None:
    """The error is our own, with its number; the next attempt succeeds."""
    calls.fail(name, errno.ENOSPC)
    with pytest.raises(RolloutUnreadable) as caught:
        locks.acquire(THREAD)
    assert caught.value.errno == errno.ENOSPC
    assert files_in(path) == []
    locks.acquire(THREAD).release()


@pytest.mark.parametrize("name", ["open_new", "overwrite", "link", "open_to_read", "replace", "unlink"])
def test_failed_eviction_leaves_the_dead_lease_to_the_next_one(
    locks: ThreadLocks, calls: LeaseCalls, path: Path, own: LockHolder, name: str
) -> None:
    """Whatever fails on the way, the thread can be had afterwards and nothing stays."""
    path.write_bytes(encode_holder(dead(own)))
    calls.fail(name, errno.EIO)
    try:
        locks.acquire(THREAD).release()
    except RolloutUnreadable:
        locks.acquire(THREAD).release()
    locks.sweep()
    calls.later_seconds = GRACE_SECONDS + 1
    locks.sweep()
    assert [name for name in files_in(path) if not name.startswith(".")] == []


@pytest.mark.parametrize("name", ["open_new", "link", "unlink", "open_to_read"])
def test_release_that_fails_says_so(
    locks: ThreadLocks, calls: LeaseCalls, path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Never an error, never silence."""
    lock = locks.acquire(THREAD)
    calls.fail(name, errno.EIO)
    lock.release()
    assert "Input/output error" in caplog.text
    with pytest.raises(WriterFenced):
        lock.verify()


@pytest.mark.case("B97")
def test_planted_link_at_a_temporary_name_is_refused(
    locks: ThreadLocks, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if somebody guessed the name."""
    monkeypatch.setattr("secrets.token_hex", lambda size: "0" * 2 * size)
    (path.parent / f".{'0' * 16}.tmp").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RolloutUnreadable):
        locks.acquire(THREAD)
    assert not (tmp_path / "elsewhere").exists()


def test_heartbeat_runs_only_while_leases_are_held(locks: ThreadLocks) -> None:
    """One thread for all of them, none for none."""

    def beating() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == "rollout-leases"]

    first = locks.acquire(THREAD)
    second = locks.acquire("01960000-0000-7000-8000-000000000102")
    (thread,) = beating()
    assert thread.daemon
    first.release()
    assert beating() == [thread]
    second.release()
    thread.join()
    assert beating() == []


def test_beat_renews_our_lease_and_no_other(locks: ThreadLocks, path: Path, own: LockHolder) -> None:
    """Its time is set to now; somebody else's file in its place is left alone."""
    lock = locks.acquire(THREAD)
    os.utime(path, (0, 0))
    lock.beat()  # type: ignore[attr-defined]
    assert path.stat().st_mtime > 1_000_000_000
    path.write_bytes(encode_holder(own))
    os.utime(path, (0, 0))
    lock.beat()  # type: ignore[attr-defined]
    assert path.stat().st_mtime == 0
    lock.release()
