"""The reverse scanner: what the forward reader gives, newest first."""

from __future__ import annotations

import io
import json
import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from protocol.errors import NotARollout, RolloutUnreadable, ThreadNotFound
from rollout.reader import read_rollout
from rollout.record import RolloutRecord
from rollout.scanner import ReverseJsonlScanner
from tests.rollout.written import line, message, meta, reasons, rollout, texts, unnumbered

BOM = b"\xef\xbb\xbf"

LINES = [
    meta(),
    message("a", 1),
    message("grün, 三, 🦀", 2),
    message("x" * 70),
    line("x_call", {"state": "started"}),
    b'{"a":"\\ud800"}\n',
    b"{}\n",
    b'{"session":{"id":"s"},"items":[]}',
    b'{"session":{"id":"s"},\n"items":[{"type":"message"}]}\n',
]
GARBAGE = [
    b"\n",
    b"\r\n",
    b" \t\r\n",
    b"\0" * 40,
    b"\0",
    b"\n\0\n",
    b"[1]\n",
    b"not json",
    b'{"half":"',
    BOM,
    b"\xe2\x80",
    b"\xff",
    b"\x28\xb5\x2f",
    "\u2028\x85".encode(),
    b"}" * 30,
    b"x" * 90,
]


@st.composite
def damaged_files(draw: st.DrawFn) -> bytes:
    """Valid lines and garbage in any order, cut at any byte, with anything at the start."""
    pieces = draw(st.lists(st.sampled_from(LINES + GARBAGE) | st.binary(max_size=12), max_size=12))
    data = draw(st.sampled_from([b"", BOM, BOM[:2]])) + b"".join(pieces)
    return data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data


def both(data: bytes, **options: int) -> tuple[list[RolloutRecord], list[RolloutRecord]]:
    forward = list(read_rollout(io.BytesIO(data), **options))
    return unnumbered(forward), list(ReverseJsonlScanner(io.BytesIO(data), **options))


@pytest.mark.case("B45")
@pytest.mark.case("B05")
@given(
    data=damaged_files(),
    block_bytes=st.integers(1, 40) | st.just(1 << 16),
    record_bytes_max=st.sampled_from([60, 75, 96 << 20]),
)
@example(data=BOM[:2], block_bytes=1, record_bytes_max=60)
@example(data=BOM, block_bytes=2, record_bytes_max=60)
@example(data=BOM + b"x" * 60 + b"\n", block_bytes=7, record_bytes_max=60)
@example(data=b"\0" * 100 + b"\n" + b"\0" * 100, block_bytes=7, record_bytes_max=60)
@example(data=b'{"session":{},"items":[]}', block_bytes=3, record_bytes_max=60)
def test_reverse_scan_equals_the_forward_reader(data: bytes, block_bytes: int, record_bytes_max: int) -> None:
    """Whatever the bytes and the size of the blocks: the same records, in the opposite order."""
    forward, reverse = both(data, block_bytes=block_bytes, record_bytes_max=record_bytes_max)
    assert reverse == forward


@given(data=damaged_files(), block_bytes=st.integers(1, 40), cut=st.floats(0, 1))
def test_reverse_scan_up_to_an_offset_equals_the_forward_reader(
    data: bytes, block_bytes: int, cut: float
) -> None:
    """The same holds when both read no further than a given offset."""
    forward, reverse = both(data, block_bytes=block_bytes, end_offset=int(len(data) * cut))
    assert reverse == forward


@pytest.mark.case("B45")
@pytest.mark.parametrize("shift", [-1, 0, 1])
def test_lines_that_end_on_block_edges_come_whole(tmp_path: Path, shift: int) -> None:
    """Lines whose newline is the last, the first, or the only byte of a block."""
    path = tmp_path / "r.jsonl"
    block = 256
    empty = len(message("", None))
    path.write_bytes(b"".join(message("y" * (block + shift - empty)) for _ in range(9)))
    forward = list(read_rollout(path, block_bytes=block))
    assert len(forward) == 9
    assert list(ReverseJsonlScanner(path, block_bytes=block)) == unnumbered(forward)


class CountingFile(io.FileIO):
    """A file that counts the bytes that are read from it."""

    bytes_read = 0

    def read(self, size: int | None = -1) -> bytes:  # type: ignore[override]
        data = super().read(size)
        self.bytes_read += len(data)
        return data


@pytest.mark.case("B45")
@pytest.mark.guarantee("G7")
def test_line_of_64_mib_is_read_once(tmp_path: Path) -> None:
    """A line of 64 MiB is read in linear time: each byte once, in memory for two copies of it."""
    path = tmp_path / "r.jsonl"
    text = "z" * (64 << 20)
    with path.open("wb") as file:
        file.write(meta())
        file.write(message(text, 1))
        file.write(message("last", 2))
    size = path.stat().st_size
    with CountingFile(path) as file:
        records = list(ReverseJsonlScanner(file, block_bytes=64 << 10))
        assert file.bytes_read <= size + 4096
    assert [record.size for record in records if record.size > 1000] == [len(message(text, 1)) - 1]
    assert records[1].line is not None


@pytest.mark.case("B45")
@pytest.mark.guarantee("G7")
def test_line_beyond_the_limit_is_passed_over_in_bounded_memory(tmp_path: Path) -> None:
    """Of a line that is too long no more than the limit and a block are held."""
    path = tmp_path / "r.jsonl"
    with path.open("wb") as file:
        file.write(rollout("before"))
        file.writelines(b"\0" * (1 << 20) for _ in range(24))
        file.write(b"\n" + message("after", 2))
    tracemalloc.start()
    records = list(ReverseJsonlScanner(path, record_bytes_max=1 << 20))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20
    assert texts(records) == ["after", "before"]
    assert records == unnumbered(list(read_rollout(path, record_bytes_max=1 << 20)))


@pytest.mark.case("B45")
def test_many_empty_lines_are_passed_over(tmp_path: Path) -> None:
    """A million empty lines between two records cost one pass."""
    path = tmp_path / "r.jsonl"
    path.write_bytes(rollout("one") + b"\n" * 1_000_000 + message("two", 2))
    with CountingFile(path) as file:
        assert texts(list(ReverseJsonlScanner(file))) == ["two", "one"]
        assert file.bytes_read <= path.stat().st_size + 4096


@pytest.mark.case("B73")
def test_newest_records_cost_only_what_they_take(tmp_path: Path) -> None:
    """The last records of a large file are read without touching the rest of it."""
    path = tmp_path / "r.jsonl"
    path.write_bytes(meta() + message("x" * 1000, None) * 20_000)
    with CountingFile(path) as file:
        records = iter(ReverseJsonlScanner(file))
        for _ in range(20):
            next(records)
        assert file.bytes_read < 256 << 10


def test_file_that_grows_meanwhile_is_scanned_to_its_old_end(tmp_path: Path) -> None:
    """What is appended after the scan began is not in it, and disturbs nothing."""
    path = tmp_path / "r.jsonl"
    path.write_bytes(rollout("one", "two"))
    records = iter(ReverseJsonlScanner(path, block_bytes=100))
    seen = [next(records)]
    with path.open("ab") as file:
        file.write(message("three", 3) * 50)
    seen += records
    assert texts(seen) == ["two", "one"]
    assert reasons(seen) == []


def test_file_that_is_cut_meanwhile_ends_the_scan_with_a_warning(tmp_path: Path) -> None:
    """If another process cuts the file, the scan says so and stops: no error, no endless loop."""
    path = tmp_path / "r.jsonl"
    path.write_bytes(rollout(*("word " * 30 for _ in range(40))))
    records = iter(ReverseJsonlScanner(path, block_bytes=512))
    next(records)
    os.truncate(path, 300)
    rest = list(records)
    assert reasons(rest)[-1] == "shrunk"
    assert rest[-1].line is None
    assert rest[-1].warning is not None
    assert "was cut while it was read" in rest[-1].warning.message


@pytest.mark.case("B136")
@pytest.mark.parametrize("indent", [None, 1])
def test_one_document_rollout_is_scanned(tmp_path: Path, indent: int | None) -> None:
    """The oldest format gives the same records from its end."""
    items = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": t}]} for t in "abc"
    ]
    document = {"session": {"id": "s-1", "timestamp": "2025-04-23T11:00:00Z"}, "items": items}
    path = tmp_path / "r.json"
    path.write_text(json.dumps(document, indent=indent))
    records = list(ReverseJsonlScanner(path))
    assert texts(records) == ["c", "b", "a"]
    assert records == unnumbered(list(read_rollout(path)))


def test_pipe_is_scanned_from_its_end() -> None:
    """What can't seek is put aside first."""
    receiving, sending = os.pipe()
    with open(sending, "wb") as sender:
        sender.write(rollout("one", "two"))
    with open(receiving, "rb") as pipe:
        assert texts(list(ReverseJsonlScanner(pipe))) == ["two", "one"]


@pytest.mark.case("B56")
def test_what_cannot_be_read_is_refused_as_by_the_reader(tmp_path: Path) -> None:
    """Absent, a folder: the same errors; empty: no records."""
    with pytest.raises(ThreadNotFound):
        ReverseJsonlScanner(tmp_path / "no.jsonl")
    with pytest.raises(NotARollout):
        ReverseJsonlScanner(tmp_path)
    (tmp_path / "empty.jsonl").touch()
    assert list(ReverseJsonlScanner(tmp_path / "empty.jsonl")) == []


def test_failing_disk_is_an_error_that_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EIO while scanning raises RolloutUnreadable, the cause chained."""
    path = tmp_path / "r.jsonl"
    path.write_bytes(rollout("one"))

    def fail(*_: object) -> bytes:
        raise OSError(5, "Input/output error")

    records = iter(ReverseJsonlScanner(path))
    monkeypatch.setattr(os, "pread", fail)
    with pytest.raises(RolloutUnreadable, match=r"r\.jsonl") as caught:
        next(records)
    assert isinstance(caught.value.__cause__, OSError)


def some_records(path: Path) -> Iterator[RolloutRecord]:
    with ReverseJsonlScanner(path) as scanner:
        yield next(iter(scanner))
    yield next(iter(ReverseJsonlScanner(path)))
    yield from ReverseJsonlScanner(path)
    ReverseJsonlScanner(path)


def test_scanner_lets_go_of_its_file(tmp_path: Path) -> None:
    """Scanned to the end, left in a `with`, or dropped half way: no descriptor stays open."""
    path = tmp_path / "r.jsonl"
    path.write_bytes(rollout("one", "two"))
    before = len(os.listdir("/proc/self/fd"))
    assert len(list(some_records(path))) == 5
    assert len(os.listdir("/proc/self/fd")) == before
