"""The lock of a thread in a home, as repair and stand-alone recorders meet it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.errors import ActiveWriter
from protocol.meta import SessionMeta
from rollout import blocking, thread_lock
from rollout.thread_lock import find_writer, hold_thread_lock, thread_lock_path

THREAD = "01960000-0000-7000-8000-000000000100"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A closed rollout in a home."""
    rollout = tmp_path / "sessions" / "2026" / f"rollout-2026-11-29T10-00-00-{THREAD}.jsonl"
    with blocking.create(rollout, SessionMeta(cwd="/srv")) as recorder:
        recorder.persist()
    return rollout


@pytest.fixture
def held(path: Path) -> Iterator[int]:
    """Somebody's descriptor that holds the thread's lock."""
    lock = thread_lock_path(path)
    assert lock is not None
    lock.parent.mkdir()
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    yield descriptor
    os.close(descriptor)


@pytest.mark.guarantee("G4")
@pytest.mark.case("B32")
def test_stand_alone_recorder_respects_the_threads_writer(path: Path, held: int) -> None:
    """Codex, or a store: who holds the lock of the thread is named; when it is gone the file opens."""
    with pytest.raises(ActiveWriter) as caught:
        blocking.open(path)
    assert caught.value.holder.pid == os.getpid()
    fcntl.flock(held, fcntl.LOCK_UN)
    blocking.open(path).close()


def test_holding_it_keeps_the_writers_out(path: Path, held: int) -> None:
    """And is refused while one of them holds it."""
    with pytest.raises(ActiveWriter), hold_thread_lock(path):
        pass
    fcntl.flock(held, fcntl.LOCK_UN)
    with hold_thread_lock(path):
        assert find_writer(path) is not None
        with pytest.raises(BlockingIOError):
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert find_writer(path) is None


def test_file_that_its_writer_removed_meanwhile_is_no_lock(
    path: Path, held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was removed between opening and locking, and another writer made its own: that one is asked."""
    lock, real = thread_lock_path(path), thread_lock.lock_rollout
    assert lock is not None
    fcntl.flock(held, fcntl.LOCK_UN)

    def overtaken(descriptor: int, rollout_path: str, *, thread_id: str | None = None) -> bool:
        monkeypatch.setattr(thread_lock, "lock_rollout", real)
        lock.unlink()
        lock.touch()
        return real(descriptor, rollout_path, thread_id=thread_id)

    monkeypatch.setattr(thread_lock, "lock_rollout", overtaken)
    with hold_thread_lock(path):
        another = os.open(lock, os.O_RDWR)
        with pytest.raises(BlockingIOError):
            fcntl.flock(another, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(another)
