"""Two streams from one source: facts in one file, everything in another; neither fails with the other."""

from __future__ import annotations

import errno
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from protocol import EventMsg, ResponseItem, RolloutItem, SessionMeta, tracks
from protocol.errors import ItemNotEncodable, PendingQueueFull, RolloutWriteError
from protocol.events import TokenUsage
from rollout import RecorderConfig, RolloutRecorder, read_rollout
from rollout.core import create_core
from rollout.service import shared_service
from tests.rollout.faulty import FaultyCalls, fails
from thread_store.streams import EventStreams, is_fact

pytestmark = pytest.mark.asyncio

TOKENS = EventMsg.token_count(TokenUsage(input_tokens=1, output_tokens=2))


def quick(**limits: Any) -> RecorderConfig:
    return RecorderConfig(
        linger_seconds=0.0005, retry_seconds_min=0.001, retry_seconds_max=0.01, close_seconds=0.2, **limits
    )


def recorder_of(path: Path, calls: FaultyCalls, **limits: Any) -> RolloutRecorder:
    core = create_core(
        path, SessionMeta(cwd="/work"), config=quick(**limits), service=shared_service(), calls=calls
    )
    return RolloutRecorder(core)


class Pair:
    """Two recorders on disks that can fail, each for itself."""

    def __init__(self, folder: Path) -> None:
        self.facts, self.everything = folder / "transcript.jsonl", folder / "trace.jsonl"
        self.transcript_disk, self.trace_disk = FaultyCalls(), FaultyCalls()
        self.streams = EventStreams(
            recorder_of(self.facts, self.transcript_disk, pending_bytes_max=100_000),
            recorder_of(self.everything, self.trace_disk, pending_bytes_max=100_000),
        )


@pytest_asyncio.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    made = Pair(tmp_path)
    yield made
    for recorder in (made.streams.transcript, made.streams.trace):
        recorder.discard()
        await recorder.aclose()


def types(path: Path) -> list[str]:
    found = []
    for record in read_rollout(path):
        assert record.line is not None
        if record.line.type not in ("session_meta", "x_writer"):
            payload = record.line.payload_object()
            found.append(payload.get("type", record.line.type))
    return found


async def test_trace_has_everything_and_the_transcript_the_facts(pair: Pair) -> None:
    """Token use and raw output don't swell the file that a resume reads."""
    pair.streams.record_nowait(tracks.user_message("hello"), TOKENS)
    await pair.streams.record(RolloutItem.raw("x_trace", {"stdout": "…"}), ResponseItem.message("user", "a"))
    receipt = await pair.streams.sync()
    said = ["message", "user_message", "item_completed"]
    assert types(pair.facts) == [*said, "message"]
    assert types(pair.everything) == [*said, "token_count", "x_trace", "message"]
    assert (receipt.transcript.items, receipt.trace is not None and receipt.trace.items) == (4, 6)


@pytest.mark.parametrize("call", ["record_nowait", "record"])
async def test_full_trace_does_not_stop_the_transcript(
    pair: Pair, caplog: pytest.LogCaptureFixture, call: str
) -> None:
    """What the trace lacks is counted, and told once in the log."""
    pair.trace_disk.arm("open_new", fails(errno.ENOSPC), times=None)
    caplog.set_level(logging.WARNING, "thread_store")
    for _ in range(3):
        item = ResponseItem.message("user", "x" * 60_000)
        if call == "record":
            await pair.streams.record(item)
        else:
            pair.streams.record_nowait(item)
        await pair.streams.transcript.sync()
    assert types(pair.facts) == ["message"] * 3
    health = pair.streams.trace_health
    assert (health.lost_items, type(health.last_error)) == (2, PendingQueueFull)
    assert [each.message.split(":")[0] for each in caplog.records if each.name == "thread_store"] == [
        "the trace fails, the transcript goes on"
    ]
    receipt = await pair.streams.flush()
    assert (receipt.transcript.items, receipt.trace) == (3, None)
    assert isinstance(receipt.trace_error, RolloutWriteError)


async def test_trace_that_works_again_goes_on(pair: Pair) -> None:
    """It lacks what it could not take, and says how much."""
    pair.trace_disk.arm("open_new", fails(errno.ENOSPC), times=None)
    for _ in range(2):
        pair.streams.record_nowait(ResponseItem.message("user", "x" * 60_000))
        await pair.streams.transcript.sync()
    pair.trace_disk.lift()
    await pair.streams.trace.sync()
    pair.streams.record_nowait(ResponseItem.message("user", "again"))
    receipt = await pair.streams.aclose()
    assert receipt.trace_error is None
    assert (len(types(pair.facts)), len(types(pair.everything))) == (3, 2)
    health = pair.streams.trace_health
    assert (health.lost_items, health.last_error) == (1, None)


async def test_transcript_that_fails_is_raised_and_does_not_stop_the_trace(pair: Pair) -> None:
    """A resume rests on it: its barriers raise, and the trace has the items."""
    pair.transcript_disk.arm("open_new", fails(errno.ENOSPC), times=None)
    pair.streams.record_nowait(ResponseItem.message("user", "x" * 60_000))
    with pytest.raises(PendingQueueFull):
        pair.streams.record_nowait(ResponseItem.message("user", "y" * 60_000))
    with pytest.raises(PendingQueueFull):
        await pair.streams.record(ResponseItem.message("user", "z" * 60_000), timeout=0.01)
    with pytest.raises(RolloutWriteError):
        await pair.streams.sync()
    await pair.streams.trace.flush()
    assert len(types(pair.everything)) >= 1
    assert not pair.facts.exists()


async def test_unfit_item_is_refused_by_both(pair: Pair) -> None:
    """Nothing of the call is taken."""
    with pytest.raises(ItemNotEncodable):
        pair.streams.record_nowait(TOKENS, RolloutItem.raw("x_check", {"n": float("nan")}))
    await pair.streams.transcript.persist()
    await pair.streams.trace.persist()
    assert types(pair.facts) == types(pair.everything) == []


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (ResponseItem.message("user", "a"), True),
        (EventMsg.user_message("a"), True),
        (TOKENS, False),
        (RolloutItem.raw("event_msg", {"type": "token_count", "info": None}), False),
        (RolloutItem.raw("event_msg", b'{"type":"exec_command_output_delta"}'), False),
        (RolloutItem.raw("event_msg", b'{"type":"task_started","turn_id":"t"}'), True),
        (RolloutItem.raw("event_msg", {"type": "something_new"}), True),
        (RolloutItem.raw("x_trace", {}), False),
        (RolloutItem.raw("x_anything", {}), True),
        (RolloutItem.raw("token_usage_record", {}), False),
    ],
)
async def test_what_is_unknown_counts_as_a_fact(item: RolloutItem, expected: bool) -> None:
    """Better one record too many in the transcript than one too few."""
    assert is_fact(item) is expected
