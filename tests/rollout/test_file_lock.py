"""The lock of a stand-alone recorder: flock on the rollout, one holder per inode over all processes."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.errors import ActiveWriter
from rollout import file_lock
from rollout.file_lock import find_holder, lock_rollout


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"")
    return path


@pytest.fixture
def first(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDWR)
    yield descriptor
    os.close(descriptor)


@pytest.fixture
def second(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDWR)
    yield descriptor
    os.close(descriptor)


@pytest.mark.guarantee("G4")
def test_second_descriptor_is_refused_and_told_who_holds_it(path: Path, first: int, second: int) -> None:
    """In one process too: pid, host and command of the holder."""
    assert lock_rollout(first, os.fspath(path))
    with pytest.raises(ActiveWriter) as caught:
        lock_rollout(second, os.fspath(path), thread_id="t")
    holder = caught.value.holder
    assert (holder.pid, holder.host) == (os.getpid(), os.uname().nodename)
    assert holder.command
    assert (caught.value.path, caught.value.thread_id) == (os.fspath(path), "t")


@pytest.mark.guarantee("G4")
def test_lock_ends_with_its_last_descriptor(path: Path, second: int) -> None:
    """A duplicate keeps it; the end of the last one frees it."""
    descriptor = os.open(path, os.O_RDWR)
    lock_rollout(descriptor, os.fspath(path))
    duplicate = os.dup(descriptor)
    os.close(descriptor)
    with pytest.raises(ActiveWriter):
        lock_rollout(second, os.fspath(path))
    os.close(duplicate)
    assert lock_rollout(second, os.fspath(path))


@pytest.mark.guarantee("G4")
@pytest.mark.case("B28")
def test_death_of_the_holder_frees_the_lock(path: Path, second: int) -> None:
    """A lock without a living holder is none."""
    script = (
        "import fcntl, os, sys; fcntl.flock(os.open(sys.argv[1], os.O_RDWR), fcntl.LOCK_EX); "
        "print(flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(ActiveWriter) as caught:
            lock_rollout(second, os.fspath(path))
        assert caught.value.holder.pid == process.pid
        process.kill()
        process.wait()
    assert lock_rollout(second, os.fspath(path))


@pytest.mark.case("B93")
@pytest.mark.parametrize("number", [errno.EBADF, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL])
def test_file_system_without_flock_is_no_refusal(
    path: Path, first: int, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller learns that there is no lock, and decides."""

    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    assert lock_rollout(first, os.fspath(path)) is False


def test_other_errors_of_flock_are_raised(path: Path, first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What isn't understood is not taken for a lock."""

    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(OSError):
        lock_rollout(first, os.fspath(path))


def test_holder_of_a_free_file_is_unknown(first: int) -> None:
    """Nobody."""
    assert find_holder(first).pid is None
    assert str(find_holder(first)) == "another writer"


def test_holder_is_unknown_where_the_system_doesnt_tell(
    path: Path, first: int, second: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock holds all the same."""

    class NoProc(type(Path())):  # type: ignore[misc]
        def read_text(self, *given: object, **named: object) -> str:
            raise FileNotFoundError(errno.ENOENT, "no /proc")

        def read_bytes(self) -> bytes:
            raise FileNotFoundError(errno.ENOENT, "no /proc")

    lock_rollout(first, os.fspath(path))
    monkeypatch.setattr(file_lock, "Path", NoProc)
    with pytest.raises(ActiveWriter) as caught:
        lock_rollout(second, os.fspath(path))
    assert caught.value.holder.pid is None
    assert file_lock._describe(1).command is None
