"""Redaction of a recorder: nothing that it writes, keeps or says holds the secret."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from protocol import EventMsg, RedactionFailed, ResponseItem, RolloutItem, SessionMeta, tracks
from protocol.errors import PendingQueueFull, UnwrittenItems
from protocol.redact import HOOK_RULE
from rollout import RecorderConfig, RolloutRecorder
from tests.rollout.faulty import Fault, FaultyCalls, fails
from tests.rollout.test_pending import make, taken

CANARY = "sk-CANARY-0123456789"


def censor(text: str) -> str:
    return text.replace(CANARY, "[redacted:canary]")


CONFIG = RecorderConfig(redact=censor)


def said(item: str = CANARY) -> RolloutItem:
    return ResponseItem.message("user", f"my key is {item}")


@pytest.mark.case("B102")
@pytest.mark.asyncio
async def test_canary_is_in_no_byte_of_the_file(tmp_path: Path) -> None:
    """Not in its meta, not in a message, not in the arguments of a call; and it is counted."""
    path = tmp_path / "r.jsonl"
    meta = SessionMeta(cwd=f"/srv/{CANARY}", x_task={"prompt": CANARY})
    async with RolloutRecorder.create(path, meta, config=CONFIG) as recorder:
        await recorder.record(said(), *tracks.user_message(CANARY), EventMsg.agent_message("none"))
        await recorder.record(ResponseItem.function_call(name="n", arguments={"k": CANARY}, call_id="c"))
        await recorder.sync()
        assert recorder.health.redactions == {"canary": 5}
        assert CANARY not in repr(recorder) + repr(recorder.health)
    assert CANARY not in path.read_text()


@pytest.mark.asyncio
async def test_failing_hook_refuses_the_item_and_nothing_else(tmp_path: Path) -> None:
    """The item is in no file, the error says nothing of it, and the recorder goes on."""

    def broken(text: str) -> str:
        if CANARY in text:
            raise ValueError(text)
        return text

    path = tmp_path / "r.jsonl"
    async with RolloutRecorder.create(path, config=RecorderConfig(redact=broken)) as recorder:
        with pytest.raises(RedactionFailed) as caught:
            recorder.record_nowait(said("fine"), said())
        assert CANARY not in str(caught.value)
        recorder.record_nowait(said("fine"))
    assert path.read_text().count("my key is") == 1


@pytest.mark.asyncio
async def test_hook_that_fails_for_good_keeps_no_recorder_from_its_end(tmp_path: Path) -> None:
    """What was accepted before is written, and the session is closed as ever."""
    works = True

    def breaks(text: str) -> str:
        if not works:
            raise ValueError(text)
        return text

    path = tmp_path / "r.jsonl"
    recorder = await RolloutRecorder.create(path, config=RecorderConfig(redact=breaks))
    recorder.record_nowait(said("fine"))
    works = False
    with pytest.raises(RedactionFailed):
        recorder.record_nowait(said("fine"))
    await recorder.aclose()
    assert path.read_text().count("my key is") == 1
    assert '"event":"closed"' in path.read_text()


@pytest.mark.asyncio
async def test_hook_on_items_runs_before_the_hook_on_texts(tmp_path: Path) -> None:
    """Both are applied to every item, the meta line among them."""

    def without_names(item: RolloutItem) -> RolloutItem:
        return ResponseItem.message("user", f"{CANARY} of Ann") if isinstance(item, type(said())) else item

    path = tmp_path / "r.jsonl"
    config = RecorderConfig(redact=censor, redact_items=without_names)
    async with RolloutRecorder.create(path, config=config) as recorder:
        await recorder.record(said("x"))
    assert "[redacted:canary] of Ann" in path.read_text()


def test_only_what_was_accepted_is_counted() -> None:
    """An item that the queue refuses, or that comes again, doesn't count twice."""
    pending = make(pending_bytes_max=400, redact=censor)
    assert pending.redactions == {}
    pending.append(said())
    with pytest.raises(PendingQueueFull):
        pending.append(said(), said("x" * 400))
    assert pending.redactions == {"canary": 1}
    taken(pending)
    pending.note_durable(pending.accepted_bytes)
    pending.append(said())
    assert pending.redactions == {"canary": 2}
    assert CANARY.encode() not in taken(pending)


def test_change_without_a_marker_counts_too() -> None:
    """As one of the hook."""
    pending = make(redact=lambda text: text.replace(CANARY, "*"))
    pending.append(said())
    assert pending.redactions == {HOOK_RULE: 1}


@pytest.mark.case("B102")
@pytest.mark.asyncio
async def test_canary_is_in_no_kept_file_and_no_error(tmp_path: Path) -> None:
    """What a broken disk did not take is set aside as it would have been written."""
    home = tmp_path / "home"
    path = home / "sessions" / "r.jsonl"
    calls = FaultyCalls(Fault("write", fails(28), times=None))
    config = RecorderConfig(redact=censor, close_seconds=0.2)
    from rollout.core import create_core
    from rollout.service import shared_service

    core = create_core(path, None, config=config, service=shared_service(), calls=calls)
    recorder = RolloutRecorder(core)
    recorder.record_nowait(said())
    with pytest.raises(UnwrittenItems) as caught:
        await recorder.aclose()
    assert CANARY not in f"{caught.value!r}{caught.value.__dict__}"
    everything = b"".join(each.read_bytes() for each in home.rglob("*") if each.is_file())
    assert b"[redacted:canary]" in everything
    assert CANARY.encode() not in everything
    assert json.loads(everything.splitlines()[0])["kind"] == "unwritten" or os.path.exists(path)
