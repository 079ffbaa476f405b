"""One tool call of a turn, recorded so that a resume knows how far it got.

Invariant: the request and `x_call` started are on stable storage before the body runs; its end is on
stable storage before the caller goes on, and so before the model can see the result. Whatever ends the
body, the call has an end on record: completed, failed, declined, or aborted, with an output that
tells the truth. What is recorded is decided in `thread_store.turns.call_records`.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING, Self

from protocol.call_state import ToolCall
from protocol.errors import RolloutError
from thread_store.turns.call_records import CallPhase, CallRecords
from thread_store.turns.call_tracks import CallSpec
from thread_store.turns.last_words import INTERRUPTED_SECONDS_MAX, record_last_words

if TYPE_CHECKING:
    from rollout.recorder import RolloutRecorder

__all__ = ["RecordedCall"]


class RecordedCall(CallRecords):
    """Made by `Turn.tool_call`, used as `async with`. Tell how it ended with one of its methods; a body that
    raises has failed, one that is cancelled was aborted."""

    def __init__(
        self, recorder: RolloutRecorder, spec: CallSpec, *, replaces: ToolCall | None = None
    ) -> None:
        super().__init__(spec, replaces=replaces)
        self._recorder = recorder

    async def request(self) -> None:
        """Record what the model asked for, and that it has not begun: after a crash it is *pending*, and can
        be offered again. For whatever takes time before the body runs.

        Raises: as entering it.
        """
        await self._recorder.record(self.intend())
        self.note(CallPhase.INTENDED)

    async def give_up(self, reason: str) -> None:
        """Record that it isn't run after all, and why. On return that is on stable storage."""
        await self._recorder.record(self.decline(reason))
        self.note(CallPhase.ENDED)
        await self._recorder.sync()

    async def __aenter__(self) -> Self:
        items = self.start()
        try:
            await self._recorder.record(items)
            self.note(CallPhase.STARTED)
            await self._recorder.sync()
        except BaseException as error:
            self._note_unbegun(error)
            raise
        return self

    def _note_unbegun(self, error: BaseException) -> None:
        """The body won't run. If the request is recorded, this is too."""
        if self.phase not in (CallPhase.INTENDED, CallPhase.STARTED):
            return
        try:
            self._recorder.record_nowait(self.never_begun(error))
            self.note(CallPhase.ENDED)
        except RolloutError as failure:
            error.add_note(f"that the call {self.call_id} was never begun is not on record: {failure}")

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        interrupted = error is not None and not isinstance(error, Exception)
        try:
            async with asyncio.timeout(INTERRUPTED_SECONDS_MAX if interrupted else None):
                await record_last_words(self._recorder, self.end(error))
                self.note(CallPhase.ENDED)
                await self._recorder.sync()
        except (RolloutError, TimeoutError) as failure:
            text = f"the end of the call {self.call_id} is not on stable storage"
            if error is None:
                failure.add_note(f"{text}; its tool has run")
                raise
            # What happened in the body goes first: a cancelled task stays cancelled.
            error.add_note(f"{text}: {failure}")
