"""The file sink: which bytes reach the file, which are cut, and what a sync may promise."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import ActiveWriter, RolloutExists, RolloutMoved, RolloutReplaced, RolloutWriteError
from rollout import file_sink
from rollout.sink import SinkDisturbed
from tests.rollout.faulty import (
    EAGAIN,
    EIO,
    ENOSPC,
    Effect,
    FaultyCalls,
    ForgetfulCalls,
    Gate,
    answers,
    fails,
    fails_after,
    short,
    short_then_fails,
    waits_before,
)
from tests.rollout.sinking import GAP, META, Rig, line, lines

FOREIGN = b'{"timestamp":"2026-11-29T10:00:00.000Z","type":"x_check","payload":{"by":"another"}}\n'
TORN = b'{"timestamp":"2026-11-29T10:00:01.000Z","type":"x_che'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.jsonl"


@pytest.fixture
def rig(path: Path) -> Iterator[Rig]:
    """A rollout with three synced lines."""
    made = Rig(path, ForgetfulCalls())
    made.put(META + lines(1, 2, 3))
    made.settle()
    yield made
    made.close()


@contextmanager
def append_only(path: Path, calls: FaultyCalls) -> Iterator[None]:
    """The append-only attribute; where it can't be set, calls that answer as it would."""
    done = subprocess.run(["chattr", "+a", path], capture_output=True, check=False)
    if done.returncode:
        calls.arm("truncate", fails(errno.EPERM), times=None)
        calls.arm("open_overwrite", fails(errno.EPERM), times=None)
    try:
        yield
    finally:
        if not done.returncode:
            subprocess.run(["chattr", "-a", path], check=True)


def retry(rig: Rig, *, tries: int = 8) -> None:
    """What the writer does after an error: heal, then write and sync."""
    for _ in range(tries):
        try:
            if rig.sink.created or rig.backlog.waiting:
                rig.heal()
            rig.settle()
        except (OSError, RolloutWriteError):
            continue
        return
    pytest.fail("it was never mended")


# Handing over


def test_chunk_is_one_write(path: Path) -> None:
    """A batch with its newlines is one call, so that no other writer's line can come between."""
    rig = Rig(path, FaultyCalls())
    rig.put(META + lines(*range(1, 1001)))
    rig.write()
    rig.close()
    assert rig.calls.made["write"] == 1  # type: ignore[attr-defined]
    assert rig.data == META + lines(*range(1, 1001))


HALVES = {"one byte": lambda size: 1, "half": lambda size: size // 2, "all but one": lambda size: size - 1}


@pytest.mark.case("B15")
@pytest.mark.guarantee("G1")
@pytest.mark.parametrize("size", HALVES.values(), ids=HALVES)
@pytest.mark.parametrize("times", [1, None], ids=["once", "for ever"])
def test_short_writes_are_completed_from_the_exact_byte(
    rig: Rig, size: Callable[[int], int], times: int | None
) -> None:
    """However little a write takes: the rest follows, nothing is written twice."""
    rig.calls.arm("write", short(size), times=times)  # type: ignore[attr-defined]
    rig.put(lines(4, 5))
    rig.write()
    assert rig.data == META + lines(1, 2, 3, 4, 5)


PARTS = {**HALVES, "nothing": lambda size: 0, "all": lambda size: size}
ERRORS = {"ENOSPC": ENOSPC, "EIO": EIO, "EAGAIN": EAGAIN, "EFBIG": errno.EFBIG, "EINTR": errno.EINTR}


@pytest.mark.case("B14", "B15")
@pytest.mark.guarantee("G1")
@pytest.mark.parametrize("number", ERRORS.values(), ids=ERRORS)
@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
@pytest.mark.parametrize("reported", [True, False], ids=["short count, then error", "error alone"])
def test_write_that_failed_part_way_is_completed_once(
    rig: Rig, part: Callable[[int], int], number: int, reported: bool
) -> None:
    """A part arrived, and was reported or not: after healing every line is there once, whole."""
    calls = rig.calls
    assert isinstance(calls, FaultyCalls)
    rig.put(lines(4, 5), lines(6))
    if reported:
        calls.arm("write", short(part))
        calls.arm("write", fails(number), first=2)
    else:
        calls.arm("write", short_then_fails(part, number))
    with pytest.raises(OSError):
        rig.write()
    assert not reported or rig.data.endswith(b"\n")
    retry(rig)
    assert rig.data == META + lines(1, 2, 3, 4, 5, 6)


@pytest.mark.case("B15", "B139")
def test_file_ends_on_a_line_border_while_the_disk_is_full(rig: Rig) -> None:
    """The half line of a write that failed is taken back at once: readers see whole lines only."""
    rig.calls.arm("write", short(lambda size: size - 3))  # type: ignore[attr-defined]
    rig.calls.arm("write", fails(ENOSPC), first=2, times=None)  # type: ignore[attr-defined]
    rig.put(lines(4, 5))
    for _ in range(3):
        with pytest.raises(OSError):
            rig.write()
        assert rig.data == META + lines(1, 2, 3, 4)
        rig.heal()
    rig.calls.lift()  # type: ignore[attr-defined]
    rig.write()
    assert rig.data == META + lines(1, 2, 3, 4, 5)


@pytest.mark.parametrize("number", [EIO, errno.EPERM], ids=["EIO", "EPERM"])
def test_half_line_that_cannot_be_cut_now_is_mended_later(rig: Rig, number: int) -> None:
    """The cut fails too: whether it works later or never, no line is lost, doubled or glued."""
    calls = rig.calls
    assert isinstance(calls, FaultyCalls)
    calls.arm("write", short(lambda size: size - 3))
    calls.arm("write", fails(ENOSPC), first=2)
    calls.arm("truncate", fails(number), times=2 if number == EIO else None)
    rig.put(lines(4, 5))
    with pytest.raises(OSError):
        rig.write()
    assert rig.data == META + lines(1, 2, 3) + lines(4, 5)[:-3]
    retry(rig)
    assert rig.data == META + lines(1, 2, 3, 4, 5)


@pytest.mark.parametrize("value", [0, -1])
def test_write_that_takes_nothing_is_an_error_and_no_endless_loop(rig: Rig, value: int) -> None:
    """A count of 0 is not progress."""
    rig.calls.arm("write", answers(value), times=None)  # type: ignore[attr-defined]
    rig.put(lines(4))
    with pytest.raises(OSError, match="returned"):
        rig.write()


def test_append_only_file_is_continued_from_the_exact_byte(rig: Rig, path: Path) -> None:
    """Where cutting is forbidden the half line is completed in place."""
    with append_only(path, rig.calls):  # type: ignore[arg-type]
        rig.calls.arm("write", short(lambda size: size - 3))  # type: ignore[attr-defined]
        rig.calls.arm("write", fails(ENOSPC), first=2)  # type: ignore[attr-defined]
        rig.put(lines(4, 5))
        with pytest.raises(OSError):
            rig.write()
        assert rig.data == META + lines(1, 2, 3) + lines(4, 5)[:-3]
        retry(rig)
    assert rig.data == META + lines(1, 2, 3, 4, 5)


# Other writers


@pytest.mark.case("B12")
@pytest.mark.parametrize("count", [1, 3])
def test_foreign_lines_are_kept_in_their_place(rig: Rig, path: Path, count: int) -> None:
    """Another program appends without the lock: its lines stay, ours follow."""
    with path.open("ab") as file:
        file.write(FOREIGN * count)
    rig.put(lines(4))
    rig.settle()
    assert rig.data == META + lines(1, 2, 3) + FOREIGN * count + line(4)
    rig.put(lines(5))
    rig.settle()
    assert rig.data.endswith(FOREIGN + lines(4, 5))


def test_foreign_lines_between_handed_and_synced_ones_are_kept(rig: Rig, path: Path) -> None:
    """Ours before them are found again, and a failed sync rewrites ours only."""
    rig.put(lines(4))
    rig.write()
    with path.open("ab") as file:
        file.write(FOREIGN)
    rig.put(lines(5))
    rig.calls.arm("datasync", fails(EIO))  # type: ignore[attr-defined]
    retry(rig)
    assert rig.data == META + lines(1, 2, 3, 4) + FOREIGN + line(5)


@pytest.mark.parametrize("cut", [10, 40, len(FOREIGN) - 1])
@pytest.mark.guarantee("G3")
def test_foreign_half_line_is_ended_before_ours(rig: Rig, path: Path, cut: int) -> None:
    """It isn't ours to cut, and our line is not glued to it, not even by a power cut after a failed sync."""
    with path.open("ab") as file:
        file.write(FOREIGN[:cut])
    rig.put(lines(4))
    rig.calls.arm("datasync", fails(EIO))  # type: ignore[attr-defined]
    retry(rig)
    wanted = META + lines(1, 2, 3) + FOREIGN[:cut] + b"\n" + line(4)
    assert rig.data == wanted
    assert isinstance(rig.calls, ForgetfulCalls)
    left = rig.calls.after_power_loss(path)
    assert left is not None
    assert left[-len(line(4)) - 1 :] == b"\n" + line(4)


def test_line_of_another_writer_inside_our_short_write_is_not_cut(rig: Rig, path: Path) -> None:
    """It came between two parts of our line: the torn half of ours is lost to it, the item is not."""

    def interrupted(calls: FaultyCalls, name: str, arguments: tuple[Any, ...]) -> Any:
        descriptor, data = arguments
        written = calls.perform(name, (descriptor, bytes(data[:30])))
        with path.open("ab") as file:
            file.write(b"\n" + FOREIGN)
        return written

    rig.calls.arm("write", interrupted)  # type: ignore[attr-defined]
    rig.put(lines(4))
    rig.settle()
    assert rig.data == META + lines(1, 2, 3) + line(4)[:30] + b"\n" + FOREIGN + line(4)


# Syncing


@pytest.mark.guarantee("G2")
def test_new_file_is_synced_with_every_folder_that_was_made(tmp_path: Path) -> None:
    """A synced line survives a power cut with its name, and so does each folder on the way."""
    path = tmp_path / "x" / "y" / "a.jsonl"
    calls = ForgetfulCalls()
    rig = Rig(path, calls)
    rig.put(META + lines(1))
    rig.write()
    assert calls.after_power_loss(path) is None
    rig.sync()
    rig.close()
    assert calls.after_power_loss(path) == META + lines(1)


@pytest.mark.guarantee("G2")
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_folder_whose_sync_failed_is_synced_by_the_next_sync(tmp_path: Path, nth: int) -> None:
    """None of them is forgotten."""
    path = tmp_path / "x" / "y" / "a.jsonl"
    calls = ForgetfulCalls()
    rig = Rig(path, calls)
    rig.put(META + lines(1))
    rig.write()
    calls.arm("sync_folder", fails(EIO), first=nth)
    with pytest.raises(OSError):
        rig.sync()
    rig.sync()
    rig.close()
    assert calls.after_power_loss(path) == META + lines(1)


@pytest.mark.guarantee("G3")
def test_bytes_of_a_failed_sync_are_written_again_in_place_before_the_next_counts(
    rig: Rig, path: Path
) -> None:
    """Same bytes, same offsets, by pwrite without O_APPEND; what was synced before is left alone."""
    calls = rig.calls
    assert isinstance(calls, ForgetfulCalls)
    rig.put(lines(4))
    rig.write()
    calls.arm("datasync", fails(EIO))
    with pytest.raises(OSError):
        rig.sync()
    rig.put(lines(5))
    rig.write()
    assert calls.after_power_loss(path) == META + lines(1, 2, 3)
    before = len(calls.log)
    rig.sync()
    names = [name for name, _ in calls.log[before:]]
    assert names.index("open_overwrite") < names.index("pwrite") < names.index("datasync")
    offsets = [arguments[-1] for name, arguments in calls.log[before:] if name == "pwrite"]
    assert min(offsets) == len(META + lines(1, 2, 3))
    assert calls.after_power_loss(path) == rig.data == META + lines(1, 2, 3, 4, 5)


@pytest.mark.guarantee("G3")
@pytest.mark.parametrize("call", ["dup", "open_overwrite", "fstat", "pwrite", "datasync"])
@pytest.mark.parametrize("number", [EIO, errno.EMFILE], ids=["EIO", "EMFILE"])
def test_rewrite_that_failed_is_done_by_the_next_sync(rig: Rig, path: Path, call: str, number: int) -> None:
    """After a failed sync nothing counts until the rewrite itself has succeeded, whatever stops it."""
    calls = rig.calls
    assert isinstance(calls, ForgetfulCalls)
    rig.put(lines(4))
    rig.write()
    calls.arm("datasync", fails(EIO))
    with pytest.raises(OSError):
        rig.sync()
    calls.arm(call, fails(number))
    with pytest.raises(OSError):
        rig.sync()
    rig.sync()
    assert calls.after_power_loss(path) == META + lines(1, 2, 3, 4)


@pytest.mark.guarantee("G3")
@pytest.mark.parametrize("size", HALVES.values(), ids=HALVES)
def test_short_rewrites_are_completed(rig: Rig, path: Path, size: Callable[[int], int]) -> None:
    """A pwrite may be short too."""
    calls = rig.calls
    assert isinstance(calls, ForgetfulCalls)
    rig.put(lines(4, 5))
    rig.write()
    calls.arm("datasync", fails(EIO))
    with pytest.raises(OSError):
        rig.sync()
    calls.arm("pwrite", short(size), times=None)
    rig.sync()
    assert calls.after_power_loss(path) == META + lines(1, 2, 3, 4, 5)


@pytest.mark.guarantee("G3")
@pytest.mark.parametrize("value", [0, -1])
def test_rewrite_that_takes_nothing_is_an_error(rig: Rig, value: int) -> None:
    """And no endless loop; the sync after it does it again."""
    calls = rig.calls
    assert isinstance(calls, ForgetfulCalls)
    rig.put(lines(4))
    rig.write()
    calls.arm("datasync", fails(EIO))
    with pytest.raises(OSError):
        rig.sync()
    calls.arm("pwrite", answers(value))
    with pytest.raises(OSError, match="pwrite returned"):
        rig.sync()
    rig.sync()
    assert calls.after_power_loss(rig.path) == META + lines(1, 2, 3, 4)


@pytest.mark.guarantee("G3", "G4")
def test_rewrite_never_touches_another_file_at_the_path(rig: Rig, path: Path) -> None:
    """It opens the path anew: what stands there now is somebody else's."""
    rig.put(lines(4))
    rig.write()
    rig.calls.arm("datasync", fails(EIO))  # type: ignore[attr-defined]
    with pytest.raises(OSError):
        rig.sync()
    path.rename(path.with_name("aside"))
    path.write_bytes(b"a letter" * 100)
    with pytest.raises(OSError) as caught:
        rig.sync()
    assert caught.value.errno == errno.ESTALE
    assert path.read_bytes() == b"a letter" * 100
    path.with_name("aside").replace(path)
    rig.settle()
    assert rig.calls.after_power_loss(path) == META + lines(1, 2, 3, 4)  # type: ignore[attr-defined]


@pytest.mark.guarantee("G3")
@pytest.mark.parametrize("size", [10, 1 << 20, (1 << 20) + 1])
def test_open_rewrites_the_end_of_an_old_file_before_its_first_sync(path: Path, size: int) -> None:
    """A process that died after a failed sync left bytes that look clean: its successor stores them."""
    content = META + line(1, size) + line(2)
    path.write_bytes(content)
    calls = ForgetfulCalls()
    calls.trust(path)
    calls._inode_of(path).stable[-len(line(2)) :] = bytes(len(line(2)))  # lost by the failed sync
    rig = Rig.reopened(path, calls)
    rig.put(line(3))
    rig.settle()
    rig.close()
    assert calls.after_power_loss(path) == content + line(3)


@pytest.mark.guarantee("G3")
@pytest.mark.parametrize("call", ["dup", "datasync", "open_overwrite"])
def test_end_of_an_old_file_is_rewritten_even_if_the_first_sync_failed(path: Path, call: str) -> None:
    """The suspicion stays until a sync has succeeded."""
    content = META + lines(1, 2)
    path.write_bytes(content)
    calls = ForgetfulCalls()
    calls.trust(path)
    calls._inode_of(path).stable[-5:] = bytes(5)
    rig = Rig.reopened(path, calls)
    rig.put(line(3))
    rig.write()
    calls.arm(call, fails(EIO))
    with pytest.raises(OSError):
        rig.sync()
    retry(rig)
    rig.close()
    assert calls.after_power_loss(path) == content + line(3)


def test_append_only_file_is_synced_without_rewriting_what_stood_there(path: Path) -> None:
    """Its old bytes can't be written again; that is no reason to refuse the new ones."""
    path.write_bytes(META + lines(1))
    calls = FaultyCalls()
    rig = Rig.reopened(path, calls)
    with append_only(path, calls):
        rig.put(line(2))
        rig.settle()
        rig.close()
    assert rig.data == META + lines(1, 2)


@pytest.mark.parametrize("change", ["unlink", "replace", "truncate"])
def test_sync_of_a_file_that_is_no_longer_at_the_path_does_not_count(
    rig: Rig, path: Path, change: str
) -> None:
    """The sync succeeded on an inode that nobody will find: it says so."""
    rig.put(lines(4))
    rig.write()

    def meanwhile(calls: FaultyCalls, name: str, arguments: tuple[Any, ...]) -> Any:
        calls.perform(name, arguments)
        if change == "truncate":
            os.truncate(path, 10)
        else:
            path.unlink()
            if change == "replace":
                path.write_bytes(b"other")

    rig.calls.arm("datasync", meanwhile)  # type: ignore[attr-defined]
    with pytest.raises(SinkDisturbed):
        rig.sync()
    assert rig.backlog.undurable_lines() == [line(4)]


@pytest.mark.guarantee("G2", "G3")
def test_sync_that_a_healing_overtook_does_not_count(rig: Rig, path: Path) -> None:
    """It began before the file was mended: what stands there now was written after it."""
    rig.put(lines(4))
    rig.write()

    def meanwhile(calls: FaultyCalls, name: str, arguments: tuple[Any, ...]) -> Any:
        calls.perform(name, arguments)
        os.truncate(path, len(META + lines(1, 2, 3)))
        rig.heal()
        rig.put(lines(5))
        rig.write()

    rig.calls.arm("datasync", meanwhile)  # type: ignore[attr-defined]
    with pytest.raises(SinkDisturbed):
        rig.sync()
    assert rig.data == META + lines(1, 2, 3, 4, 5)
    rig.sync()
    assert rig.calls.after_power_loss(path) == rig.data  # type: ignore[attr-defined]


@pytest.mark.guarantee("G1", "G3")
def test_rewrite_that_a_healing_overtook_writes_nothing_stale(rig: Rig, path: Path) -> None:
    """It hung; meanwhile the file was destroyed and mended, and other bytes stand at its offsets."""
    rig.put(lines(4, 5), lines(6, 7))
    rig.write()
    rig.calls.arm("datasync", fails(EIO))  # type: ignore[attr-defined]
    with pytest.raises(OSError):
        rig.sync()
    gate = Gate()
    rig.calls.arm("open_overwrite", waits_before(gate))  # type: ignore[attr-defined]
    outcome: list[BaseException | None] = []
    job = rig.sink.sync_job(rig.backlog)

    def run() -> None:
        try:
            job()
        except (OSError, SinkDisturbed) as error:
            outcome.append(error)
        else:
            outcome.append(None)

    sync = threading.Thread(target=run)
    sync.start()
    assert gate.reached.wait(30)
    os.truncate(path, 0)
    healing = threading.Thread(target=rig.heal)
    healing.start()
    gate.open()
    healing.join()
    sync.join()
    rig.settle()
    lost = len(META + lines(1, 2, 3))
    assert outcome[0] is not None
    assert rig.data == META + GAP(lost, "truncated") + lines(4, 5, 6, 7)
    assert rig.calls.after_power_loss(path) == rig.data  # type: ignore[attr-defined]


# Destroyed by others


@pytest.mark.case("B108")
@pytest.mark.guarantee("G1")
@pytest.mark.parametrize("size", range(len(lines(4, 5)) + 1))
def test_truncated_to_what_is_durable_or_more_loses_nothing(rig: Rig, path: Path, size: int) -> None:
    """Cut at any byte behind the last sync: everything is written again, and there is no gap."""
    rig.put(lines(4, 5))
    rig.write()
    os.truncate(path, len(META + lines(1, 2, 3)) + size)
    rig.put(lines(6))
    rig.settle()
    assert rig.data == META + lines(1, 2, 3, 4, 5, 6)


@pytest.mark.case("B108")
@pytest.mark.guarantee("G1")
@pytest.mark.parametrize("written", [False, True], ids=["waiting", "handed over"])
@pytest.mark.parametrize("size", [0, 1, len(META) - 1, len(META), len(META) + 1, len(META + lines(1, 2))])
def test_truncated_below_what_is_durable_names_the_bytes_that_are_gone(
    rig: Rig, path: Path, size: int, written: bool
) -> None:
    """The rest of the cut line is set aside, a header stands first again, the gap says how much was lost,
    and what was not durable follows whole."""
    before = rig.data
    rig.put(lines(4))
    if written:
        rig.write()
    os.truncate(path, size)
    rig.put(lines(5))
    rig.settle()
    border = before.rfind(b"\n", 0, size) + 1
    header = b"" if border else META
    assert rig.data == before[:border] + header + GAP(len(before) - border, "truncated") + lines(4, 5)
    assert [kept.read_bytes() for kept in path.parent.glob("*.torn")] == (
        [before[border:size]] if size > border else []
    )


@pytest.mark.guarantee("G1")
@pytest.mark.parametrize("size", [0, len(META) + 5])
def test_truncated_while_a_chunk_is_partly_written_loses_no_line_of_it(
    rig: Rig, path: Path, size: int
) -> None:
    """A full disk cut our write short, then another program cut the file: two troubles at once."""
    before = rig.data
    rig.calls.arm("write", short(lambda size: size - 3))  # type: ignore[attr-defined]
    rig.calls.arm("write", fails(ENOSPC), first=2)  # type: ignore[attr-defined]
    rig.put(lines(4, 5))
    with pytest.raises(OSError):
        rig.write()
    os.truncate(path, size)
    retry(rig)
    border = before.rfind(b"\n", 0, size) + 1
    header = b"" if border else META
    assert rig.data == before[:border] + header + GAP(len(before) - border, "truncated") + lines(4, 5)


@pytest.mark.guarantee("G1")
def test_gap_is_named_before_each_destroyed_range(rig: Rig, path: Path) -> None:
    """Truncated twice: two gaps."""
    os.truncate(path, len(META + lines(1, 2)))
    rig.put(lines(4))
    rig.settle()
    first = META + lines(1, 2) + GAP(len(line(3)), "truncated") + line(4)
    assert rig.data == first
    os.truncate(path, len(META + lines(1)))
    rig.put(lines(5))
    rig.settle()
    assert rig.data == META + line(1) + GAP(len(first) - len(META + line(1)), "truncated") + line(5)


@pytest.mark.parametrize("call", ["write", "truncate", "pread", "datasync", "open_append", "lstat", "fstat"])
@pytest.mark.parametrize("nth", [1, 2, 3, 4])
@pytest.mark.parametrize("effect", [fails(EIO), fails_after(EIO)], ids=["fails", "done but fails"])
@pytest.mark.guarantee("G1")
def test_healing_that_fails_half_way_is_completed_by_the_next(
    rig: Rig, path: Path, call: str, nth: int, effect: Effect
) -> None:
    """Each step of mending a truncated file may fail: in the end it is mended, its rest set aside."""
    before = rig.data
    rig.put(lines(4))
    rig.write()
    os.truncate(path, len(META) + 5)
    rig.put(lines(5))
    rig.calls.arm(call, effect, first=nth)  # type: ignore[attr-defined]
    retry(rig)
    wanted = before[: len(META)] + GAP(len(before) - len(META), "truncated") + lines(4, 5)
    assert rig.data == wanted
    assert rig.calls.after_power_loss(path) == wanted  # type: ignore[attr-defined]
    kept = [each.read_bytes() for each in path.parent.glob("*.torn")]
    assert set(kept) == {before[len(META) : len(META) + 5]}


@pytest.mark.parametrize("call", ["write", "datasync", "truncate"])
def test_persistent_trouble_while_mending_leaves_one_kept_file(rig: Rig, path: Path, call: str) -> None:
    """A disk that refuses for hours is tried again and again; what is set aside is set aside once."""
    os.truncate(path, len(META) + 5)
    rig.put(lines(4))
    rig.calls.arm(call, fails(ENOSPC), first=1 if call == "truncate" else 2, times=None)  # type: ignore[attr-defined]
    for _ in range(10):
        with pytest.raises((OSError, RolloutWriteError)):
            rig.heal()
            rig.settle()
    rig.calls.lift()  # type: ignore[attr-defined]
    retry(rig)
    assert len(list(path.parent.glob("*.torn"))) == 1


@pytest.mark.case("B108")
def test_unlinked_file_goes_on_with_all_its_lines(rig: Rig, path: Path) -> None:
    """Nothing is missing and nothing is headless; the rebuilt file is durable."""
    rig.put(lines(4))
    rig.write()
    path.unlink()
    rig.put(lines(5))
    rig.settle()
    assert rig.data == META + lines(1, 2, 3, 4, 5)
    assert rig.calls.after_power_loss(path) == rig.data  # type: ignore[attr-defined]


@pytest.mark.case("B108")
def test_renamed_file_raises_and_goes_on_when_it_is_back(rig: Rig, path: Path) -> None:
    """While it is away nothing is written to either place."""
    away = path.with_name("b.jsonl")
    path.rename(away)
    rig.put(lines(4))
    with pytest.raises(RolloutMoved):
        rig.settle()
    assert away.read_bytes() == META + lines(1, 2, 3)
    assert not path.exists()
    away.rename(path)
    rig.settle()
    assert rig.data == META + lines(1, 2, 3, 4)


@pytest.mark.case("B108")
@pytest.mark.parametrize("stale", [False, True], ids=["whole copy", "copy of what was synced"])
def test_file_replaced_by_a_copy_is_gone_on_in(rig: Rig, path: Path, stale: bool) -> None:
    """A copy that lacks the last lines gets them again."""
    copied = path.with_name("copy")
    if stale:
        shutil.copy(path, copied)
    rig.put(lines(4))
    rig.write()
    if not stale:
        shutil.copy(path, copied)
    copied.replace(path)
    rig.put(lines(5))
    rig.settle()
    assert rig.data == META + lines(1, 2, 3, 4, 5)
    assert rig.calls.after_power_loss(path) == rig.data  # type: ignore[attr-defined]


@pytest.mark.guarantee("G1")
@pytest.mark.parametrize("cut", range(len(line(5)) + 3))
@pytest.mark.parametrize("half", [False, True], ids=["whole foreign line", "half a foreign line"])
def test_items_cut_behind_foreign_bytes_stand_once(rig: Rig, path: Path, cut: int, half: bool) -> None:
    """Another program wrote before our lines, and then cut them at any byte, the last newline included."""
    foreign = FOREIGN[:40] if half else FOREIGN
    with path.open("ab") as file:
        file.write(foreign)
    rig.put(lines(4, 5))
    rig.heal()
    rig.write()
    os.truncate(path, path.stat().st_size - cut)
    rig.put(lines(6))
    rig.settle()
    content = rig.data.split(b"\n")
    assert [content.count(line(number)[:-1]) for number in range(1, 7)] == [1] * 6
    assert b"" not in content[:-1]


@pytest.mark.guarantee("G1")
@pytest.mark.parametrize("cut", range(1, len(line(5)) + 3))
def test_items_cut_behind_overwritten_bytes_stand_once(rig: Rig, path: Path, cut: int) -> None:
    """The same where what was durable before them was written over: they stand, and so does the gap."""
    rig.put(lines(4, 5))
    rig.write()
    os.truncate(path, path.stat().st_size - cut)
    with path.open("r+b") as file:
        file.seek(len(META + lines(1, 2)))
        file.write(b"#" * (len(line(3)) - 1))
    rig.put(lines(6))
    rig.settle()
    content = rig.data.split(b"\n")
    assert [content.count(line(number)[:-1]) for number in (1, 2, 4, 5, 6)] == [1] * 5
    assert rig.data.count(b'"type":"x_gap"') == 1


@pytest.fixture
def preceded(path: Path) -> Iterator[Rig]:
    """A rollout with three synced lines, into whose file another program wrote before its meta line."""
    made = Rig(path, ForgetfulCalls())
    made.calls.arm("write", fails(errno.EAGAIN))  # type: ignore[attr-defined]
    made.put(META + lines(1, 2, 3))
    with pytest.raises(BlockingIOError):
        made.write()
    path.write_bytes(FOREIGN)
    made.settle()
    assert made.data == FOREIGN + META + lines(1, 2, 3)
    yield made
    made.close()


def test_copy_is_known_though_another_program_wrote_before_the_meta_line(preceded: Rig, path: Path) -> None:
    """The meta line is looked for, not expected at the first byte."""
    shutil.copy(path, path.with_name("copy"))
    path.with_name("copy").replace(path)
    preceded.put(lines(4))
    preceded.settle()
    assert preceded.data == FOREIGN + META + lines(1, 2, 3, 4)


@pytest.mark.guarantee("G1")
def test_meta_line_is_written_again_though_the_file_is_longer_than_it(preceded: Rig, path: Path) -> None:
    """It was destroyed with what stood before it: how long the rest is says nothing."""
    os.truncate(path, len(FOREIGN) + len(META) - 1)
    preceded.put(lines(4))
    preceded.settle()
    gap = GAP(len(META + lines(1, 2, 3)), "truncated")
    assert preceded.data == FOREIGN + META + gap + lines(4)


def test_copy_made_by_others_is_never_cut(rig: Rig, path: Path) -> None:
    """A half line in it is completed from the exact byte, not taken back."""
    rig.put(lines(4, 5))
    rig.write()
    path.with_name("copy").write_bytes(rig.data[:-3])
    path.with_name("copy").replace(path)
    rig.settle()
    assert rig.calls.made["truncate"] == 0  # type: ignore[attr-defined]
    assert rig.data == META + lines(1, 2, 3, 4, 5)


@pytest.mark.case("B108")
def test_file_replaced_by_another_one_is_left_alone(rig: Rig, path: Path) -> None:
    """It raises until the right one is back; the items wait."""
    path.rename(path.with_name("aside"))
    path.write_bytes(b"a letter\n")
    rig.put(lines(4))
    with pytest.raises(RolloutReplaced):
        rig.settle()
    assert rig.data == b"a letter\n"
    path.with_name("aside").replace(path)
    rig.settle()
    assert rig.data == META + lines(1, 2, 3, 4)


# Making the file


@pytest.mark.parametrize("size", [0, 1, len(META) - 1, len(META), len(META) + 5, len(META + lines(1))])
def test_create_takes_an_empty_file_or_a_prefix_of_its_own_stream(path: Path, size: int) -> None:
    """An open that succeeded and was reported as failed left it."""
    path.write_bytes((META + lines(1))[:size])
    rig = Rig(path)
    rig.put(META + lines(1))
    rig.settle()
    rig.close()
    assert rig.data == META + lines(1)


@pytest.mark.parametrize("content", [b"x", FOREIGN, META.replace(b"0100", b"0200"), META + lines(1, 2)])
def test_create_refuses_a_file_with_anything_else_in_it(path: Path, content: bytes) -> None:
    """Not a byte of it is changed, and it is let go of."""
    path.write_bytes(content)
    rig = Rig(path)
    rig.put(META + lines(1))
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(RolloutExists):
        rig.write()
    assert not rig.sink.created
    assert rig.data == content
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("call", ["open_new", "open_append", "fstat", "dup", "pread", "truncate"])
@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize("own", [False, True], ids=["somebody's", "own prefix"])
def test_create_that_failed_half_way_on_a_file_that_is_there_decides_the_same_later(
    path: Path, call: str, nth: int, own: bool
) -> None:
    """A fault while it is looked at makes no file ours that isn't, and takes none from us."""
    content = (META + lines(1))[:-5] if own else FOREIGN
    path.write_bytes(content)
    calls = FaultyCalls()
    rig = Rig(path, calls)
    rig.put(META + lines(1))
    calls.arm(call, fails(EIO), first=nth)
    for _ in range(3):
        try:
            rig.settle()
        except RolloutExists:
            assert not own
        except OSError:
            continue
        else:
            assert own
    rig.close()
    assert rig.data == (META + lines(1) if own else FOREIGN)


def test_create_of_a_file_that_another_writer_holds_is_refused(path: Path) -> None:
    """Two recorders on one path: the second is told, and goes on once it may."""
    first, second = Rig(path), Rig(path)
    first.put(META)
    first.write()
    second.put(META)
    with pytest.raises(ActiveWriter):
        second.write()
    first.close()
    path.write_bytes(b"")
    second.settle()
    second.close()
    assert second.data == META


# Torn tails


@pytest.mark.case("B02", "B10")
def test_torn_tail_is_set_aside_and_cut_with_the_first_record_only(path: Path) -> None:
    """Opening alone changes nothing; with the first record the fragment is kept and cut."""
    path.write_bytes(META + lines(1) + TORN)
    before = os.stat(path)
    rig = Rig.reopened(path)
    rig.sink.verify()
    assert (os.stat(path).st_mtime_ns, rig.data) == (before.st_mtime_ns, META + lines(1) + TORN)
    rig.put(lines(2))
    rig.settle()
    rig.close()
    assert rig.data == META + lines(1, 2)
    (kept,) = path.parent.glob("*.torn")
    assert kept.read_bytes() == TORN


@pytest.mark.case("B02", "B10")
def test_torn_tail_of_an_append_only_file_is_ended_by_a_newline(path: Path) -> None:
    """It can't be cut: it stays as a damaged line of its own, glued to nothing, and is set aside too."""
    path.write_bytes(META + lines(1) + TORN)
    calls = FaultyCalls()
    rig = Rig.reopened(path, calls)
    with append_only(path, calls):
        rig.put(lines(2))
        rig.settle()
        rig.put(lines(3))
        rig.settle()
        rig.close()
    assert rig.data == META + lines(1) + TORN + b"\n" + lines(2, 3)
    (kept,) = path.parent.glob("*.torn")
    assert kept.read_bytes() == TORN


@pytest.mark.case("B02")
def test_torn_tail_that_its_writer_completed_meanwhile_is_no_longer_torn(path: Path) -> None:
    """A program without a lock was in the middle of its line when we opened: its line is not cut."""
    whole = TORN + b'ck","payload":{}}\n'
    path.write_bytes(META + lines(1) + TORN)
    rig = Rig.reopened(path)
    with path.open("ab") as file:
        file.write(whole[len(TORN) :] + FOREIGN)
    rig.put(lines(2))
    rig.settle()
    rig.close()
    assert rig.data == META + lines(1) + whole + FOREIGN + lines(2)


@pytest.mark.case("B108")
@pytest.mark.parametrize(
    "size", [0, 5, len(META), len(META) + 3, len(META + lines(1)), len(META + lines(1)) + 4]
)
def test_torn_file_that_is_truncated_before_the_first_record(path: Path, size: int) -> None:
    """No NUL bytes, no lost line without a gap: what is left is mended, what was durable is named."""
    content = META + lines(1) + TORN
    path.write_bytes(content)
    rig = Rig.reopened(path)
    os.truncate(path, size)
    rig.put(lines(2))
    rig.settle()
    rig.close()
    border, durable = content.rfind(b"\n", 0, size) + 1, len(META + lines(1))
    gap = GAP(durable - border, "truncated") if border < durable else b""
    assert rig.data == content[:border] + (b"" if border else META) + gap + lines(2)


@pytest.mark.parametrize("call", ["write", "datasync", "sync_folder", "truncate", "pread", "open_new"])
@pytest.mark.parametrize("nth", [1, 2])
def test_torn_tail_whose_keeping_fails_is_not_cut(path: Path, call: str, nth: int) -> None:
    """What can't be kept is not taken; once it can, it is kept once."""
    content = META + lines(1) + TORN
    path.write_bytes(content)
    calls = FaultyCalls()
    rig = Rig.reopened(path, calls)
    rig.put(lines(2))
    fault = calls.arm(call, fails(ENOSPC), first=nth)
    with pytest.raises((OSError, SinkDisturbed)):
        rig.write()
    try:
        rig.heal()
    except (OSError, RolloutWriteError):
        assert rig.data.startswith(META + lines(1))
        if call in ("write", "open_new") and fault.struck:
            assert rig.data == content
    retry(rig)
    rig.close()
    assert rig.data == META + lines(1, 2)
    assert {kept.read_bytes() for kept in path.parent.glob("*.torn")} == {TORN}


def test_torn_tail_of_an_unlinked_file_is_mended_in_the_rebuilt_one(path: Path) -> None:
    """Two troubles at once."""
    path.write_bytes(META + lines(1) + TORN)
    rig = Rig.reopened(path)
    path.unlink()
    rig.put(lines(2))
    rig.settle()
    rig.close()
    assert rig.data == META + lines(1, 2)


@pytest.mark.parametrize(
    "size", [5, file_sink._BLOCK_BYTES - 1, file_sink._BLOCK_BYTES, file_sink._BLOCK_BYTES + 1]
)
def test_last_border_is_found_across_blocks(rig: Rig, path: Path, size: int) -> None:
    """A durable line longer than a block was cut: the border before it is the end."""
    before = rig.data
    rig.put(line(4, size + 100))
    rig.settle()
    os.truncate(path, len(before) + 50 + size)
    rig.put(lines(5))
    rig.settle()
    assert rig.data == before + GAP(len(line(4, size + 100)), "truncated") + lines(5)


# Forked children and locks


def test_lock_ends_with_close(rig: Rig, path: Path) -> None:
    """Whoever comes next gets it."""
    descriptor = os.open(path, os.O_RDWR)
    with pytest.raises(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    rig.close()
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(descriptor)


@pytest.mark.case("B36")
def test_forked_child_lets_go_of_the_descriptor_of_a_sync_under_way(rig: Rig) -> None:
    """A child that keeps it would keep the lock after its parent's end."""
    before = len(os.listdir("/proc/self/fd"))
    job = rig.sink.sync_job(rig.backlog)
    assert len(os.listdir("/proc/self/fd")) == before + 1
    rig.sink.close_in_child()
    assert len(os.listdir("/proc/self/fd")) == before - 2
    with pytest.raises((OSError, SinkDisturbed)):
        job()
