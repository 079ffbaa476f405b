"""A rollout opened to be looked at: the records of the plain reader, between any two borders."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from protocol.errors import NotARollout, RolloutUnreadable, ThreadNotFound
from rollout import read_rollout
from rollout.record import RolloutRecord
from tests.thread_store.histories import meta, turns, uuid
from thread_store.chain import open_rollout
from thread_store.chain.open_rollout import OpenRollout

A = uuid(0xA)


def unnumbered(record: RolloutRecord) -> RolloutRecord:
    """A record as it comes from the midst of a file: without line number."""
    return replace(record, line_no=None, warning=record.warning and replace(record.warning, line_no=None))


_LINES = st.lists(
    st.sampled_from(
        [b"", b" ", b"{", b"\0" * 9, b"\xff", turns(1).splitlines()[0], b'{"a":1}\r', b"x" * 300]
    ),
    max_size=8,
)


@pytest.mark.case("B06")
@given(_LINES, st.booleans(), st.booleans(), st.sampled_from([1, 7, 64, 1 << 18]))
def test_records_are_those_of_the_plain_reader(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], ended: bool, packed: bool, block_bytes: int
) -> None:
    """In both directions, plain or compressed, whatever is damaged and however the blocks are cut."""
    data = meta(A) + b"\n".join(lines) + (b"\n" if ended else b"")
    path = tmp_path_factory.mktemp("home") / "rollout"
    path.write_bytes(zstandard.compress(data) if packed else data)
    expected = [unnumbered(each) for each in read_rollout(path)]
    with OpenRollout(path) as file:
        assert list(file.forward(0, file.size, block_bytes=block_bytes)) == expected
        assert list(file.backward(0, file.size)) == expected[::-1]
        assert file.end == data.rfind(b"\n") + 1
        assert file.size == len(data)
        borders = [offset for offset in range(len(data) + 1) if file.is_border(offset)]
        assert borders == [0, *(at + 1 for at, byte in enumerate(data) if byte == 10)]
        for border in borders[1:]:
            assert file.last_line(border) == data[:border].split(b"\n")[-2]


def test_lines_longer_than_a_block_are_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last newline and the last line are found behind any number of blocks."""
    path = tmp_path / "rollout"
    path.write_bytes(meta(A) + b"y" * 1000 + b"\n" + b"z" * 1000)
    monkeypatch.setattr(open_rollout, "BLOCK_BYTES", 16)
    with OpenRollout(path) as file:
        assert file.end == file.size - 1000
        assert file.last_line(file.end) == b"y" * 1000
        assert file.last_line(file.meta_end) == meta(A)[:-1]


def test_line_beyond_the_limit_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It hides nothing, in either direction."""
    path = tmp_path / "rollout"
    path.write_bytes(meta(A) + b"x" * 5000 + b"\n" + turns(1) + b"y" * 5000)
    monkeypatch.setattr(open_rollout, "RECORD_BYTES_MAX", 1000)
    with OpenRollout(path) as file:
        forward = list(file.forward(0, file.size))
        assert [each.warning.reason for each in forward if each.warning] == ["too_long", "too_long"]
        assert list(file.backward(0, file.size)) == forward[::-1]
        assert len(forward) == 13


def test_file_that_shrinks_is_an_error_forward_and_a_warning_backward(tmp_path: Path) -> None:
    """Its size was fixed when it was opened, so what is missing is noticed."""
    path = tmp_path / "rollout"
    path.write_bytes(meta(A) + turns(2))
    with OpenRollout(path) as file:
        end = file.end
        os.truncate(path, end // 2)
        with pytest.raises(RolloutUnreadable, match="cut"):
            list(file.forward(0, end))
        assert [each.warning.reason for each in file.backward(0, end) if each.warning] == ["shrunk"]


def test_what_is_appended_later_is_not_seen(tmp_path: Path) -> None:
    """A writer may go on."""
    path = tmp_path / "rollout"
    path.write_bytes(meta(A))
    with OpenRollout(path) as file, path.open("ab") as writer:
        writer.write(turns(1))
        writer.flush()
        assert file.size == file.end == len(meta(A))


def test_what_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    """A folder, a pipe that nobody writes, a socket, a link into nothing; none of them hangs."""
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        for name in ("", "pipe", "socket"):
            with pytest.raises(NotARollout):
                OpenRollout(tmp_path / name)
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(ThreadNotFound):
        OpenRollout(tmp_path / "link")


def test_name_tells_the_rollout_id(tmp_path: Path) -> None:
    """The last uuid in it; another name tells none."""
    for name, expected in (
        (f"rollout-2026-03-04T05-06-07-{A}.jsonl", A),
        (f"rollout-2026-03-04T05-06-07-{A}_{uuid(2)}.jsonl", uuid(2)),
        ("notes.jsonl", None),
    ):
        path = tmp_path / name
        path.write_bytes(meta(A))
        with OpenRollout(path) as file:
            assert (file.rollout_id, file.thread_id) == (expected, A)


@pytest.mark.parametrize("read", [OpenRollout, read_rollout])
def test_file_of_which_the_system_tells_nothing_is_refused_and_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Any
) -> None:
    """An error of ours, and no descriptor is left."""
    path = tmp_path / "rollout.jsonl"
    path.write_bytes(meta(A))
    before = len(os.listdir("/proc/self/fd"))

    def fail(descriptor: int) -> os.stat_result:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched, pytest.raises(RolloutUnreadable):
        patched.setattr(os, "fstat", fail)
        read(path)
    assert len(os.listdir("/proc/self/fd")) == before
