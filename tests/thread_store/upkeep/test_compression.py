"""Compressing cold threads: the same records, fewer bytes, and expanded again before anything is added."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from hypothesis import assume, given
from hypothesis import strategies as st

from protocol.errors import (
    ActiveWriter,
    RolloutExists,
    RolloutReplaced,
    RolloutUnreadable,
    RolloutWriteError,
    WriterFenced,
)
from protocol.response_items import ResponseItem
from rollout.barrier import Goal
from rollout.source import is_compressed
from tests.thread_store.histories import history, meta, place_of, turns, uuid, write_thread
from tests.thread_store.upkeep.interrupted import uncut
from tests.thread_store.upkeep.works import place_with
from thread_store.chain.lineage import Lineage
from thread_store.forks.fork import make_fork
from thread_store.home import Home
from thread_store.local_threads import LocalThreads
from thread_store.open_threads import discard, hand_over
from thread_store.upkeep import zstd_form
from thread_store.upkeep.calls import UpkeepCalls
from thread_store.upkeep.compression import compress_thread, expand_rollout, expand_thread
from thread_store.upkeep.successor import make_successor
from thread_store.upkeep.threads import Place
from thread_store.upkeep.twins import is_beginning_of

A, B = uuid(0xA), uuid(0xB)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture
def place(home: Home) -> Place:
    return Place.of(home)


def fine() -> None:
    """The lock is ours."""


@given(st.lists(st.binary(max_size=40)), st.integers(1, 50))
def test_frames_give_back_the_very_bytes(blocks: list[bytes], frame_bytes: int) -> None:
    """However they are cut, by blocks and by frames; and any zstd reads them."""
    before, zstd_form.FRAME_BYTES = zstd_form.FRAME_BYTES, frame_bytes
    try:
        frames = list(zstd_form.compressed(blocks))
    finally:
        zstd_form.FRAME_BYTES = before
    data = b"".join(blocks)
    assert b"".join(zstd_form.decompressed(frames)) == data
    assert len(frames) == -(-len(data) // frame_bytes)
    assert b"".join(zstandard.decompress(each) for each in frames) == data


def test_compressed_thread_reads_as_before_and_looks_the_same(home: Home, place: Place) -> None:
    """Fewer bytes; mode and time stay; the plain file is gone; expanded it is the old one again."""
    path = write_thread(home, A, turns(30))
    os.chmod(path, 0o640)
    os.utime(path, ns=(7, 1_600_000_000_000_000_001))
    before, data, records = path.stat(), path.read_bytes(), history(path, home)
    made = compress_thread(place, A)
    packed = home.find_thread(A)
    assert packed.name == path.name + ".zst"
    assert not path.exists()
    assert packed.stat().st_size == made.bytes_after < made.bytes_before == len(data)
    assert history(packed, home) == records
    assert _look(packed) == (0o640, before.st_mtime_ns)
    assert expand_thread(place, A).paths == (str(path),)
    assert path.read_bytes() == data
    assert _look(path) == (0o640, before.st_mtime_ns)


def _look(path: Path) -> tuple[int, int]:
    status = path.stat()
    return stat.S_IMODE(status.st_mode), status.st_mtime_ns


def test_thread_that_changed_lately_stays(home: Home, place: Place) -> None:
    """For a week, unless somebody says otherwise."""
    path = write_thread(home, A, turns(1))
    os.utime(path, (time.time() - 6 * 86_400,) * 2)
    assert (compress_thread(place, A).paths, compress_thread(place, A).too_young) == ((), 1)
    assert path.exists()
    assert compress_thread(place, A, older_than_seconds=5 * 86_400).paths == (f"{path}.zst",)


def test_second_time_there_is_nothing_to_do(home: Home, place: Place) -> None:
    """Both ways."""
    write_thread(home, A, turns(1))
    compress_thread(place, A, older_than_seconds=0)
    assert compress_thread(place, A, older_than_seconds=0).paths == ()
    expand_thread(place, A)
    assert expand_thread(place, A).paths == ()


def test_live_thread_is_refused(home: Home) -> None:
    """Its writer is named, and goes on."""
    with LocalThreads(home) as threads:
        opened = threads.create()
        opened.core.pending.append(ResponseItem.message("user", "a"))
        hand_over(opened, Goal.FLUSH)
        with pytest.raises(ActiveWriter):
            compress_thread(Place.of(home), opened.core.thread_id, older_than_seconds=0)
        hand_over(opened, Goal.FLUSH)
        assert os.path.exists(opened.core.path)


def test_opening_expands_and_appends(home: Home, place: Place) -> None:
    """All old bytes are an exact prefix of what follows."""
    path = write_thread(home, A, turns(2))
    data = path.read_bytes()
    compress_thread(place, A, older_than_seconds=0)
    with LocalThreads(home) as threads:
        opened = threads.open(A)
        assert opened.core.path == str(path)
        opened.core.pending.append(ResponseItem.message("user", "more"))
    assert path.read_bytes().startswith(data)
    assert b"more" in path.read_bytes()
    assert not Path(f"{path}.zst").exists()


def test_refused_opening_leaves_it_compressed(home: Home, place: Place) -> None:
    """Who only judges changes nothing."""
    write_thread(home, A, turns(2))
    compress_thread(place, A, older_than_seconds=0)

    def refuse(path: Path) -> None:
        raise KeyError(path.name)

    with LocalThreads(home) as threads, pytest.raises(KeyError, match=r"\.zst"):
        threads.open(A, judge=refuse)
    assert home.find_thread(A).name.endswith(".zst")


def test_fork_reads_on_when_its_base_is_compressed(home: Home, place: Place) -> None:
    """Offsets are those of the decompressed bytes; the fork can be forked, opened, and its base expanded."""
    source = write_thread(home, A, turns(3))
    child = make_fork(source, place_of(home, B), thread_id=B, home=home, mode="reference").path
    before = history(child, home)
    compress_thread(place, A, older_than_seconds=0)
    assert history(child, home) == before
    with Lineage.resolve(child, home) as lineage:
        assert lineage.problem is None
    with LocalThreads(home) as threads:
        discard(threads.open(B))
        discard(threads.fork(B, mode="reference"))
    expand_thread(place, A)
    assert history(child, home) == before


def test_taking_over_a_compressed_thread_goes_on_in_plain_files(home: Home, place: Place) -> None:
    """As opening it does."""
    write_thread(home, A, turns(1), ordinal=None)
    compress_thread(place, A, older_than_seconds=0)
    with LocalThreads(home) as threads:
        opened, _ = threads.take_over(A)
        assert opened.core.path.endswith(".jsonl")


def test_damaged_file_is_never_expanded(home: Home, place: Place) -> None:
    """What is left of it can still be read; appending to half of it would bury the rest."""
    path = write_thread(home, A, turns(3))
    compress_thread(place, A, older_than_seconds=0)
    packed = Path(f"{path}.zst")
    damaged = bytearray(packed.read_bytes())
    damaged[len(damaged) // 2] ^= 0xFF
    packed.write_bytes(damaged)
    with pytest.raises(RolloutUnreadable, match="damaged"):
        expand_thread(place, A)
    assert packed.read_bytes() == damaged
    assert os.listdir(path.parent) == [packed.name]


def test_what_does_not_read_back_never_replaces(home: Home, place: Place) -> None:
    """A disk that lies is found out before the original goes."""

    class Lying(UpkeepCalls):
        def write(self, descriptor: int, data: memoryview | bytes) -> int:
            changed = bytearray(data)
            changed[-1] ^= 1
            return super().write(descriptor, bytes(changed))

    path = write_thread(home, A, turns(3))
    with pytest.raises((RolloutWriteError, RolloutUnreadable)):
        compress_thread(place._replace(calls=Lying()), A, older_than_seconds=0)
    assert os.listdir(path.parent) == [path.name]


def _append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"{}\n")


def _replace(path: Path) -> None:
    path.with_name("other").write_bytes(path.read_bytes())
    path.with_name("other").replace(path)


@pytest.mark.parametrize("change", [_append, _replace, Path.unlink])
@pytest.mark.parametrize("moment", [1, 2])
@pytest.mark.case("B108")
def test_program_that_changes_it_meanwhile_wins(
    home: Home, change: Callable[[Path], None], moment: int
) -> None:
    """Whatever it did stays; ours goes."""
    path = write_thread(home, A, turns(3))
    asked = iter(range(1, 9))

    def fence() -> None:
        if next(asked) == moment:
            change(path)

    with pytest.raises(RolloutReplaced):
        make_successor(str(path), f"{path}.zst", calls=UpkeepCalls(), fence=fence)
    if change is not Path.unlink:
        assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize("moment", [1, 2])
def test_lock_that_is_lost_meanwhile_ends_it(home: Home, moment: int) -> None:
    """The original stands, alone."""
    path = write_thread(home, A, turns(3))
    asked = iter(range(1, 9))

    def fence() -> None:
        if next(asked) == moment:
            raise WriterFenced(path=path, reason="taken over")

    with pytest.raises(WriterFenced):
        make_successor(str(path), f"{path}.zst", calls=UpkeepCalls(), fence=fence)
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize("at", range(30))
def test_interrupt_leaves_one_of_the_two(home: Home, at: int) -> None:
    """Ctrl-C may come behind any call; never are both gone."""
    from tests.thread_store.upkeep.interrupted import Cut

    def interrupt() -> None:
        raise KeyboardInterrupt

    path = write_thread(home, A, turns(3))
    records = history(path, home)
    cut = Cut(at, interrupt, after=True)
    try:
        compress_thread(place_with(home, cut), A, older_than_seconds=0)
    except KeyboardInterrupt:
        assert cut.struck
    assert history(home.find_thread(A), home) == records


def test_twin_that_holds_more_is_kept(home: Home, place: Place) -> None:
    """A compressed file beside a plain one is hidden; it goes only if nothing is lost with it."""
    path = write_thread(home, A, turns(1))
    twin = Path(f"{path}.zst")
    twin.write_bytes(zstandard.compress(path.read_bytes() + b"more\n"))
    with pytest.raises(RolloutExists):
        compress_thread(place, A, older_than_seconds=0)
    assert expand_rollout(path, fence=fine) == path
    assert twin.exists()
    assert path.exists()


def test_twin_that_is_broken_keeps_nobody_from_going_on(home: Home, place: Place) -> None:
    """It counts for nothing, and stays where it is."""
    path = write_thread(home, A, turns(1))
    twin = Path(f"{path}.zst")
    twin.write_bytes(zstandard.compress(path.read_bytes())[:-9])
    with LocalThreads(home) as threads:
        discard(threads.open(A))
    assert twin.exists()


def test_kill_between_expanding_and_removing_is_settled_by_the_next_opening(home: Home, place: Place) -> None:
    """The compressed file is what the plain one was then, and goes."""
    path = write_thread(home, A, turns(1))
    twin = Path(f"{path}.zst")
    twin.write_bytes(zstandard.compress(path.read_bytes()))
    with path.open("ab") as file:
        file.write(turns(1, first=2, ordinal=9))
    with LocalThreads(home) as threads:
        discard(threads.open(A))
    assert not twin.exists()


@given(
    st.one_of(st.just(b""), st.binary(max_size=30).map(b"{".__add__)),  # a rollout; no frame of zstd
    st.binary(max_size=10).map(b" ".__add__) | st.just(b""),
    st.booleans(),
)
def test_beginning_is_told_whatever_the_form(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, more: bytes, packed: bool
) -> None:
    """By the bytes of both, decompressed."""
    assume(not is_compressed(data + more))  # those four bytes turn up sooner or later
    folder = tmp_path_factory.mktemp("twins")
    whole, part = folder / "whole", folder / "part"
    whole.write_bytes(data + more)
    part.write_bytes(zstandard.compress(data) if packed else data)
    calls = UpkeepCalls()
    assert is_beginning_of(str(part), str(whole), calls)
    assert is_beginning_of(str(whole), str(part), calls) == (not more)
    other = folder / "other"
    other.write_bytes(data[:-1] + bytes([data[-1] ^ 1]) + more if data else b"")
    assert is_beginning_of(str(part), str(other), calls) == (not data)


def test_link_in_the_place_of_a_rollout_is_no_thread(home: Home, place: Place, tmp_path: Path) -> None:
    """What it leads to is never compressed away."""
    real = tmp_path / "real.jsonl"
    real.write_bytes(meta(A) + turns(1))
    path = place_of(home, A)
    path.symlink_to(real)
    with pytest.raises(LookupError):
        compress_thread(place, A, older_than_seconds=0)
    assert real.exists()


def test_owner_that_can_not_be_given_is_a_reason_to_leave_it(home: Home) -> None:
    """A thread of somebody else must not become root's."""
    path = write_thread(home, A, turns(1))
    cut = uncut()

    def refuse(descriptor: int, status: os.stat_result) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    cut.calls.set_look = refuse
    with pytest.raises(RolloutWriteError):
        compress_thread(place_with(home, cut), A, older_than_seconds=0)
    assert os.listdir(path.parent) == [path.name]
