"""Reconcile: what stands in the file is found by comparing bytes, never by what a call reported."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout import reconcile
from rollout.backlog import Chunk
from rollout.reconcile import Standing, compare, whole_lines

FIRST = b'{"n":1}\n{"n":2}\n'
SECOND = b'{"n":3}\n{"n":4}\n'
FOREIGN = b'{"other":true}\n'


def found(file: bytes, *chunks: bytes, start: int = 0) -> Standing:
    made, position = [], 0
    for data in chunks:
        made.append(Chunk(bytearray(data), start=position, items=data.count(b"\n")))
        position += len(data)
    return compare(made, start=start, size=len(file), read=lambda offset, size: file[offset : offset + size])


def test_all_chunks_stand() -> None:
    """Written and reported as failed: nothing has to be written again."""
    standing = found(b"old\n" + FIRST + SECOND, FIRST, SECOND, start=4)
    assert [offset for _, offset in standing.placed] == [4, 4 + len(FIRST)]
    assert standing.broken is None
    assert standing.foreign_bytes == standing.foreign_behind == 0
    assert standing.end == 4 + len(FIRST) + len(SECOND)


@pytest.mark.parametrize("size", range(len(FIRST) + len(SECOND)))
def test_cut_at_every_byte_is_found_at_that_byte(size: int) -> None:
    """Whatever arrived of two chunks, the first byte that is missing is found exactly."""
    standing = found(b"old\n" + (FIRST + SECOND)[:size], FIRST, SECOND, start=4)
    assert standing.broken is not None
    assert standing.broken_offset + standing.broken_bytes == 4 + size
    assert len(standing.placed) == (size >= len(FIRST))
    assert standing.foreign_bytes == standing.foreign_behind == 0


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("place", ["before", "between", "behind"])
def test_foreign_lines_are_counted_and_never_ours(place: str, count: int) -> None:
    """Another writer's lines before, between and behind our chunks: ours are found all the same."""
    foreign = FOREIGN * count
    files = {
        "before": foreign + FIRST + SECOND,
        "between": FIRST + foreign + SECOND,
        "behind": FIRST + SECOND + foreign,
    }
    standing = found(files[place], FIRST, SECOND)
    assert standing.foreign_bytes == len(foreign)
    assert standing.foreign_behind == (len(foreign) if place == "behind" else 0)
    assert standing.broken is None
    assert [files[place][offset:][: len(chunk.data)] for chunk, offset in standing.placed] == [FIRST, SECOND]


def test_foreign_lines_alone_leave_the_chunk_broken_at_its_start() -> None:
    """Nothing of ours arrived; what stands there belongs to somebody else, whole."""
    standing = found(FOREIGN, FIRST)
    assert (standing.broken_offset, standing.foreign_bytes + standing.broken_bytes) == (0, len(FOREIGN))
    assert standing.foreign_bytes > 0


def test_foreign_line_inside_a_chunk_ends_what_counts() -> None:
    """A write that another one split: our lines up to there stand, the rest does not."""
    standing = found(b'{"n":1}\n' + FOREIGN, FIRST)
    assert standing.broken is not None
    assert whole_lines(standing.broken.data, standing.broken_bytes) == len(b'{"n":1}\n')
    assert standing.foreign_bytes > 0


@pytest.mark.parametrize("size", range(1, len(FIRST) + 1))
def test_cut_behind_foreign_bytes_is_found_from_the_first_whole_line_on(size: int) -> None:
    """A line that lacks its newline only is ours; a shorter piece of the first one may be anybody's."""
    foreign = b"nothing like ours\n"
    standing = found(foreign + FIRST[:size], FIRST)
    first_line = len(FIRST) // 2
    ours = standing.broken_bytes if standing.broken is not None else len(FIRST)
    assert ours == (size if size >= first_line - 1 else 0)
    assert standing.foreign_behind == (0 if ours else len(foreign) + size)
    assert standing.foreign_bytes == len(foreign) + (0 if ours else size)


def test_equal_lines_are_found_in_their_order() -> None:
    """The first of two equal lines stands whole, the second one lacks its newline."""
    standing = found(b"a\na", b"a\n", b"a\n")
    assert [offset for _, offset in standing.placed] == [0]
    assert (standing.broken_offset, standing.broken_bytes, standing.foreign_bytes) == (2, 1, 0)


def test_header_of_a_lone_newline_is_compared_with_the_line_behind_it() -> None:
    """The newline that an old file lacked is no line by which a chunk could be recognised."""
    standing = found(b'{"old":1}\n' + FOREIGN, b"\n" + FIRST, start=9)
    assert standing.foreign_bytes > 0


@pytest.mark.parametrize("block", [1, 7, 8, 9, 64])
def test_block_borders_change_nothing(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines that lie across the blocks in which the file is read are found too."""
    monkeypatch.setattr(reconcile, "_BLOCK_BYTES", block)
    file = FOREIGN * 7 + FIRST + FOREIGN * 3 + SECOND[:-3]
    standing = found(file, FIRST, SECOND)
    assert [offset for _, offset in standing.placed] == [len(FOREIGN) * 7]
    assert standing.broken is not None
    assert file[standing.broken_offset :][: standing.broken_bytes] in (b"", SECOND[:-3])


CHUNKS = st.lists(
    st.lists(st.text("ab", max_size=3), min_size=1, max_size=3).map(
        lambda lines: "".join(f"{line}\n" for line in lines).encode()
    ),
    min_size=1,
    max_size=4,
)


@given(chunks=CHUNKS, cut=st.integers(0, 40), before=st.binary(max_size=5))
def test_any_prefix_of_our_bytes_is_recognised(chunks: list[bytes], cut: int, before: bytes) -> None:
    """A file that holds a prefix of the stream and nothing else: no byte is taken for a foreign one."""
    numbered = [b"%d:%b" % (number, chunk) for number, chunk in enumerate(chunks)]
    stream = b"".join(numbered)[:cut]
    standing = found(before + stream, *numbered, start=len(before))
    assert standing.foreign_bytes == 0
    placed = sum(len(chunk.data) for chunk, _ in standing.placed)
    assert placed + standing.broken_bytes == len(stream)


@pytest.mark.parametrize(
    ("data", "size", "expected"),
    [(b"a\nb", 3, 2), (b"a\nb\n", 3, 2), (b"a\nb\n", 4, 4), (b"ab", 2, 0), (b"", 0, 0)],
)
def test_whole_lines_end_with_the_last_newline(data: bytes, size: int, expected: int) -> None:
    """How much of a cut chunk counts."""
    assert whole_lines(data, size) == expected
