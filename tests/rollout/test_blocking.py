"""The blocking twin: the same handle, with waits instead of awaits, and never inside a running loop."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import (
    ActiveWriter,
    NotARollout,
    PendingQueueFull,
    RecorderClosed,
    RolloutExists,
    RolloutWriteError,
    UnwrittenItems,
)
from rollout import RecorderConfig, blocking
from rollout.blocking import BlockingRecorder
from rollout.state import WriterState
from tests.rollout.faulty import EIO, ENOSPC, FaultyCalls, Gate, fails, waits_before
from tests.rollout.recorded import QUICK, core_of, eventually_blocking, json_lines, message, messages, texts


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.jsonl"


def test_block_records_flushes_syncs_and_closes(path: Path) -> None:
    """Each barrier holds when it returns."""
    with blocking.create(path, config=QUICK) as recorder:
        recorder.record_nowait(message("a"))
        assert recorder.flush().items == 1
        assert texts(path) == ["a"]
        recorder.record(message("b"), [message("c")])
        receipt = recorder.sync()
        assert (receipt.items, receipt.offset_bytes) == (3, path.stat().st_size)
        assert recorder.health.synced_items == 3
    assert texts(path) == ["a", "b", "c"]
    with blocking.open(path, config=QUICK) as recorder:
        recorder.record(message("d"))
    assert texts(path) == ["a", "b", "c", "d"]
    assert [line["ordinal"] for line in json_lines(path) if "ordinal" in line] == [0, 1, 2, 3, 4]


def test_persist_makes_the_file(path: Path) -> None:
    """With its meta line alone."""
    with blocking.create(path, config=QUICK) as recorder:
        assert recorder.persist().items == 0
        assert len(json_lines(path)) == 1


def test_errors_are_those_of_the_other_handle(path: Path) -> None:
    """Opening what is no rollout, creating over one, opening twice, using it closed."""
    path.write_bytes(b"a letter\n")
    with pytest.raises(NotARollout):
        blocking.open(path)
    with pytest.raises(RolloutExists):
        blocking.create(path)
    path.unlink()
    recorder = blocking.create(path, config=QUICK)
    recorder.record(message("a"))
    recorder.sync()
    with pytest.raises(ActiveWriter):
        blocking.open(path)
    assert recorder.close() == recorder.close()
    for call in (recorder.flush, recorder.sync, recorder.persist, lambda: recorder.record(message("b"))):
        with pytest.raises(RecorderClosed):
            call()


LOOPED: dict[str, Callable[[BlockingRecorder, Path], Any]] = {
    "create": lambda recorder, path: blocking.create(path.with_name("b.jsonl")),
    "open": lambda recorder, path: blocking.open(path),
    "record": lambda recorder, path: recorder.record(message("x")),
    "flush": lambda recorder, path: recorder.flush(),
    "sync": lambda recorder, path: recorder.sync(),
    "persist": lambda recorder, path: recorder.persist(),
    "close": lambda recorder, path: recorder.close(),
    "exit": lambda recorder, path: recorder.__exit__(None, None, None),
}


@pytest.mark.case("B118")
@pytest.mark.parametrize("name", LOOPED)
def test_call_inside_a_running_loop_raises_at_once(path: Path, name: str) -> None:
    """A clear error instead of a deadlock; nothing was done, and outside the recorder works as before."""
    recorder = blocking.create(path, config=QUICK)
    recorder.record(message("a"))
    recorder.flush()

    async def call() -> None:
        with pytest.raises(RuntimeError, match="inside a running event loop"):
            LOOPED[name](recorder, path)

    asyncio.run(call())
    assert texts(path) == ["a"]
    assert not path.with_name("b.jsonl").exists()
    recorder.record(message("b"))
    recorder.close()
    assert texts(path) == ["a", "b"]


@pytest.mark.case("B118")
def test_items_may_be_recorded_inside_a_loop(path: Path) -> None:
    """record_nowait never waits, so it works everywhere."""
    with blocking.create(path, config=QUICK) as recorder:

        async def call() -> None:
            recorder.record_nowait(message("a"))

        asyncio.run(call())
    assert texts(path) == ["a"]


def test_threads_share_one_recorder(path: Path) -> None:
    """Each thread's barrier covers its own items."""
    with blocking.create(path, config=QUICK) as recorder:

        def produce(name: int) -> None:
            for number in range(50):
                recorder.record(message(f"{name}:{number}"))
                recorder.flush()
                assert f"{name}:{number}" in path.read_text("utf-8")

        threads = [threading.Thread(target=produce, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(texts(path)) == 200


@pytest.mark.parametrize("name", ["flush", "sync", "persist"])
def test_timeout_ends_the_waiting_and_nothing_else(path: Path, name: str) -> None:
    """What was accepted is written all the same, and a later barrier succeeds."""
    calls, gate = FaultyCalls(), Gate()
    calls.arm("open_new", waits_before(gate))
    recorder = BlockingRecorder(core_of(path, calls=calls))
    recorder.record(message("a"))
    with pytest.raises(TimeoutError):
        getattr(recorder, name)(timeout=0.01)
    gate.open()
    getattr(recorder, name)()
    recorder.close()
    assert texts(path) == ["a"]


@pytest.mark.guarantee("G7")
def test_record_waits_while_the_queue_is_full(path: Path) -> None:
    """With a timeout it gives up and accepts nothing; without, it goes on when there is room."""
    calls = FaultyCalls()
    calls.arm("write", fails(ENOSPC), times=None)
    config = RecorderConfig(pending_bytes_max=2_000, retry_seconds_min=0.001, retry_seconds_max=0.005)
    recorder = BlockingRecorder(core_of(path, calls=calls, config=config))
    recorder.record(message("x" * 2_000))
    with pytest.raises(PendingQueueFull):
        recorder.record(message("late"), timeout=0.01)
    eventually_blocking(lambda: recorder.health.state is WriterState.RECOVERING)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(recorder.record, message("y"))
        calls.lift()
        waiting.result(30)
    recorder.close()
    assert texts(path) == ["x" * 2_000, "y"]


def test_barrier_raises_while_the_disk_refuses(path: Path) -> None:
    """And the close says where the items were kept."""
    calls = FaultyCalls()
    calls.arm("write", fails(EIO), times=None)
    recorder = BlockingRecorder(core_of(path, calls=calls, config=RecorderConfig(close_seconds=0.05)))
    recorder.record(messages("ab"))
    with pytest.raises(RolloutWriteError):
        recorder.flush()
    with pytest.raises(UnwrittenItems) as caught:
        recorder.close()
    assert caught.value.kept_path is not None
    assert Path(caught.value.kept_path).exists()


def test_body_that_raises_is_closed_and_its_error_passes(path: Path) -> None:
    """As with any file."""
    with pytest.raises(ZeroDivisionError), blocking.create(path, config=QUICK) as recorder:
        recorder.record(message("a"))
        raise ZeroDivisionError
    assert texts(path) == ["a"]


def test_dropped_recorder_is_drained_and_warns(path: Path) -> None:
    """The same as of the other handle."""
    recorder = blocking.create(path, config=QUICK)
    recorder.record(message("a"))
    writer = recorder._core.writer
    with pytest.warns(ResourceWarning, match="dropped without aclose"):
        del recorder
        gc.collect()
    eventually_blocking(lambda: writer.state is WriterState.CLOSED)
    assert texts(path) == ["a"]
