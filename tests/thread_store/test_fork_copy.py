"""Copying by the kernel, and what is done where it can't."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard

from protocol.errors import RolloutUnreadable
from tests.rollout.faulty import Fault, answers, fails
from tests.thread_store.histories import meta, turns, uuid
from tests.thread_store.scripted import ScriptedCalls
from thread_store.chain.open_rollout import OpenRollout
from thread_store.forks.fork_copy import ForkCalls, copy_range

REFUSALS = [errno.EXDEV, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS]


@pytest.fixture
def source(tmp_path: Path) -> Iterator[OpenRollout]:
    path = tmp_path / "source.jsonl"
    path.write_bytes(meta(uuid(1)) + turns(40))
    with OpenRollout(path) as file:
        yield file


def copied(
    source: OpenRollout, target: Path, calls: ForkCalls, start: int = 0, end: int | None = None
) -> bytes:
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, b"head\n")
        copy_range(source, start, source.size if end is None else end, descriptor, calls=calls)
    finally:
        os.close(descriptor)
    return target.read_bytes()


def content(source: OpenRollout) -> bytes:
    return Path(source.path).read_bytes()


@pytest.mark.parametrize("number", REFUSALS, ids=errno.errorcode.get)
@pytest.mark.parametrize("refused", [[], ["copy_file_range"], ["copy_file_range", "send_file"]])
def test_what_the_kernel_refuses_is_copied_another_way(
    source: OpenRollout, tmp_path: Path, refused: list[str], number: int
) -> None:
    """Two file systems, an old kernel, a network: the bytes arrive behind what stood there."""
    calls = ScriptedCalls(*(Fault(name, fails(number), times=None) for name in refused))
    assert copied(source, tmp_path / "to", calls) == b"head\n" + content(source)


@pytest.mark.parametrize("refused_at", range(4))
def test_refusal_in_the_midst_goes_on_at_the_exact_byte(
    source: OpenRollout, tmp_path: Path, refused_at: int
) -> None:
    """Short copies, then no more of them: nothing is doubled and nothing is missing."""

    class Tired(ForkCalls):
        def __init__(self) -> None:
            self.left = {"copy": refused_at, "send": refused_at}

        def copy_file_range(self, source: int, target: int, size: int, offset: int) -> int:
            self._tire("copy")
            return super().copy_file_range(source, target, min(size, 77), offset)

        def send_file(self, source: int, target: int, size: int, offset: int) -> int:
            self._tire("send")
            return super().send_file(source, target, min(size, 33), offset)

        def write(self, descriptor: int, data: memoryview | bytes) -> int:
            return super().write(descriptor, data[:1000])

        def _tire(self, what: str) -> None:
            self.left[what] -= 1
            if self.left[what] < 0:
                raise OSError(errno.EXDEV, "no more")

    assert copied(source, tmp_path / "to", Tired()) == b"head\n" + content(source)


@pytest.mark.parametrize(("start", "end"), [(0, 0), (5, 5), (1, 4097), (4096, 8192), (100, 101)])
def test_exactly_the_range_is_copied(source: OpenRollout, tmp_path: Path, start: int, end: int) -> None:
    """Neither a byte more nor one less."""
    assert copied(source, tmp_path / "to", ForkCalls(), start, end) == b"head\n" + content(source)[start:end]


@pytest.mark.parametrize("name", ["copy_file_range", "send_file"])
def test_call_that_copies_nothing_is_no_endless_loop(source: OpenRollout, tmp_path: Path, name: str) -> None:
    """Some file systems answer 0 instead of refusing."""
    calls = ScriptedCalls(Fault(name, answers(0), times=None), Fault("copy_file_range", fails(errno.ENOSYS)))
    assert copied(source, tmp_path / "to", calls) == b"head\n" + content(source)


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC], ids=errno.errorcode.get)
def test_real_error_of_the_kernels_copy_is_raised(source: OpenRollout, tmp_path: Path, number: int) -> None:
    """It would only be met again."""
    with pytest.raises(OSError, match=os.strerror(number)):
        copied(source, tmp_path / "to", ScriptedCalls(Fault("copy_file_range", fails(number))))


def test_source_that_is_cut_meanwhile_is_an_error(source: OpenRollout, tmp_path: Path) -> None:
    """A fork never ends where its source happens to have been cut."""
    end = source.size
    os.truncate(source.path, end // 2)
    with pytest.raises(RolloutUnreadable, match="cut"):
        copied(source, tmp_path / "to", ForkCalls(), end=end)


def test_progress_adds_up_to_all_bytes(
    source: OpenRollout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Piece by piece, so that a person sees it move."""
    monkeypatch.setattr("thread_store.forks.fork_copy.PIECE_BYTES", 1000)
    pieces: list[int] = []
    descriptor = os.open(tmp_path / "to", os.O_WRONLY | os.O_CREAT, 0o600)
    copy_range(source, 0, source.size, descriptor, calls=ForkCalls(), progress=pieces.append)
    os.close(descriptor)
    assert sum(pieces) == source.size
    assert len(pieces) == -(-source.size // 1000)


def test_compressed_source_is_copied_decompressed(tmp_path: Path) -> None:
    """Between any two of its decompressed bytes."""
    data = meta(uuid(1)) + turns(40)
    path = tmp_path / "source.jsonl.zst"
    path.write_bytes(zstandard.compress(data))
    with OpenRollout(path) as file:
        assert copied(file, tmp_path / "to", ForkCalls(), 7, 5000) == b"head\n" + data[7:5000]
