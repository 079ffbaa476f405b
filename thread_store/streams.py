"""Two streams from one source: a transcript of the facts, and a trace of everything.

Invariant: each item goes to the trace, each fact to the transcript too, and a stream that fails never
keeps the other from its items. The transcript is what a resume rests on, so its failures are raised;
those of the trace are counted, logged once a change, and told in `trace_health`. What one of them may
not store in clear the other may not either.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Self

import msgspec
from msgspec import Struct

from protocol.errors import RolloutError
from protocol.items import RawItem, RolloutItem
from rollout.barrier import Receipt
from rollout.health import WriterHealth
from rollout.recorder import RolloutRecorder
from rollout.redaction import Redaction

__all__ = ["EventStreams", "StreamReceipt", "TraceHealth", "is_fact"]

_log = logging.getLogger("thread_store")

Records = RolloutItem | Sequence[RolloutItem]

_TRACED_EVENTS = frozenset(
    {
        "agent_message_content_delta",
        "agent_message_delta",
        "agent_reasoning_delta",
        "agent_reasoning_raw_content",
        "agent_reasoning_raw_content_delta",
        "agent_reasoning_section_break",
        "exec_command_output_delta",
        "background_event",
        "mcp_startup_update",
        "mcp_startup_complete",
        "plan_delta",
        "raw_response_item",
        "reasoning_content_delta",
        "reasoning_raw_content_delta",
        "stream_error",
        "token_count",
        "turn_diff",
        "warning",
    }
)
_TRACED_TYPES = frozenset({"realtime_item", "security_risk_score", "token_usage_record", "x_trace"})


def is_fact(item: RolloutItem) -> bool:
    """Whether an item matters for going on after a crash: what was said, asked, done and decided.

    Token use, pieces of what comes whole later, raw output and notices are for the trace alone, and so is
    what is recorded as `x_trace`. What is unknown counts as a fact.
    """
    if item.record_type == "event_msg":
        return _variant_of(item) not in _TRACED_EVENTS
    return item.record_type not in _TRACED_TYPES


def _variant_of(item: RolloutItem) -> object:
    if not isinstance(item, RawItem):
        return type(item).__struct_config__.tag
    payload = item.payload
    if isinstance(payload, dict):
        return payload.get("type")
    if isinstance(payload, bytes | bytearray | memoryview | msgspec.Raw):
        try:
            return msgspec.json.decode(payload, type=_Variant).type
        except (msgspec.DecodeError, RecursionError):
            return None
    return None


class _Variant(Struct):
    type: str | None = None


class TraceHealth(Struct, frozen=True):
    """How the trace fares. `lost_items`: it could not take them; the transcript has those that are facts."""

    writer: WriterHealth
    lost_items: int
    last_error: BaseException | None


class StreamReceipt(Struct, frozen=True):
    """What a barrier guarantees of each stream. `trace` is None if that failed; `trace_error` says why."""

    transcript: Receipt
    trace: Receipt | None
    trace_error: RolloutError | None = None


class EventStreams:
    """Sends each item to the stream, or the streams, that it is for. Closing it closes both.

    Args:
        transcript: takes the facts; often a `Thread`.
        trace: takes everything.
        select: which items are facts.
    """

    def __init__(
        self,
        transcript: RolloutRecorder,
        trace: RolloutRecorder,
        *,
        select: Callable[[RolloutItem], bool] = is_fact,
    ) -> None:
        self.transcript = transcript
        self.trace = trace
        self._select = select
        self._redaction = _lacking_redaction(transcript, trace)
        self._lost_items = 0
        self._trace_error: BaseException | None = None

    @property
    def trace_health(self) -> TraceHealth:
        """How the trace fares; the transcript tells its own in `transcript.health`."""
        return TraceHealth(self.trace.health, self._lost_items, self._trace_error)

    def record_nowait(self, *items: Records) -> None:
        """Accept items, or lists of items: the facts of one call in the transcript together or not at all.

        Raises:
            PendingQueueFull, RecorderClosed, WriterFenced: the transcript takes no more; the trace got the
                items all the same, and gets them again if the call is repeated.
            RecordTooLarge, ItemNotEncodable: one of the items is unfit; the transcript took none of them.
            RedactionFailed: neither took any.
        """
        flat = self._flatten(items)
        try:
            self.transcript.record_nowait([each for each in flat if self._select(each)])
        finally:
            self._trace_nowait(flat)

    async def record(self, *items: Records, timeout: float | None = None) -> None:
        """Like `record_nowait`, but waits while the transcript's queue is full, at most `timeout` seconds."""
        flat = self._flatten(items)
        try:
            await self.transcript.record([each for each in flat if self._select(each)], timeout=timeout)
        finally:
            self._trace_nowait(flat)

    def _flatten(self, items: Sequence[Records]) -> list[RolloutItem]:
        flat = _flatten(items)
        return flat if self._redaction is None else [self._redaction.item(each) for each in flat]

    def _trace_nowait(self, items: list[RolloutItem]) -> None:
        try:
            self.trace.record_nowait(items)
        except RolloutError as error:
            self._note_trace_error(error, lost=len(items))
        else:
            self._note_trace_works()

    def _note_trace_error(self, error: RolloutError, *, lost: int = 0) -> None:
        self._lost_items += lost
        if type(error) is not type(self._trace_error):
            _log.warning("the trace fails, the transcript goes on: %s", error)
        self._trace_error = error

    def _note_trace_works(self) -> None:
        if self._trace_error is not None:
            _log.warning("the trace works again; it lacks %d items", self._lost_items)
            self._trace_error = None

    async def flush(self) -> StreamReceipt:
        """As `RolloutRecorder.flush`, for both; the transcript's error is raised, the trace's is told."""
        return await self._both(RolloutRecorder.flush)

    async def sync(self) -> StreamReceipt:
        """As `RolloutRecorder.sync`, for both; the transcript's error is raised, the trace's is told."""
        return await self._both(RolloutRecorder.sync)

    async def aclose(self) -> StreamReceipt:
        """Close both; the transcript's error is raised, the trace's is told."""
        return await self._both(lambda recorder: recorder.aclose())

    async def _both(self, call: Callable[[RolloutRecorder], Awaitable[Receipt]]) -> StreamReceipt:
        async def traced() -> tuple[Receipt | None, RolloutError | None]:
            try:
                return await call(self.trace), None
            except RolloutError as error:
                self._note_trace_error(error)
                return None, error

        async with asyncio.TaskGroup() as tasks:
            tracing = tasks.create_task(traced())
            transcript = await _settled(call(self.transcript))
        if isinstance(transcript, RolloutError):
            raise transcript
        return StreamReceipt(transcript, *tracing.result())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def _lacking_redaction(*recorders: RolloutRecorder) -> Redaction | None:
    """That of the one, if the other has none."""
    redactions = [each.redaction for each in recorders]
    found = next((each for each in redactions if each is not None), None)
    return found.alike() if found is not None and None in redactions else None


async def _settled(call: Awaitable[Receipt]) -> Receipt | RolloutError:
    """What came of it; so that the other stream isn't cancelled for it."""
    try:
        return await call
    except RolloutError as error:
        return error


def _flatten(items: Sequence[Records]) -> list[RolloutItem]:
    flat: list[RolloutItem] = []
    for each in items:
        if isinstance(each, RolloutItem):
            flat.append(each)
        else:
            flat.extend(each)
    return flat
