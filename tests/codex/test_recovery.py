"""What a recovery tells the model of a call that was cut short is what the real Codex sends its model."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol import tracks
from protocol.own import CallItem
from tests.codex.conftest import Start, meta_in
from tests.codex.model_service import ModelService
from thread_store.local_store import LocalThreadStore

pytestmark = [pytest.mark.asyncio, pytest.mark.codex]

TURN = "01960000-0000-7000-8000-00000000c0de"


@pytest.mark.guarantee("G8")
async def test_codex_puts_no_guess_of_its_own_where_a_recovery_told_the_truth(
    home: Path, start: Start, model: ModelService, store: LocalThreadStore
) -> None:
    """Neither for a call that may have run nor for one that never did."""
    async with await store.create_thread(meta_in(home)) as thread:
        thread.record_nowait(
            [
                *tracks.turn_started(TURN),
                *tracks.user_message("question 1"),
                *tracks.tool_call(call_id="c1", name="mail", arguments={"to": "x"}),
                CallItem(call_id="c1", turn_id=TURN, state="started", effect="idempotent"),
                *tracks.tool_call(call_id="c2", name="mail", arguments="to y", custom=True),
                CallItem(call_id="c2", turn_id=TURN, state="intended"),
            ]
        )
    resumed, _ = await store.resume_thread(thread.thread_id)
    await resumed.aclose()
    async with start() as server:
        await server.call("thread/resume", threadId=thread.thread_id)
        await server.turn(thread.thread_id, "codex asks")
    outputs = {
        item["call_id"]: item["output"]
        for item in model.requests[-1]["input"]
        if item["type"].endswith("_output")
    }
    assert outputs["c1"].startswith("outcome unknown: the process ended while this call ran")
    assert outputs["c2"].startswith("not executed: the process ended before this call began")
    assert (await store.load_resume_state(thread.thread_id)).can_resume
