"""The blocking recorder inside a running event loop: a clear error instead of a deadlock."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from protocol.items import RolloutItem
from rollout import blocking
from tests.thread_store.conftest import meta_line

pytestmark = pytest.mark.asyncio


@pytest.mark.case("B118")
@pytest.mark.parametrize("call", [lambda path: blocking.open(path), lambda path: blocking.create(path)])
async def test_making_one_inside_a_loop_is_refused(
    write: Callable[..., Path], call: Callable[[Path], object]
) -> None:
    """Nothing waits where waiting could never end; the error names what to use."""
    path = write(meta_line())
    with pytest.raises(RuntimeError, match="running event loop; use RolloutRecorder"):
        call(path)


@pytest.mark.case("B118")
@pytest.mark.parametrize("barrier", ["flush", "sync", "persist", "close"])
async def test_waiting_inside_a_loop_is_refused(write: Callable[..., Path], barrier: str) -> None:
    """Each call that waits says so; recording without waiting stays possible."""
    import asyncio

    path = write(meta_line())
    recorder = await asyncio.to_thread(blocking.open, path)
    recorder.record_nowait(RolloutItem.raw("x_note", {"n": 1}))
    with pytest.raises(RuntimeError, match="running event loop"):
        getattr(recorder, barrier)()
    receipt = await asyncio.to_thread(recorder.close)
    assert receipt.items == 1
