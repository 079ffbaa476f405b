"""Health: what a recorder tells of itself, at any time and from any thread."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rollout.state import WriterState
from tests.rollout.faulty import EIO, ForgetfulCalls, Gate, fails, waits_before
from tests.rollout.recorded import created, eventually, message, messages, opened, own, recorder_of

pytestmark = pytest.mark.asyncio


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.jsonl"


async def test_figures_follow_the_items_to_the_disk(path: Path) -> None:
    """Accepted, handed over, durable: counted in items of this recorder, without its own notes."""
    calls, gate = ForgetfulCalls(), Gate()
    async with created(path, calls=calls) as recorder:
        health = recorder.health
        assert health.state is WriterState.DEFERRED
        assert (health.pending_items, health.pending_bytes, health.flushed_items, health.synced_items) == (
            *(0, 0, 0, 0),
        )
        recorder.record_nowait(message("a"), own("b"))
        assert recorder.health.pending_items == 2
        assert recorder.health.pending_bytes > 0
        await recorder.flush()
        health = recorder.health
        assert (health.state, health.pending_items, health.flushed_items, health.synced_items) == (
            *(WriterState.OPEN, 2, 2, 0),
        )
        calls.arm("datasync", waits_before(gate))
        sync = asyncio.create_task(recorder.sync())
        await asyncio.to_thread(gate.reached.wait)
        recorder.record_nowait(message("c"))
        await recorder.flush()
        gate.open()
        await sync
        health = recorder.health
        assert (health.pending_items, health.flushed_items, health.synced_items) == (1, 3, 2)
        await recorder.sync()
        health = recorder.health
        assert (health.pending_items, health.pending_bytes, health.synced_items) == (0, 0, 3)
        assert (health.retries, health.reopens, health.last_error) == (0, 0, None)
    health = recorder.health
    assert (health.state, health.pending_items, health.synced_items) == (WriterState.CLOSED, 0, 3)


async def test_figures_of_a_reopened_rollout_begin_anew(path: Path) -> None:
    """They count what this recorder was given, not what stands in the file."""
    async with created(path) as recorder:
        recorder.record_nowait(messages("abc"))
    async with opened(path) as recorder:
        assert recorder.health.state is WriterState.OPEN
        recorder.record_nowait(message("d"))
        await recorder.sync()
        assert (recorder.health.flushed_items, recorder.health.synced_items) == (1, 1)


async def test_figures_stay_right_through_healing(path: Path) -> None:
    """A file that was unlinked and rebuilt, a sync that failed: nothing is counted twice."""
    calls = ForgetfulCalls()
    async with created(path, calls=calls) as recorder:
        recorder.record_nowait(messages("ab"))
        await recorder.flush()
        path.unlink()
        calls.arm("datasync", fails(EIO))
        recorder.record_nowait(messages("cd"))
        await recorder.sync()
        health = recorder.health
        assert (health.pending_items, health.flushed_items, health.synced_items) == (0, 4, 4)
        assert health.pending_bytes == 0
        assert health.reopens >= 1


async def test_health_tells_of_trouble_while_there_is_some(path: Path) -> None:
    """State, last error and retries; the error is gone when the trouble is."""
    calls = ForgetfulCalls()
    calls.arm("write", fails(EIO), times=None)
    recorder = recorder_of(path, calls=calls)
    recorder.record_nowait(message("a"))
    await eventually(lambda: recorder.health.retries > 1)
    health = recorder.health
    assert health.state is WriterState.RECOVERING
    assert isinstance(health.last_error, OSError)
    calls.lift()
    await eventually(lambda: recorder.health.state is WriterState.OPEN)
    await eventually(lambda: recorder.health.last_error is None)
    await recorder.aclose()


async def test_health_is_a_snapshot(path: Path) -> None:
    """It doesn't change under whoever looks at it, and can't be changed."""
    async with created(path) as recorder:
        before = recorder.health
        recorder.record_nowait(message("a"))
        assert before.pending_items == 0
        with pytest.raises(AttributeError):
            before.pending_items = 5  # type: ignore[misc]
