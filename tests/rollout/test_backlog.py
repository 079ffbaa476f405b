"""The backlog: every accepted byte until a sync has covered it, in order and without a gap."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout.backlog import Backlog, Chunk

LINE = b"0123456789\n"


def filled(*sizes: int, chunk_bytes: int = 1 << 20) -> Backlog:
    """A backlog with one waiting chunk of so many lines each."""
    backlog = Backlog(chunk_bytes=chunk_bytes)
    start = 0
    for size in sizes:
        backlog.add([Chunk(bytearray(LINE * size), start=start, items=size)])
        start += size * len(LINE)
    return backlog


def hand_over(backlog: Backlog, offset: int, *, count: int = 1) -> int:
    """Pretend that the OS took the first `count` waiting chunks, the first at `offset`."""
    for chunk in list(backlog.waiting)[:count]:
        chunk.offset, chunk.handed = offset, len(chunk.data)
        offset += len(chunk.data)
    backlog.pass_written()
    return offset


def content(backlog: Backlog) -> bytes:
    return b"".join(backlog.undurable_lines())


def test_chunk_leaves_only_when_a_sync_covered_it() -> None:
    """Handed over is not durable: the bytes stay until they are."""
    backlog = filled(2, 3)
    hand_over(backlog, 0, count=2)
    assert content(backlog) == LINE * 5
    assert backlog.written == 55
    backlog.note_durable(22, offset=22)
    assert content(backlog) == LINE * 3
    backlog.note_durable(55, offset=55)
    assert content(backlog) == b""
    assert (backlog.durable, backlog.durable_offset) == (55, 55)


def test_small_chunks_are_joined_and_split_where_a_sync_ended() -> None:
    """A flush after each item leaves few chunks; a sync that covered a part of one leaves its rest."""
    backlog = filled(*[1] * 10)
    end = 100
    for _ in range(10):
        end = hand_over(backlog, end)
    assert len(backlog.handed) == 1
    backlog.note_durable(4 * len(LINE), offset=100 + 44)
    (rest,) = backlog.handed
    assert (rest.start, rest.offset, rest.handed) == (44, 144, 66)
    assert content(backlog) == LINE * 6


@pytest.mark.parametrize("size", [21, 22, 23])
def test_joined_chunk_is_no_larger_than_a_chunk(size: int) -> None:
    """Joining stops at the size of a chunk."""
    backlog = filled(1, 1, 1, chunk_bytes=size)
    hand_over(backlog, 0, count=3)
    assert [len(chunk.data) for chunk in backlog.handed] == ([11, 11, 11] if size < 22 else [22, 11])


def test_chunks_that_another_writer_parted_are_not_joined() -> None:
    """Their offsets don't follow each other."""
    backlog = filled(1, 1)
    hand_over(backlog, 0)
    hand_over(backlog, 500)
    assert [(chunk.start, chunk.offset) for chunk in backlog.handed] == [(0, 0), (11, 500)]


@pytest.mark.guarantee("G1")
def test_requeued_chunks_wait_again_in_their_order() -> None:
    """From the first chunk that isn't in the file on, all is written again, nothing before it."""
    backlog = filled(1, 2, 3, chunk_bytes=1)
    hand_over(backlog, 0, count=3)
    assert backlog.flushed_items == 6
    backlog.requeue(backlog.handed[1])
    assert [chunk.start for chunk in backlog.handed] == [0]
    assert [chunk.start for chunk in backlog.waiting] == [11, 33]
    assert all((chunk.handed, chunk.offset) == (0, -1) for chunk in backlog.waiting)
    assert (backlog.flushed_items, backlog.written) == (1, 11)


def test_requeue_of_the_waiting_chunk_forgets_what_was_handed_of_it() -> None:
    """A chunk that was cut short begins anew."""
    backlog = filled(2, 1)
    backlog.waiting[0].handed, backlog.waiting[0].offset = 11, 0
    backlog.requeue(backlog.waiting[0])
    assert (backlog.waiting[0].handed, backlog.waiting[0].offset, backlog.written) == (0, -1, 0)


def test_written_counts_the_handed_bytes_of_the_first_waiting_chunk() -> None:
    """A flush may be answered up to the byte that the OS took."""
    backlog = filled(2)
    backlog.waiting[0].handed = 11
    assert backlog.written == 11
    hand_over(backlog, 0)
    assert backlog.written == backlog.end == 22


def test_note_of_the_writer_stands_first_and_takes_no_position() -> None:
    """Positions of items don't shift when a gap note is put before them."""
    backlog = filled(1, 1)
    hand_over(backlog, 0)
    backlog.insert_first(b"note\n")
    assert content(backlog) == LINE + b"note\n" + LINE
    assert (backlog.waiting[0].start, backlog.waiting[0].end) == (11, 22)
    backlog.waiting[0].handed = 5
    assert backlog.written == 11
    backlog.waiting[0].handed = 5 + 11
    assert backlog.written == 22


def test_note_with_nothing_waiting_waits_alone() -> None:
    """A gap is named even if nothing was recorded since."""
    backlog = filled(1)
    hand_over(backlog, 0)
    backlog.insert_first(b"note\n")
    assert backlog.written == 11
    hand_over(backlog, 11)
    backlog.note_durable(11, offset=16)
    assert content(backlog) == b""


@pytest.mark.parametrize("size", [0, 5, 16, 27, 38])
def test_split_parts_a_chunk_without_losing_or_moving_anything(size: int) -> None:
    """What stands in one place and what comes elsewhere are together the chunk, notes included."""
    backlog = filled(3)
    backlog.insert_first(b"note\n")
    chunk = backlog.waiting[0]
    before = content(backlog)
    backlog.split(chunk, size, offset=700)
    assert content(backlog) == before
    handed = list(backlog.handed)
    assert [len(each.data) for each in handed] == ([size] if size else [])
    if size:
        assert (handed[0].offset, handed[0].handed) == (700, size)
        assert handed[0].end == chunk.start
    assert chunk.end == 33
    assert sum(each.items for each in backlog) == 3


@pytest.mark.guarantee("G1")
def test_note_that_was_synced_alone_leaves_though_items_were_joined_to_it() -> None:
    """A sync that began before the items were written covers the note only, which takes no position."""
    backlog = filled(1)
    backlog.insert_first(b"note\n")
    backlog.split(backlog.waiting[0], 5, offset=0)
    covered = backlog.written
    hand_over(backlog, 5)
    backlog.note_durable(covered, offset=5)
    assert content(backlog) == LINE
    assert (backlog.handed[0].start, backlog.handed[0].offset, backlog.handed[0].note_bytes) == (0, 5, 0)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=8), st.data())
def test_positions_never_gap_whatever_happens(sizes: list[int], data: st.DataObject) -> None:
    """Handing over, requeueing, syncing, notes and splits in any order: chunks stay one gapless run, and
    those handed over are what the file holds behind the durable offset."""
    backlog = filled(*sizes, chunk_bytes=30)
    total, file = backlog.end, bytearray()
    syncs: list[tuple[int, int]] = []  # begun, and nothing befell the file since
    for _ in range(data.draw(st.integers(0, 16))):
        action = data.draw(st.sampled_from(["hand", "part", "requeue", "begin sync", "end sync", "note"]))
        if action == "hand" and backlog.waiting:
            file += backlog.waiting[0].data
            hand_over(backlog, len(file) - len(backlog.waiting[0].data))
        elif action == "part" and backlog.waiting:
            chunk = backlog.waiting[0]
            border = data.draw(st.integers(0, chunk.data.count(b"\n")))
            size = sum(len(line) for line in chunk.data.splitlines(keepends=True)[:border])
            if size < len(chunk.data):
                file += chunk.data[:size]
                backlog.split(chunk, size, offset=len(file) - size)
        elif action == "requeue" and backlog.handed:
            chunk = data.draw(st.sampled_from(list(backlog.handed)))
            del file[chunk.offset :]
            backlog.requeue(chunk)
            syncs.clear()
        elif action == "begin sync":
            syncs.append((backlog.written, len(file)))
        elif action == "end sync" and syncs:
            stream, offset = syncs.pop(0)
            backlog.note_durable(stream, offset=offset)
        elif action == "note":
            backlog.insert_first(b"note\n")
        position = backlog.durable
        for chunk in backlog:
            assert chunk.start == position
            position = chunk.end
        assert position == total
        assert content(backlog).replace(b"note\n", b"") == LINE * ((total - backlog.durable) // len(LINE))
        assert all(chunk.handed == 0 for chunk in list(backlog.waiting)[1:])
        assert b"".join(chunk.data for chunk in backlog.handed) == file[backlog.durable_offset :]
