"""Blocks of whole lines: nothing is lost at their borders."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from protocol.errors import NotARollout, ThreadNotFound
from rollout.lines import Break
from thread_store.search.line_blocks import LineBlock, LineBlocks, LongGap


def read(
    path: Path, buffer_bytes: int, line_max: int = 1 << 20, end: int | None = None
) -> list[tuple[int, bytes]]:
    """All lines and where they begin; a gap as its size."""
    lines: list[tuple[int, bytes]] = []
    for block in LineBlocks(buffer_bytes, line_max).read(str(path), end=end):
        if isinstance(block, LongGap):
            lines.append((block.offset, b"%d" % block.size))
        elif isinstance(block, LineBlock):
            data, offset = bytes(block.data), block.offset
            assert data.endswith(b"\n") or not block.terminated
            for part in data.split(b"\n")[: None if not data.endswith(b"\n") else -1]:
                lines.append((offset, part))
                offset += len(part) + 1
    return lines


@pytest.mark.case("B45")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.lists(st.binary(max_size=30).map(lambda data: data.replace(b"\n", b"")), max_size=20),
    st.integers(1, 40),
    st.booleans(),
    st.booleans(),
    st.integers(0, 400),
)
def test_lines_are_those_of_the_file(
    tmp_path: Path, lines: list[bytes], buffer_bytes: int, newline: bool, packed: bool, cut: int
) -> None:
    """Whatever the size of the buffer, plain or compressed, whole or up to an offset."""
    data = b"\n".join(lines) + (b"\n" if newline and lines else b"")
    path = tmp_path / "file"
    path.write_bytes(zstandard.compress(data) if packed else data)
    end = cut if cut < len(data) else None
    data = data[:end]
    expected, offset = [], 0
    for part in data.split(b"\n")[: -1 if data.endswith(b"\n") or not data else None]:
        expected.append((offset, part))
        offset += len(part) + 1
    assert [each for each in read(path, buffer_bytes, end=end) if each] == expected


@pytest.mark.case("B45")
@pytest.mark.parametrize("packed", [False, True])
def test_line_beyond_the_limit_is_a_gap(tmp_path: Path, packed: bool) -> None:
    """Its place and size are told, and what follows comes whole."""
    data = b"a\n" + b"x" * 1000 + b"\nb\n" + b"y" * 999
    path = tmp_path / "file"
    path.write_bytes(zstandard.compress(data) if packed else data)
    assert read(path, 16, line_max=100) == [(0, b"a"), (2, b"1000"), (1003, b"b"), (1005, b"999")]


def test_damaged_frame_is_told_and_the_next_one_read(tmp_path: Path) -> None:
    """The lines of whole frames come, and a break where one is damaged."""
    frames = [
        zstandard.compress(b"one\n" * 100),
        zstandard.compress(b"two\n" * 100),
        zstandard.compress(b"three\n"),
    ]
    frames[1] = frames[1][:6] + b"\xff" * 10
    path = tmp_path / "file"
    path.write_bytes(b"".join(frames))
    found = list(LineBlocks().read(str(path)))
    assert any(isinstance(each, Break) for each in found)
    assert read(path, 64)[-1][1] == b"three"


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    """A FIFO doesn't hang, a missing file is told."""
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(NotARollout):
        list(LineBlocks().read(str(tmp_path / "fifo")))
    with pytest.raises(ThreadNotFound):
        list(LineBlocks().read(str(tmp_path / "none")))


def test_buffer_shrinks_after_a_long_line(tmp_path: Path) -> None:
    """The memory that one long line took is given back."""
    path = tmp_path / "file"
    path.write_bytes(b"x" * (20 << 20) + b"\n")
    blocks = LineBlocks(1 << 16, 32 << 20)
    assert [len(each.data) for each in blocks.read(str(path)) if isinstance(each, LineBlock)] == [
        (20 << 20) + 1
    ]
    assert len(blocks._buffer) == 1 << 16
