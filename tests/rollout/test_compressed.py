"""Compressed rollouts: read like plain ones, from both ends, however the frames are cut or damaged."""

from __future__ import annotations

import io
import tempfile
import tracemalloc
from pathlib import Path
from typing import IO, Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import RolloutUnreadable
from rollout.compressed import decompress
from rollout.lines import Break
from rollout.reader import read_rollout
from rollout.record import RolloutRecord
from rollout.scanner import ReverseJsonlScanner
from tests.rollout.written import message, meta, reasons, rollout, texts, unnumbered

SKIPPABLE = b"\x50\x2a\x4d\x18\x05\x00\x00\x00HELLO"


def compress(data: bytes, **options: Any) -> bytes:
    return zstandard.ZstdCompressor(level=3, **options).compress(data)


def noise(size: int, seed: int = 1) -> str:
    """Text that does not compress away: frames of several blocks."""
    digits = []
    for _ in range(size // 8 + 1):
        seed = seed * 6364136223846793005 + 1442695040888963407 & (1 << 64) - 1
        digits.append(f"{seed >> 32:08x}")
    return "".join(digits)[:size]


def both(data: bytes, **options: int) -> tuple[list[RolloutRecord], list[RolloutRecord]]:
    forward = list(read_rollout(io.BytesIO(data), **options))
    reverse = list(ReverseJsonlScanner(io.BytesIO(data), **options))
    assert reverse == unnumbered(forward)
    return forward, reverse


def plain(data: bytes) -> list[RolloutRecord]:
    return list(read_rollout(io.BytesIO(data)))


@pytest.mark.parametrize("options", [{}, {"write_checksum": True}, {"write_content_size": False}])
def test_compressed_rollout_reads_like_the_plain_one(tmp_path: Path, options: dict[str, bool]) -> None:
    """The same records with the same offsets, from a path, whatever the frame's flags."""
    data = rollout(*(noise(3000, seed) for seed in range(200)))
    path = tmp_path / "r.jsonl.zst"
    path.write_bytes(compress(data, **options))
    assert list(read_rollout(path)) == plain(data)
    assert list(ReverseJsonlScanner(path)) == unnumbered(plain(data))


def test_name_proves_nothing(tmp_path: Path) -> None:
    """Plain content under a compressed name, and the other way round: both are read for what they are."""
    (tmp_path / "plain.jsonl.zst").write_bytes(rollout("a"))
    (tmp_path / "packed.jsonl").write_bytes(compress(rollout("a")))
    for name in ("plain.jsonl.zst", "packed.jsonl"):
        assert texts(list(read_rollout(tmp_path / name))) == ["a"]


def test_several_frames_are_one_rollout() -> None:
    """Frames may end anywhere, inside a line too; frames to be skipped are."""
    data = rollout("one", "two", "three")
    packed = b"".join(compress(data[at : at + 33]) + SKIPPABLE for at in range(0, len(data), 33))
    forward, _ = both(SKIPPABLE + packed)
    assert forward == plain(data)


def test_compressed_stream_is_read_from_a_pipe_in_small_blocks() -> None:
    """Any size of input blocks, BOM and CRLF included."""
    data = b"\xef\xbb\xbf" + rollout("one", "two").replace(b"\n", b"\r\n")
    for block_bytes in (1, 3, 16):
        forward, _ = both(compress(data), block_bytes=block_bytes)
        assert forward == plain(data)


def test_offsets_count_decompressed_bytes() -> None:
    """Start and end offsets mean the same as for the plain file."""
    data = rollout("one", "two", "three")
    border = data.index(b"\n") + 1
    packed = io.BytesIO(compress(data))
    assert texts(list(read_rollout(packed, start_offset=border))) == ["one", "two", "three"]
    assert next(iter(read_rollout(packed, start_offset=border))).offset == border
    both(compress(data), end_offset=border + 10)


@pytest.mark.guarantee("G5")
def test_frame_cut_short_gives_what_can_be_decoded() -> None:
    """Cut at any byte: a prefix of the records comes back, then a warning; nothing is made up."""
    whole = plain(rollout(*(noise(900, seed) for seed in range(400))))
    packed = compress(rollout(*(noise(900, seed) for seed in range(400))))
    for cut in [*range(5, 40), *range(40, len(packed), len(packed) // 40)]:
        forward, _ = both(packed[:cut])
        valid = [record for record in forward if record.line is not None]
        assert valid == whole[: len(valid)]
        assert reasons(forward)[-1] == "damaged_frame"
        assert forward[-1].warning is not None
        assert "cut short" in forward[-1].warning.message
    assert len(valid) > 300


def test_damaged_frame_does_not_hide_the_next() -> None:
    """What follows the damage is found again at the next frame, with a warning between."""
    first, second, third = (rollout(noise(500_000, seed), "end") for seed in (1, 2, 3))
    packed = [bytearray(compress(each, write_checksum=True)) for each in (first, second, third)]
    middle = len(packed[1]) // 2
    packed[1][middle : middle + 40] = b"\xff" * 40
    forward, _ = both(b"".join(packed))
    assert "damaged_frame" in reasons(forward)
    assert len([text for text in texts(forward) if text == "end"]) >= 2
    damage = next(each for each in forward if each.warning and each.warning.reason == "damaged_frame")
    assert damage.line_no is None
    assert damage.size == 0
    assert damage.warning is not None
    assert "byte" in damage.warning.message


@pytest.mark.parametrize("tail", [b"\0" * 512, b"garbage", b"\x28\xb5\x2f\xfd", b"\x50\x2a\x4d\x18\xff\xff"])
def test_bytes_behind_the_last_frame_are_reported(tail: bytes) -> None:
    """NUL padding, garbage, or the beginning of a frame: a warning, and all records."""
    forward, _ = both(compress(rollout("a", "b")) + tail)
    assert texts(forward) == ["a", "b"]
    assert reasons(forward) == ["damaged_frame"]


@given(st.binary(max_size=200), st.integers(0, 400), st.integers(1, 17))
def test_damage_anywhere_never_raises(junk: bytes, at: int, block_bytes: int) -> None:
    """Bytes overwritten at any place: both readers go through, and agree."""
    packed = bytearray(compress(rollout("one", noise(300))) + compress(message("two", 2)))
    packed[at : at + len(junk)] = junk
    both(bytes(packed), block_bytes=block_bytes)


@pytest.mark.guarantee("G7")
def test_frame_that_expands_enormously_is_read_in_bounded_memory() -> None:
    """A few kilobytes that claim to be 256 MiB of NULs cost no more memory than the limit allows."""
    packed = compress(meta() + bytes(256 << 20) + b"\n" + message("after", 1))
    assert len(packed) < 64 << 10
    tracemalloc.start()
    records = list(read_rollout(io.BytesIO(packed), record_bytes_max=1 << 20))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert texts(records) == ["after"]
    assert reasons(records) == ["nul_bytes"]
    assert peak < 16 << 20


def test_decompressed_pieces_are_small() -> None:
    """No piece exceeds what one zstd block may hold."""
    packed = compress(bytes(4 << 20))
    pieces = [each for each in decompress([packed]) if not isinstance(each, Break)]
    assert sum(map(len, pieces)) == 4 << 20
    assert max(map(len, pieces)) <= 256 << 10


def test_scan_leaves_no_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large one is put aside in a file without a name while it is scanned: none can be seen, none stays."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    data = rollout(*(noise(100_000, seed) for seed in range(100)))
    records = iter(ReverseJsonlScanner(io.BytesIO(compress(data))))
    next(records)
    assert list(tmp_path.iterdir()) == []
    assert len(list(records)) == 100


def test_scan_without_room_for_a_temporary_file_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """ENOSPC where temporary files go: an error that names the rollout."""

    class FullDisk(io.BytesIO):
        def write(self, data: Any) -> int:
            raise OSError(28, "No space left on device")

    def make(**_: object) -> IO[bytes]:
        return FullDisk()

    monkeypatch.setattr(tempfile, "SpooledTemporaryFile", make)
    with pytest.raises(RolloutUnreadable, match="No space left"):
        list(ReverseJsonlScanner(io.BytesIO(compress(rollout("a")))))
