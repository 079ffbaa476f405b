"""The writer task: it keeps what it was given, answers truly, and nothing makes it hang."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import (
    ActiveWriter,
    PendingQueueFull,
    RecorderClosed,
    RolloutError,
    RolloutMoved,
    RolloutReplaced,
    RolloutWriteError,
    UnwrittenItems,
    WriterFenced,
)
from protocol.items import RolloutItem
from rollout import RecorderConfig, RolloutRecorder, repair_rollout
from rollout.backlog import Backlog
from rollout.barrier import Barrier, BarrierQueue, Goal
from rollout.config import Durability
from rollout.core import open_core
from rollout.file_sink import FileSink
from rollout.pending import Pending
from rollout.place import Place
from rollout.progress import Progress
from rollout.state import WriterState
from rollout.syncing import Syncing
from rollout.writer import Writer
from tests.rollout.faulty import (
    EAGAIN,
    EIO,
    ENOSPC,
    FaultyCalls,
    ForgetfulCalls,
    Gate,
    fails,
    fails_after,
    short,
    short_then_fails,
    waits_after,
    waits_before,
)
from tests.rollout.recorded import (
    QUICK,
    append_by_others,
    created,
    end_quietly,
    eventually,
    json_lines,
    message,
    messages,
    opened,
    own,
    own_service,
    recorder_of,
    texts,
)

pytestmark = pytest.mark.asyncio


def quick(**changes: Any) -> RecorderConfig:
    settings = {name: getattr(QUICK, name) for name in QUICK.__dataclass_fields__}
    return RecorderConfig(**{**settings, **changes})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.jsonl"


@pytest.fixture
def calls() -> ForgetfulCalls:
    return ForgetfulCalls()


async def in_loop() -> None:
    """Let everything that is ready on this loop run."""
    for _ in range(5):
        await asyncio.sleep(0)


# Barriers that hold


@pytest.mark.guarantee("G2")
@pytest.mark.case("B18")
async def test_flushed_items_are_in_the_file(path: Path, calls: ForgetfulCalls) -> None:
    """When flush returns, whoever reads the file sees every item accepted before, and so does the receipt."""
    async with created(path, calls=calls) as recorder:
        for number in range(1, 6):
            recorder.record_nowait(message(str(number)))
            receipt = await recorder.flush()
            assert texts(path) == [str(each) for each in range(1, number + 1)]
            assert (receipt.items, receipt.offset_bytes) == (number, path.stat().st_size)
    assert calls.made["datasync"] == 1


@pytest.mark.guarantee("G2")
async def test_synced_items_survive_a_power_cut(tmp_path: Path, calls: ForgetfulCalls) -> None:
    """When sync returns, file data, the file's name and the names of its folders are on stable storage."""
    path = tmp_path / "x" / "y" / "a.jsonl"
    async with created(path, calls=calls) as recorder:
        recorder.record_nowait(messages("ab"))
        await recorder.flush()
        assert calls.after_power_loss(path) is None
        receipt = await recorder.sync()
        assert calls.after_power_loss(path) == path.read_bytes()
        assert (receipt.items, receipt.offset_bytes) == (2, path.stat().st_size)


@pytest.mark.guarantee("G2")
async def test_flush_does_not_wait_for_a_sync_under_way(path: Path, calls: ForgetfulCalls) -> None:
    """A disk that takes its time holds up nobody who only wants the OS to have it."""
    gate = Gate()
    calls.arm("datasync", waits_before(gate))
    async with created(path, calls=calls) as recorder:
        recorder.record_nowait(message("a"))
        sync = asyncio.create_task(recorder.sync())
        await asyncio.to_thread(gate.reached.wait)
        recorder.record_nowait(message("b"))
        await recorder.flush()
        assert texts(path) == ["a", "b"]
        assert not sync.done()
        gate.open()
        assert (await sync).items == 1


async def test_sync_under_way_covers_only_what_was_written_before_it(
    path: Path, calls: ForgetfulCalls
) -> None:
    """Whoever asks meanwhile waits for the next one."""
    gate = Gate()
    calls.arm("datasync", waits_after(gate))
    async with created(path, calls=calls) as recorder:
        recorder.record_nowait(message("a"))
        first = asyncio.create_task(recorder.sync())
        await asyncio.to_thread(gate.reached.wait)
        recorder.record_nowait(message("b"))
        second = asyncio.create_task(recorder.sync())
        await recorder.flush()
        gate.open()
        await first
        await second
        assert calls.after_power_loss(path) == path.read_bytes()
        assert calls.made["datasync"] == 2


async def test_syncs_that_wait_share_one(path: Path, calls: ForgetfulCalls) -> None:
    """64 producers that each wait for their item's sync cause a handful of syncs, not 64."""
    gate = Gate()
    calls.arm("datasync", waits_before(gate))
    async with created(path, calls=calls) as recorder:
        recorder.record_nowait(message("first"))
        first = asyncio.create_task(recorder.sync())
        await asyncio.to_thread(gate.reached.wait)

        async def produce(number: int) -> int:
            recorder.record_nowait(message(str(number)))
            return (await recorder.sync()).items

        producers = [asyncio.create_task(produce(number)) for number in range(64)]
        await recorder.flush()
        gate.open()
        await first
        assert sorted(await asyncio.gather(*producers)) == list(range(2, 66))
        assert calls.made["datasync"] <= 3


async def test_sync_without_anything_new_returns_at_once(path: Path, calls: ForgetfulCalls) -> None:
    """What is durable already needs no system call but the checks."""
    async with created(path, calls=calls) as recorder:
        recorder.record_nowait(message("a"))
        await recorder.sync()
        before = calls.made["datasync"], calls.made["write"]
        assert (await recorder.sync()).items == 1
        assert (calls.made["datasync"], calls.made["write"]) == before


@pytest.mark.parametrize(
    ("name", "value"), [("sync_seconds", 0.01), ("sync_bytes", 100)], ids=["time", "amount"]
)
async def test_items_are_synced_without_being_asked(
    path: Path, calls: ForgetfulCalls, name: str, value: float
) -> None:
    """After a while, or when much was written, a sync comes by itself."""
    async with created(path, calls=calls, config=quick(**{name: value})) as recorder:
        recorder.record_nowait(message("x" * 200))
        await eventually(lambda: recorder.health.synced_items == 1)
        assert calls.after_power_loss(path) == path.read_bytes()


async def test_items_recorded_during_a_sync_are_synced_without_being_asked(
    path: Path, calls: ForgetfulCalls
) -> None:
    """The sync that follows is not forgotten because one was under way."""
    gate = Gate()
    calls.arm("datasync", waits_before(gate))
    async with created(path, calls=calls, config=quick(sync_seconds=0.01)) as recorder:
        recorder.record_nowait(message("a"))
        await asyncio.to_thread(gate.reached.wait)
        recorder.record_nowait(message("b"))
        await recorder.flush()
        gate.open()
        await eventually(lambda: recorder.health.synced_items == 2)


@pytest.mark.guarantee("G8")
async def test_call_is_synced_without_being_asked(path: Path, calls: ForgetfulCalls) -> None:
    """That a tool call began is on the disk soon, whatever the other settings are."""
    async with created(path, calls=calls) as recorder:
        recorder.record_nowait(RolloutItem.raw("x_call", {"call_id": "c", "state": "started"}))
        await eventually(lambda: recorder.health.synced_items == 1)


async def test_flush_level_of_a_kind_writes_it_at_once(path: Path, calls: ForgetfulCalls) -> None:
    """Without a barrier and without the linger time; but not synced."""
    config = quick(linger_seconds=3600.0, durability={"x_check": Durability.FLUSH})
    async with created(path, calls=calls, config=config) as recorder:
        recorder.record_nowait(message("a"))
        recorder.record_nowait(own("b"))
        await eventually(lambda: recorder.health.flushed_items == 2)
        assert texts(path) == ["a", "b"]
        assert recorder.health.synced_items == 0


# Trouble with the disk


@pytest.mark.guarantee("G1", "G2")
@pytest.mark.parametrize("barrier", ["flush", "sync"])
@pytest.mark.parametrize(
    ("call", "number"),
    [("write", ENOSPC), ("write", EIO), ("write", EAGAIN), ("open_new", EIO), ("lstat", EIO), ("fstat", EIO)],
)
@pytest.mark.parametrize("effect", [fails, fails_after], ids=["fails", "done but fails"])
async def test_barrier_survives_one_failure(
    path: Path,
    calls: ForgetfulCalls,
    barrier: str,
    call: str,
    number: int,
    effect: Callable[[int], Any],
) -> None:
    """A fault that passes is nobody's business: retried at once, all there once."""
    calls.arm(call, effect(number))
    async with created(path, calls=calls) as recorder:
        recorder.record_nowait(messages("ab"))
        await getattr(recorder, barrier)()
        assert texts(path) == ["a", "b"]
        await eventually(lambda: recorder.health.state is WriterState.OPEN)
        assert recorder.health.last_error is None
    assert texts(path) == ["a", "b"]


@pytest.mark.case("B14", "B139")
@pytest.mark.guarantee("G1", "G2")
async def test_full_disk_raises_at_barriers_and_loses_nothing(path: Path, calls: ForgetfulCalls) -> None:
    """While there is no space record() accepts and barriers raise; then there is, and all is there once."""
    async with created(path, calls=calls) as recorder:
        recorder.record_nowait(message("0"))
        await recorder.flush()
        calls.arm("write", short(lambda size: size // 2))
        calls.arm("write", fails(ENOSPC), first=2, times=None)
        for number in range(1, 4):
            recorder.record_nowait(message(str(number)))
            for barrier in (recorder.flush, recorder.sync):
                with pytest.raises(RolloutWriteError) as caught:
                    await barrier()
                assert caught.value.errno == ENOSPC
                assert caught.value.pending_items == number + 1
                assert isinstance(caught.value.__cause__, OSError)
            assert recorder.health.state is WriterState.RECOVERING
            assert texts(path) == ["0"]
        calls.lift()
        assert (await recorder.sync()).items == 4
        assert texts(path) == ["0", "1", "2", "3"]
        assert recorder.health.state is WriterState.OPEN
    assert [line["type"] for line in json_lines(path)].count("x_gap") == 0


@pytest.mark.case("B27")
async def test_writer_recovers_without_a_barrier(path: Path, calls: ForgetfulCalls) -> None:
    """Its own retries bring the items out as soon as it works again; health tells meanwhile."""
    calls.arm("write", fails(ENOSPC), times=None)
    async with created(path, calls=calls) as recorder:
        recorder.record_nowait(message("a"))
        await eventually(lambda: recorder.health.retries >= 3)
        health = recorder.health
        assert health.state is WriterState.RECOVERING
        assert isinstance(health.last_error, OSError)
        assert (health.pending_items, health.flushed_items) == (1, 0)
        calls.lift()
        await eventually(lambda: recorder.health.flushed_items == 1)
        assert recorder.health.state is WriterState.OPEN
        assert recorder.health.last_error is None
        assert texts(path) == ["a"]


async def test_one_warning_for_each_change_of_state(
    path: Path, calls: ForgetfulCalls, caplog: pytest.LogCaptureFixture
) -> None:
    """Hours of a full disk fill no log."""
    with caplog.at_level(logging.WARNING, logger="rollout.writer"):
        async with created(path, calls=calls) as recorder:
            recorder.record_nowait(message("a"))
            await recorder.flush()
            for _ in range(2):
                calls.arm("write", fails(ENOSPC), times=None)
                recorder.record_nowait(message("b"))
                retries = recorder.health.retries
                await eventually(lambda seen=retries: recorder.health.retries >= seen + 5)
                calls.lift()
                await recorder.flush()
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 4


@pytest.mark.guarantee("G3")
async def test_failed_sync_is_rewritten_before_a_later_one_counts(path: Path, calls: ForgetfulCalls) -> None:
    """The kernel forgot the bytes; the barrier that returns afterwards has them on the disk all the same."""
    async with created(path, calls=calls) as recorder:
        recorder.record_nowait(message("a"))
        await recorder.sync()
        calls.arm("datasync", fails(EIO), times=2)
        recorder.record_nowait(message("b"))
        with pytest.raises(RolloutWriteError) as caught:
            await recorder.sync()
        assert caught.value.operation == "sync"
        assert recorder.health.synced_items == 1
        await recorder.sync()
        assert calls.after_power_loss(path) == path.read_bytes()
        assert texts(path) == ["a", "b"]


@pytest.mark.guarantee("G3")
@pytest.mark.parametrize("call", ["dup", "open_overwrite", "pwrite", "sync_folder"])
@pytest.mark.parametrize("number", [EIO, errno.EMFILE])
async def test_sync_that_cannot_even_begin_is_not_forgotten(
    path: Path, calls: ForgetfulCalls, call: str, number: int
) -> None:
    """No descriptor left after a failed sync: the rewrite stays due, and later syncs are not stuck."""
    async with created(path, calls=calls) as recorder:
        recorder.record_nowait(message("a"))
        calls.arm("datasync", fails(EIO), times=2)
        calls.arm(call, fails(number), first=1 if call != "dup" else 3, times=4)
        for _ in range(4):
            try:
                await recorder.sync()
            except RolloutWriteError:
                continue
            assert calls.after_power_loss(path) == path.read_bytes()
        calls.lift()
        await asyncio.wait_for(recorder.sync(), 30)
        assert calls.after_power_loss(path) == path.read_bytes()
        await eventually(lambda: recorder.health.state is WriterState.OPEN)


@pytest.mark.guarantee("G2")
async def test_flush_still_holds_while_syncs_fail(path: Path, calls: ForgetfulCalls) -> None:
    """A disk that takes bytes and can't store them: flush promises no more than it can keep, and returns."""
    calls.arm("datasync", fails(EIO), times=None)
    async with created(path, calls=calls) as recorder:
        recorder.record_nowait(message("a"))
        with pytest.raises(RolloutWriteError):
            await recorder.sync()
        recorder.record_nowait(message("b"))
        await recorder.flush()
        assert texts(path) == ["a", "b"]
        assert recorder.health.state is WriterState.RECOVERING
        calls.lift()
        await recorder.sync()
        await eventually(lambda: recorder.health.state is WriterState.OPEN)


@pytest.mark.guarantee("G2", "G3")
async def test_sync_overtaken_by_a_healing_is_not_acknowledged(path: Path, calls: ForgetfulCalls) -> None:
    """The file was cut and mended while the sync hung: what stands there now is not on the disk yet."""
    async with created(path, calls=calls) as recorder:
        recorder.record_nowait(message("a"))
        await recorder.sync()
        durable = path.stat().st_size
        gate = Gate()
        calls.arm("datasync", waits_after(gate))
        recorder.record_nowait(message("b"))
        sync = asyncio.create_task(recorder.sync())
        await asyncio.to_thread(gate.reached.wait)
        os.truncate(path, durable)
        recorder.record_nowait(message("c" * 500))
        await recorder.flush()
        gate.open()
        await sync
        assert calls.after_power_loss(path)[: path.stat().st_size].count(b'"b"') == 1  # type: ignore[index]
        assert texts(path) == ["a", "b", "c" * 500]


# Others meddle


@pytest.mark.case("B108")
@pytest.mark.guarantee("G1")
@pytest.mark.parametrize("recorded", [False, True], ids=["idle", "with items"])
@pytest.mark.parametrize("barrier", ["flush", "sync", "aclose"])
async def test_unlinked_file_is_back_when_a_barrier_returns(
    path: Path, calls: ForgetfulCalls, barrier: str, recorded: bool
) -> None:
    """Every barrier runs the checks, even with nothing pending."""
    recorder = recorder_of(path, calls=calls)
    recorder.record_nowait(message("a"))
    await recorder.sync()
    path.unlink()
    if recorded:
        recorder.record_nowait(message("b"))
    await getattr(recorder, barrier)()
    assert texts(path) == ["a", "b"][: 1 + recorded]
    if barrier != "flush":
        assert calls.after_power_loss(path) == path.read_bytes()
    await recorder.aclose()


@pytest.mark.case("B108")
@pytest.mark.guarantee("G2")
@pytest.mark.parametrize("barrier", ["flush", "sync"])
@pytest.mark.parametrize("call", ["write", "datasync"])
async def test_file_unlinked_during_a_call_is_back_when_the_barrier_returns(
    path: Path, calls: ForgetfulCalls, call: str, barrier: str
) -> None:
    """The checks run again before an answer: the write went into an inode that was just unlinked."""

    def meanwhile(calls: FaultyCalls, name: str, arguments: tuple[Any, ...]) -> Any:
        path.unlink(missing_ok=True)
        return calls.perform(name, arguments)

    config = quick(linger_seconds=3600.0)  # the barrier alone has it written
    async with created(path, calls=calls, config=config) as recorder:
        recorder.record_nowait(message("a"))
        await recorder.sync()
        calls.arm(call, meanwhile)
        recorder.record_nowait(message("b"))
        await getattr(recorder, barrier)()
        assert texts(path) == ["a", "b"]
        if barrier == "sync":
            assert calls.after_power_loss(path) == path.read_bytes()


@pytest.mark.case("B108")
async def test_renamed_file_raises_at_barriers_until_it_is_back(path: Path, calls: ForgetfulCalls) -> None:
    """Both places are named; the items wait."""
    async with created(path, calls=calls) as recorder:
        recorder.record_nowait(message("a"))
        await recorder.sync()
        away = path.with_name("b.jsonl")
        path.rename(away)
        recorder.record_nowait(message("b"))
        for barrier in (recorder.flush, recorder.sync):
            with pytest.raises(RolloutMoved) as caught:
                await barrier()
            assert (caught.value.path, caught.value.moved_to) == (os.fspath(path), os.fspath(away))
        assert texts(away) == ["a"]
        away.rename(path)
        await recorder.sync()
        assert texts(path) == ["a", "b"]


@pytest.mark.case("B108")
async def test_replaced_file_raises_at_barriers_until_it_is_back(path: Path, calls: ForgetfulCalls) -> None:
    """Somebody else's file is never written to."""
    async with created(path, calls=calls) as recorder:
        recorder.record_nowait(message("a"))
        await recorder.sync()
        path.rename(path.with_name("aside"))
        path.write_bytes(b"a letter\n")
        recorder.record_nowait(message("b"))
        with pytest.raises(RolloutReplaced):
            await recorder.flush()
        assert path.read_bytes() == b"a letter\n"
        path.with_name("aside").replace(path)
        await recorder.flush()
        assert texts(path) == ["a", "b"]


@pytest.mark.case("B108")
@pytest.mark.guarantee("G1")
async def test_destroyed_items_are_named_in_a_gap(path: Path, calls: ForgetfulCalls) -> None:
    """Another program emptied the file: a header stands first again, and the gap says how much is missing."""
    async with created(path, calls=calls) as recorder:
        recorder.record_nowait(messages("abc"))
        await recorder.sync()
        size = path.stat().st_size
        os.truncate(path, 0)
        recorder.record_nowait(message("d"))
        await recorder.sync()
        lines = json_lines(path)
        assert [line["type"] for line in lines] == ["session_meta", "x_gap", "response_item"]
        assert lines[1]["payload"] == {"bytes": size, "cause": "truncated"}
        assert texts(path) == ["d"]
        assert lines[2]["ordinal"] == 4


async def test_gap_is_no_earlier_than_what_stands_before_it(
    path: Path, calls: ForgetfulCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the clock was set back meanwhile, and nothing was recorded since."""
    shift_ns = 3_600_000_000_000
    monkeypatch.setattr("rollout.pending.time_ns", lambda: time.time_ns() + shift_ns)
    async with created(path, calls=calls) as recorder:
        recorder.record_nowait(messages("abc"))
        await recorder.sync()
        os.truncate(path, path.stat().st_size - 5)
        shift_ns = 0
        await recorder.sync()
    stamps = [line["timestamp"] for line in json_lines(path)]
    assert json_lines(path)[-2]["type"] == "x_gap"
    assert stamps == sorted(stamps)


async def test_foreign_lines_stay_where_they_are(path: Path, calls: ForgetfulCalls) -> None:
    """A program that knows nothing of locks appends between our items."""
    async with created(path, calls=calls) as recorder:
        for number in range(5):
            recorder.record_nowait(message(str(number)))
            await recorder.flush()
            append_by_others(path, b'{"type":"x_check","payload":{"name":"other %d"}}\n' % number)
    seen = texts(path)
    assert seen == [text for number in range(5) for text in (str(number), f"other {number}")]


async def test_file_that_changes_at_every_look_is_an_error_and_no_endless_loop(
    path: Path, calls: ForgetfulCalls
) -> None:
    """Another program appends whenever we look: the barrier is told in the end, and later succeeds."""
    count = 0

    def meanwhile(calls: FaultyCalls, name: str, arguments: tuple[Any, ...]) -> Any:
        nonlocal count
        count += 1
        append_by_others(path, b'{"type":"x_check","payload":{"name":"other %d"}}\n' % count)
        return calls.perform(name, arguments)

    async with created(path, calls=calls) as recorder:
        recorder.record_nowait(message("a"))
        await recorder.sync()
        calls.arm("lstat", meanwhile, times=None)
        recorder.record_nowait(message("b"))
        with pytest.raises(RolloutWriteError):
            await asyncio.wait_for(recorder.flush(), 30)
        calls.lift()
        await recorder.flush()
    seen = texts(path)
    assert [text for text in seen if not text.startswith("other")] == ["a", "b"]
    assert len(seen) == 2 + count


async def test_look_that_fails_before_an_answer_is_told(path: Path, calls: ForgetfulCalls) -> None:
    """Written, but nobody can say into what: the barrier is not answered as if all were well."""

    def meanwhile(calls: FaultyCalls, name: str, arguments: tuple[Any, ...]) -> Any:
        calls.arm("lstat", fails(EIO), times=None)
        return calls.perform(name, arguments)

    async with created(path, calls=calls, config=quick(linger_seconds=3600.0)) as recorder:
        recorder.record_nowait(message("a"))
        calls.arm("write", meanwhile)
        with pytest.raises(RolloutWriteError) as caught:
            await recorder.flush()
        assert caught.value.errno == EIO
        calls.lift()
        await recorder.flush()
        assert texts(path) == ["a"]


# Bounds


@pytest.mark.case("B23")
@pytest.mark.guarantee("G7")
async def test_stalled_disk_holds_up_record_and_bounds_memory(path: Path, calls: ForgetfulCalls) -> None:
    """The queue fills to its limit and no further, record() waits, the loop is alive; then all goes on."""
    gate = Gate()
    calls.arm("datasync", waits_before(gate))
    config = quick(pending_bytes_max=20_000, sync_bytes=1)
    async with created(path, calls=calls, config=config) as recorder:
        accepted = 0
        with pytest.raises(PendingQueueFull):
            while True:
                recorder.record_nowait(message("x" * 500))
                accepted += 1
        waiting = asyncio.create_task(recorder.record(message("y" * 500)))
        turns = 0
        for _ in range(50):
            await asyncio.sleep(0)
            turns += 1
            assert recorder.health.pending_bytes <= 20_000
        assert turns == 50
        assert not waiting.done()
        gate.open()
        await waiting
    assert texts(path) == ["x" * 500] * accepted + ["y" * 500]


@pytest.mark.case("B23")
async def test_record_that_waits_does_not_spin(path: Path, calls: ForgetfulCalls) -> None:
    """A fact larger than half the queue waits for a sync as quietly as a small one."""
    gate = Gate()
    calls.arm("datasync", waits_before(gate))
    config = quick(pending_bytes_max=20_000, sync_bytes=1)
    async with created(path, calls=calls, config=config) as recorder:
        recorder.record_nowait(message("x" * 8_000))
        await asyncio.to_thread(gate.reached.wait)
        asked: list[Goal] = []
        request = recorder._core.writer.request

        def count(barrier: Barrier) -> None:
            asked.append(barrier.goal)
            request(barrier)

        recorder._core.writer.request = count  # type: ignore[method-assign]
        waiting = asyncio.create_task(recorder.record(message("y" * 15_000)))
        for _ in range(20):
            await recorder.flush()
        assert asked.count(Goal.ROOM) <= 2
        gate.open()
        await waiting
    assert texts(path) == ["x" * 8_000, "y" * 15_000]


@pytest.mark.guarantee("G7")
@pytest.mark.parametrize("timeout", [0, 0.01])
async def test_record_with_a_timeout_gives_up_and_accepts_nothing(
    path: Path, calls: ForgetfulCalls, timeout: float
) -> None:
    """The error says what waits and why."""
    calls.arm("write", fails(ENOSPC), times=None)
    async with created(path, calls=calls, config=quick(pending_bytes_max=2_000)) as recorder:
        recorder.record_nowait(message("x" * 2_000))
        await eventually(lambda: recorder.health.last_error)
        with pytest.raises(PendingQueueFull) as caught:
            await recorder.record(message("late"), timeout=timeout)
        assert isinstance(caught.value.last_error, OSError)
        assert caught.value.pending_bytes == recorder.health.pending_bytes
        calls.lift()
        await recorder.record(message("next"), timeout=30)
    assert texts(path) == ["x" * 2_000, "next"]


# Fenced


class Fence:
    """The thread's lock, as the store watches it."""

    def __init__(self, path: Path) -> None:
        self.lost = False
        self._path = path

    def __call__(self) -> None:
        if self.lost:
            raise WriterFenced(path=self._path, reason="taken over by pid 1")


@pytest.mark.guarantee("G4")
async def test_fenced_writer_writes_nothing_more_and_everybody_is_told(
    path: Path, calls: ForgetfulCalls
) -> None:
    """It lost its lock: not a byte reaches the file, items are kept, every call raises, also later ones."""
    fence = Fence(path)
    recorder = recorder_of(path, calls=calls, fence=fence)
    recorder.record_nowait(message("a"))
    await recorder.sync()
    before = path.read_bytes()
    fence.lost = True
    recorder.record_nowait(messages("bc"))
    for barrier in (recorder.flush, recorder.sync, recorder.persist, recorder.flush):
        with pytest.raises(WriterFenced):
            await asyncio.wait_for(barrier(), 30)
    assert recorder.health.state is WriterState.FENCED
    for record in (recorder.record_nowait, recorder.record):
        with pytest.raises(WriterFenced):
            outcome = record(message("d"))
            if outcome is not None:
                await outcome
    with pytest.raises(WriterFenced) as caught:
        await asyncio.wait_for(recorder.aclose(), 30)
    assert path.read_bytes() == before
    (kept,) = path.parent.glob("*.unwritten")
    assert (caught.value.kept_path, caught.value.unwritten) == (os.fspath(kept), b"")
    assert b'"b"' in kept.read_bytes()
    repair_rollout(path, dry_run=False, replay=True)
    assert texts(path) == ["a", "b", "c"]


async def test_items_of_a_fenced_writer_that_no_place_takes_are_in_the_error(
    path: Path, calls: ForgetfulCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the folder of kept files nor the temporary one has room."""
    monkeypatch.setattr("rollout.core.keep_unwritten", lambda *given, **named: None)
    fence = Fence(path)
    recorder = recorder_of(path, calls=calls, fence=fence)
    recorder.record_nowait(message("a"))
    await recorder.sync()
    fence.lost = True
    recorder.record_nowait(messages("bc"))
    with pytest.raises(WriterFenced, match="No place took") as caught:
        await recorder.flush()
    assert caught.value.kept_path is None
    assert [b'"a"' in caught.value.unwritten, b'"b"' in caught.value.unwritten] == [False, True]
    with pytest.raises(WriterFenced, match="No place took"):
        await recorder.aclose()


@pytest.mark.guarantee("G4")
async def test_writer_fenced_while_it_syncs_does_not_acknowledge(path: Path, calls: ForgetfulCalls) -> None:
    """The lock was lost during the sync: nobody is told that it is safe, and nothing breaks."""
    fence, gate = Fence(path), Gate()
    recorder = recorder_of(path, calls=calls, fence=fence)
    calls.arm("datasync", waits_after(gate))
    recorder.record_nowait(message("a"))
    sync = asyncio.create_task(recorder.sync())
    await asyncio.to_thread(gate.reached.wait)
    fence.lost = True
    recorder.record_nowait(message("b"))
    with pytest.raises(WriterFenced):
        await recorder.flush()
    gate.open()
    with pytest.raises(WriterFenced):
        await asyncio.wait_for(sync, 30)
    with pytest.raises(WriterFenced):
        await asyncio.wait_for(recorder.aclose(), 30)
    assert recorder.health.last_error is None or isinstance(recorder.health.last_error, WriterFenced)


# A bug in the writer


BUGS: list[tuple[type, str]] = [
    (Backlog, "add"),
    (Backlog, "pass_written"),
    (Backlog, "note_durable"),
    (Pending, "take"),
    (Pending, "rest"),
    (Pending, "note_durable"),
    (BarrierQueue, "receive"),
    (BarrierQueue, "met"),
    (FileSink, "create"),
    (FileSink, "verify"),
    (FileSink, "append"),
    (FileSink, "sync_job"),
    (FileSink, "_verify_synced"),
    (FileSink, "heal"),
    (Progress, "is_met"),
    (Progress, "publish"),
    (Progress, "settle"),
    (Syncing, "start"),
    (Syncing, "finish"),
    (Syncing, "watch"),
    (Place, "hand_over"),
    (Place, "heal"),
    (Writer, "_fail"),
]


@pytest.mark.case("B22")
@pytest.mark.parametrize(("owner", "name"), BUGS, ids=[f"{owner.__name__}.{name}" for owner, name in BUGS])
async def test_bug_in_the_writer_reaches_every_caller_and_nothing_hangs(
    path: Path, calls: ForgetfulCalls, owner: type, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """record, flush, sync and aclose raise the stored error, now and later; other recorders go on."""
    other = recorder_of(path.with_name("other.jsonl"))
    recorder = recorder_of(path, calls=calls)
    real = getattr(owner, name)
    mine = {id(recorder._core.pending), id(recorder._core.writer)}
    for part in ("_backlog", "_barriers", "_place", "_progress", "_sink", "_syncing"):
        mine.add(id(getattr(recorder._core.writer, part)))

    def broken(self: Any, *arguments: Any, **named: Any) -> Any:
        if id(self) in mine:
            raise RuntimeError("planted")
        return real(self, *arguments, **named)

    monkeypatch.setattr(owner, name, broken)
    if name in ("heal", "_fail"):
        calls.arm("write", fails(EIO), times=None)

    async def fail(call: Callable[[], Any]) -> None:
        with pytest.raises(RolloutWriteError, match="planted") as caught:
            await asyncio.wait_for(call(), 30)
        assert "planted" in repr(caught.value.__cause__) or isinstance(caught.value.__cause__, Exception)

    recorder.record_nowait(message("a"))
    try:  # it may be met behind the answer
        await asyncio.wait_for(recorder.sync(), 30)
    except RolloutWriteError as error:
        assert "planted" in str(error)
    else:
        assert calls.after_power_loss(path) == path.read_bytes()
    await fail(recorder.flush)
    with pytest.raises(RolloutWriteError, match="planted"):
        recorder.record_nowait(message("b"))
    await fail(lambda: recorder.record(message("c")))
    await fail(recorder.aclose)
    await fail(recorder.aclose)
    assert recorder.health.state is WriterState.CLOSED
    assert recorder.health.last_error is not None
    other.record_nowait(message("z"))
    await asyncio.wait_for(other.aclose(), 30)
    assert texts(path.with_name("other.jsonl")) == ["z"]


@pytest.mark.case("B22")
async def test_items_of_a_writer_that_died_of_a_bug_are_kept(
    path: Path, calls: ForgetfulCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Accepted is accepted: a later replay brings them in, each once."""
    recorder = recorder_of(path, calls=calls)
    recorder.record_nowait(message("a"))
    await recorder.sync()
    sink = recorder._core.writer._sink

    def broken(chunk: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(sink, "append", broken)
    recorder.record_nowait(messages("bc"))
    with pytest.raises(RolloutWriteError) as caught:
        await recorder.aclose()
    (kept,) = path.parent.glob("*.unwritten")
    assert os.fspath(kept) in str(caught.value)
    repair_rollout(path, dry_run=False, replay=True)
    assert texts(path) == ["a", "b", "c"]


# The end


async def test_close_writes_and_syncs_what_is_pending(path: Path, calls: ForgetfulCalls) -> None:
    """Nothing needs a flush before it; the lock is free afterwards."""
    recorder = recorder_of(path, calls=calls)
    recorder.record_nowait(messages(range(100)))
    receipt = await recorder.aclose()
    assert texts(path) == [str(number) for number in range(100)]
    assert calls.after_power_loss(path) == path.read_bytes()
    assert (receipt.items, receipt.offset_bytes) == (100, path.stat().st_size)
    assert recorder.health.state is WriterState.CLOSED
    async with opened(path):
        pass


async def test_closed_recorder_refuses_everything(path: Path) -> None:
    """Each call says so; closing again is no error and returns the same."""
    recorder = recorder_of(path)
    recorder.record_nowait(message("a"))
    first = await recorder.aclose()
    assert await recorder.aclose() == first
    with pytest.raises(RecorderClosed):
        recorder.record_nowait(message("b"))
    for call in (recorder.flush, recorder.sync, recorder.persist, lambda: recorder.record(message("b"))):
        with pytest.raises(RecorderClosed):
            await call()
    assert texts(path) == ["a"]


async def test_closes_at_the_same_time_wait_for_one_end(path: Path, calls: ForgetfulCalls) -> None:
    """All of them return when it is over, none before."""
    gate = Gate()
    calls.arm("datasync", waits_before(gate))
    recorder = recorder_of(path, calls=calls)
    recorder.record_nowait(message("a"))
    closes = [asyncio.create_task(recorder.aclose()) for _ in range(5)]
    await asyncio.to_thread(gate.reached.wait)
    await in_loop()
    assert not any(close.done() for close in closes)
    gate.open()
    receipts = await asyncio.gather(*closes)
    assert {receipt.items for receipt in receipts} == {1}


async def test_barriers_that_wait_when_it_closes_are_answered(path: Path, calls: ForgetfulCalls) -> None:
    """A sync that was asked for before the close is kept."""
    gate = Gate()
    calls.arm("datasync", waits_before(gate))
    recorder = recorder_of(path, calls=calls)
    recorder.record_nowait(message("a"))
    sync = asyncio.create_task(recorder.sync())
    close = asyncio.create_task(recorder.aclose())
    await asyncio.to_thread(gate.reached.wait)
    gate.open()
    assert (await sync).items == 1
    await close


@pytest.mark.case("B16")
async def test_cancelled_close_drains_all_the_same(path: Path, calls: ForgetfulCalls) -> None:
    """Its caller is gone; the items are not."""
    gate = Gate()
    calls.arm("write", waits_before(gate))
    recorder = recorder_of(path, calls=calls)
    recorder.record_nowait(messages("abc"))
    close = asyncio.create_task(recorder.aclose())
    await asyncio.to_thread(gate.reached.wait)
    close.cancel()
    with pytest.raises(asyncio.CancelledError):
        await close
    gate.open()
    await recorder.aclose()
    assert texts(path) == ["a", "b", "c"]


@pytest.mark.guarantee("G1")
@pytest.mark.case("B17")
@pytest.mark.parametrize(
    "arm",
    [
        lambda calls: calls.arm("write", fails(ENOSPC), times=None),
        lambda calls: calls.arm("write", short_then_fails(lambda size: size // 2, EIO), times=None),
        lambda calls: (calls.arm("write", fails_after(EIO)), calls.arm("datasync", fails(EIO), times=None)),
        lambda calls: calls.arm("datasync", fails(EIO), times=None),
        lambda calls: calls.arm("lstat", fails(EIO), times=None),
    ],
    ids=["full", "half writes", "written but failed, no sync", "no sync", "no check"],
)
async def test_what_cannot_be_written_by_the_deadline_is_kept_and_replayed_once(
    path: Path, calls: ForgetfulCalls, arm: Callable[[FaultyCalls], Any]
) -> None:
    """The error says where; repair with replay brings every item in exactly once, in order."""
    recorder = recorder_of(path, calls=calls, config=quick(close_seconds=0.05))
    recorder.record_nowait(message("0"))
    await recorder.sync()
    arm(calls)
    recorder.record_nowait(messages("123"))
    with pytest.raises(UnwrittenItems) as caught:
        await recorder.aclose()
    error = caught.value
    assert error.pending_items == 3
    assert error.kept_path is not None
    assert isinstance(error.__cause__, OSError)
    with pytest.raises(UnwrittenItems):
        await recorder.aclose()
    for _ in range(2):
        repair_rollout(path, dry_run=False, replay=True)
        assert texts(path) == ["0", "1", "2", "3"]
    ordinals = [line["ordinal"] for line in json_lines(path) if "ordinal" in line]
    assert ordinals == sorted(set(ordinals))


@pytest.mark.case("B108")
@pytest.mark.guarantee("G1")
@pytest.mark.parametrize("place", ["empty", "in the meta line", "behind it", "in an item", "unlinked"])
async def test_destroyed_bytes_that_the_writer_could_not_name_are_named_by_the_replay(
    path: Path, calls: ForgetfulCalls, place: str
) -> None:
    """Another program cut the file while the disk was broken, and the close gave up: the replay begins the
    rollout again if it must, says how much is missing, and brings in what was kept."""
    recorder = recorder_of(path, calls=calls, config=quick(close_seconds=0.05))
    recorder.record_nowait(messages("abc"))
    await recorder.sync()
    before = path.read_bytes()
    rows = before.splitlines(keepends=True)
    calls.arm("lstat", fails(EIO), times=None)
    recorder.record_nowait(messages("de"))
    sizes = {
        "empty": 0,
        "in the meta line": 20,
        "behind it": len(rows[0]),
        "in an item": len(b"".join(rows[:3])) + 20,
    }
    if place == "unlinked":
        path.unlink()
    else:
        os.truncate(path, sizes[place])
    with pytest.raises(UnwrittenItems):
        await recorder.aclose()
    for _ in range(2):
        repair_rollout(path, dry_run=False, replay=True)
        found = json_lines(path)
        assert found[0]["payload"]["id"] == recorder.thread_id
        assert [line["type"] for line in found].count("session_meta") == 1
        assert texts(path) == [*(["a"] if place == "in an item" else []), "d", "e"]
        (gap,) = [line["payload"] for line in found if line["type"] == "x_gap"]
        border = before.rfind(b"\n", 0, sizes.get(place, 0)) + 1
        assert gap["bytes"] == len(before) - border


@pytest.mark.case("B108")
async def test_rollout_that_began_with_foreign_bytes_and_is_gone_begins_again_with_the_replay(
    path: Path, calls: ForgetfulCalls
) -> None:
    """Its meta line is kept with the items, wherever it stood."""
    async with created(path, calls=calls) as recorder:
        recorder.record_nowait(messages("ab"))
    path.write_bytes(b'{"type":"x_foreign","payload":{}}\n' + path.read_bytes())
    calls.trust(path)
    again = RolloutRecorder(
        open_core(path, config=quick(close_seconds=0.05), service=own_service(), calls=calls)
    )
    again.record_nowait(message("c"))
    await again.sync()
    calls.arm("open_new", fails(ENOSPC), times=None)
    path.unlink()
    again.record_nowait(message("d"))
    with pytest.raises(UnwrittenItems):
        await again.aclose()
    calls.lift()
    repair_rollout(path, dry_run=False, replay=True)
    found = json_lines(path)
    assert (found[0]["payload"]["id"], found[1]["type"]) == (recorder.thread_id, "x_gap")
    assert texts(path) == ["d"]


@pytest.mark.case("B10")
async def test_torn_tail_that_the_writer_could_not_set_aside_is_no_gap(
    path: Path, calls: ForgetfulCalls
) -> None:
    """Nothing durable was destroyed: the repair cuts the fragment, and nobody misses a line."""
    async with created(path) as recorder:
        recorder.record_nowait(message("a"))
    append_by_others(path, b'{"timestamp":"2026')
    recorder = recorder_of(path, calls=calls, reopen=True, config=quick(close_seconds=0.05))
    calls.arm("lstat", fails(EIO), times=None)
    recorder.record_nowait(message("b"))
    with pytest.raises(UnwrittenItems):
        await recorder.aclose()
    repair_rollout(path, dry_run=False, replay=True)
    assert texts(path) == ["a", "b"]
    assert "x_gap" not in [line["type"] for line in json_lines(path)]


@pytest.mark.guarantee("G2")
async def test_replay_brings_the_name_of_the_file_to_the_disk_too(tmp_path: Path) -> None:
    """Its writer could sync no folder: what the repair calls mended survives a power cut all the same."""
    calls = ForgetfulCalls()
    path = tmp_path / "sessions" / "2026" / "a.jsonl"
    calls.arm("sync_folder", fails(EIO), times=None)
    recorder = recorder_of(path, calls=calls, config=quick(close_seconds=0.05))
    recorder.record_nowait(messages("ab"))
    with pytest.raises(UnwrittenItems):
        await recorder.aclose()
    calls.lift()
    assert calls.after_power_loss(path) is None
    repair_rollout(path, dry_run=False, replay=True, calls=calls)
    assert calls.after_power_loss(path) == path.read_bytes()
    assert texts(path) == ["a", "b"]


@pytest.mark.guarantee("G1")
async def test_file_that_never_came_to_be_is_made_by_the_replay(path: Path, calls: ForgetfulCalls) -> None:
    """Nothing could be created at all: the kept lines begin with the meta line."""
    calls.arm("open_new", fails(errno.EROFS), times=None)
    recorder = recorder_of(path, calls=calls, config=quick(close_seconds=0.05))
    recorder.record_nowait(messages("ab"))
    with pytest.raises(UnwrittenItems):
        await recorder.aclose()
    assert not path.exists()
    repair_rollout(path, dry_run=False, replay=True)
    assert texts(path) == ["a", "b"]
    assert json_lines(path)[0]["type"] == "session_meta"


async def test_what_no_place_takes_is_carried_by_the_error(
    path: Path, calls: ForgetfulCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the kept folder nor the folder for temporary files: the bytes are in the exception."""
    monkeypatch.setattr("rollout.core.keep_unwritten", lambda *given, **named: None)
    calls.arm("write", fails(ENOSPC), times=None)
    recorder = recorder_of(path, calls=calls, config=quick(close_seconds=0.05))
    recorder.record_nowait(messages("ab"))
    with pytest.raises(UnwrittenItems) as caught:
        await recorder.aclose()
    assert caught.value.kept_path is None
    assert [b'"a"' in caught.value.unwritten, b'"b"' in caught.value.unwritten] == [True, True]


async def test_deadline_of_a_close_holds_while_a_sync_hangs(path: Path, calls: ForgetfulCalls) -> None:
    """A disk that never answers: the close ends, the lines are kept, and replaying them doubles nothing."""
    gate = Gate()
    calls.arm("datasync", waits_before(gate))
    recorder = recorder_of(path, calls=calls, config=quick(close_seconds=0.05))
    recorder.record_nowait(messages("ab"))
    with pytest.raises(UnwrittenItems):
        await recorder.aclose()
    gate.open()
    await eventually(lambda: _is_free(path))
    repair_rollout(path, dry_run=False, replay=True)
    assert texts(path) == ["a", "b"]


async def test_close_that_runs_out_of_time_with_nothing_to_keep_makes_no_kept_file(
    path: Path, calls: ForgetfulCalls
) -> None:
    """All bytes are in the rebuilt file; only its sync hangs. There is no line that would need a place."""
    gate = Gate()
    recorder = recorder_of(path, calls=calls, config=quick(close_seconds=0.05))
    await recorder.persist()
    path.unlink()
    calls.arm("datasync", waits_before(gate), first=2)  # the first is the rebuilding's own
    with pytest.raises(RolloutWriteError, match="did not end in time") as caught:
        await recorder.aclose()
    gate.open()
    assert not isinstance(caught.value, UnwrittenItems)
    assert not list(path.parent.glob("*.unwritten"))
    assert [line["type"] for line in json_lines(path)] == ["session_meta"]


@pytest.mark.parametrize("hangs", [False, True], ids=["seen at the deadline", "its healing hangs"])
async def test_close_does_not_vouch_for_a_file_that_is_elsewhere(
    path: Path, calls: ForgetfulCalls, hangs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything is durable, but the time to close ends before the file could be looked for."""
    monkeypatch.setattr("rollout.writer._HEAL_SECONDS", 0.01)
    recorder = recorder_of(path, calls=calls, config=quick(close_seconds=0.05))
    recorder.record_nowait(messages("ab"))
    await recorder.sync()
    path.rename(path.with_name("elsewhere"))
    gate = Gate()
    writer = recorder._core.writer
    if hangs:
        calls.arm("lstat", waits_before(gate), first=2)
    else:  # a loaded machine: the task isn't woken before the deadline
        monkeypatch.setattr(writer._alarm, "ring", lambda: None)
    with pytest.raises(RolloutWriteError, match=r"the path is gone|it was renamed|was still being healed"):
        await recorder.aclose()
    gate.open()
    assert texts(path.with_name("elsewhere")) == ["a", "b"]


def _is_free(path: Path) -> bool:
    from rollout.file_lock import lock_rollout

    descriptor = os.open(path, os.O_RDWR)
    try:
        lock_rollout(descriptor, os.fspath(path))
    except ActiveWriter:
        return False
    finally:
        os.close(descriptor)
    return True


@pytest.mark.parametrize("outcome", ["works", "fails"])
@pytest.mark.parametrize("call", ["open_append", "open_new"])
async def test_healing_that_hangs_beyond_the_close_changes_nothing_afterwards(
    path: Path,
    calls: ForgetfulCalls,
    call: str,
    outcome: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The recorder was given up and its lines were kept: a call that comes back later finds nothing to do."""
    monkeypatch.setattr("rollout.writer._HEAL_SECONDS", 0.01)
    recorder = recorder_of(path, calls=calls, config=quick(close_seconds=0.05))
    gate = Gate()
    if call == "open_append":
        recorder.record_nowait(message("a"))
        await recorder.sync()
        calls.arm("write", fails(EIO), times=1)
    else:
        calls.arm("open_new", fails(EIO), times=1)
    calls.arm(
        call,
        waits_after(gate, then=None if outcome == "works" else EIO),
        first=1 if call == "open_append" else 2,
    )
    recorder.record_nowait(message("b"))
    await asyncio.to_thread(gate.reached.wait)
    with pytest.raises(UnwrittenItems):
        await recorder.aclose()
    before = path.read_bytes() if path.exists() else None
    gate.open()
    await eventually(lambda: recorder._core.writer not in recorder._core.writer._service._writers)
    assert (path.read_bytes() if path.exists() else None) == before
    assert not [record for record in caplog.records if "bug" in record.getMessage()]
    if before is None:
        path.unlink(missing_ok=True)
    else:
        assert _is_free(path)
    repair_rollout(path, dry_run=False, replay=True)
    assert texts(path) == ["a", "b"][call == "open_new" :]


@pytest.mark.parametrize("number", [EIO, errno.EINTR])
async def test_close_that_the_system_reports_as_failed_is_a_close(
    path: Path, calls: ForgetfulCalls, number: int
) -> None:
    """Everything was synced before; nobody waits for ever because close(2) complained."""
    recorder = recorder_of(path, calls=calls)
    recorder.record_nowait(message("a"))
    await recorder.sync()
    calls.arm("close", fails_after(number), times=None)
    await asyncio.wait_for(recorder.aclose(), 30)
    assert texts(path) == ["a"]


async def test_discarded_recorder_drops_what_is_pending(path: Path, calls: ForgetfulCalls) -> None:
    """What was handed over stays, what was not is dropped, every later call says so."""
    recorder = recorder_of(path, calls=calls)
    recorder.record_nowait(message("a"))
    await recorder.flush()
    calls.arm("write", fails(ENOSPC), times=None)
    recorder.record_nowait(message("b"))
    recorder.discard()
    with pytest.raises(RecorderClosed, match="discarded"):
        recorder.record_nowait(message("c"))
    with pytest.raises(RecorderClosed, match="discarded"):
        await recorder.flush()
    await recorder.aclose()
    assert texts(path) == ["a"]
    assert list(path.parent.iterdir()) == [path]
    async with opened(path):
        pass


async def test_barriers_that_wait_when_it_is_discarded_are_told(path: Path, calls: ForgetfulCalls) -> None:
    """Nobody waits for something that will never come."""
    gate = Gate()
    calls.arm("datasync", waits_before(gate))
    recorder = recorder_of(path, calls=calls)
    recorder.record_nowait(message("a"))
    sync = asyncio.create_task(recorder.sync())
    await asyncio.to_thread(gate.reached.wait)
    recorder.discard()
    with pytest.raises(RecorderClosed, match="discarded"):
        await sync
    gate.open()


@pytest.mark.parametrize("waits", [False, True], ids=["closed later", "close waits already"])
async def test_discard_does_not_wait_for_a_healing_that_hangs(
    path: Path, calls: ForgetfulCalls, waits: bool
) -> None:
    """Who gives up the items doesn't want to wait for the disk."""
    recorder = recorder_of(path, calls=calls)
    recorder.record_nowait(message("a"))
    await recorder.sync()
    gate = Gate()
    calls.arm("write", fails(EIO))
    calls.arm("open_append", waits_before(gate))
    recorder.record_nowait(message("b"))
    await asyncio.to_thread(gate.reached.wait)
    close = asyncio.create_task(recorder.aclose()) if waits else None
    await in_loop()
    recorder.discard()
    await asyncio.wait_for(close or recorder.aclose(), 30)
    gate.open()
    await eventually(lambda: _is_free(path))
    assert texts(path) == ["a"]


async def test_close_callback_is_called_even_after_the_end(path: Path) -> None:
    """Whoever asks for the end at the very end is told too (the interpreter's exit waits for it)."""
    recorder = recorder_of(path)
    writer = recorder._core.writer
    await recorder.aclose()
    await eventually(lambda: writer not in writer._service._writers)
    done = threading.Event()
    writer.close_soon(done.set)
    await eventually(done.is_set)


# Cancellation


@pytest.mark.case("B16")
@pytest.mark.guarantee("G1")
@pytest.mark.parametrize("name", ["flush", "sync", "persist", "aclose", "record"])
@pytest.mark.parametrize("steps", range(6))
async def test_coroutine_cancelled_at_any_await_loses_and_doubles_nothing(
    path: Path, calls: ForgetfulCalls, name: str, steps: int
) -> None:
    """Cancelled after any number of turns of the loop: what was accepted is in the file once, in order, and
    the next call works."""
    gate = Gate()
    config = quick(pending_bytes_max=3_000) if name == "record" else QUICK
    calls.arm("datasync", waits_before(gate))
    recorder = recorder_of(path, calls=calls, config=config)
    recorder.record_nowait(message("a"), message("b"))
    if name == "record":
        recorder.record_nowait(message("x" * 3_000)) if steps < 0 else None
        with pytest.raises(PendingQueueFull):
            while True:
                recorder.record_nowait(message("fill" * 50))
    accepted = recorder.health.pending_items
    arguments = [message("cancelled")] if name == "record" else []
    task = asyncio.create_task(getattr(recorder, name)(*arguments))
    for _ in range(steps):
        await asyncio.sleep(0)
    done_before = task.done()
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        cancelled = True
    else:
        cancelled = False
    assert cancelled or done_before or name == "flush"
    gate.open()
    if name != "aclose":
        recorder.record_nowait(message("c")) if name != "record" else await recorder.record(message("c"))
    await recorder.aclose()
    seen = texts(path)
    assert seen[:2] == ["a", "b"]
    assert seen.count("cancelled") == (0 if cancelled else name == "record")
    assert len(seen) == accepted + (name != "aclose" or "c" in seen) + seen.count("cancelled")


@pytest.mark.case("B16")
async def test_waits_abandoned_by_their_callers_cost_nothing(path: Path, calls: ForgetfulCalls) -> None:
    """A thousand cancelled barriers leave none behind, and don't make the writer retry for nobody."""
    gate = Gate()
    calls.arm("datasync", waits_before(gate))
    async with created(path, calls=calls) as recorder:
        recorder.record_nowait(message("a"))
        tasks = [asyncio.create_task(recorder.sync()) for _ in range(1000)]
        await asyncio.to_thread(gate.reached.wait)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await recorder.flush()
        gate.open()
        await recorder.sync()
        assert not recorder._core.writer._barriers


# Records of one fact


@pytest.mark.guarantee("G1")
async def test_records_of_one_fact_stand_together(path: Path) -> None:
    """Many threads record facts of three items: none of them is parted."""
    async with created(path) as recorder:

        def produce(name: int) -> None:
            for number in range(200):
                recorder.record_nowait([message(f"{name}.{number}.{part}") for part in range(3)])

        await asyncio.gather(*(asyncio.to_thread(produce, name) for name in range(4)))
    seen = [text.split(".") for text in texts(path)]
    assert len(seen) == 2400
    for at in range(0, len(seen), 3):
        assert {tuple(each[:2]) for each in seen[at : at + 3]} == {tuple(seen[at][:2])}
        assert [each[2] for each in seen[at : at + 3]] == ["0", "1", "2"]


async def test_error_is_a_fresh_one_for_each_caller(path: Path, calls: ForgetfulCalls) -> None:
    """Several callers of one failed sync don't share one exception and its traceback."""
    calls.arm("write", fails(EIO), times=None)
    recorder = recorder_of(path, calls=calls)
    recorder.record_nowait(message("a"))
    found = await asyncio.gather(*(recorder.flush() for _ in range(3)), return_exceptions=True)
    assert len({id(error) for error in found}) == 3
    assert all(isinstance(error, RolloutError) for error in found)
    await end_quietly(recorder)


async def test_recorder_of_another_one_goes_on_while_one_is_in_trouble(path: Path) -> None:
    """One full disk is not everybody's."""
    calls = FaultyCalls()
    calls.arm("write", fails(ENOSPC), times=None)
    broken: RolloutRecorder = recorder_of(path.with_name("broken.jsonl"), calls=calls)
    broken.record_nowait(message("x"))
    async with created(path) as recorder:
        for number in range(20):
            recorder.record_nowait(message(str(number)))
            await recorder.sync()
    assert len(texts(path)) == 20
    await end_quietly(broken)
