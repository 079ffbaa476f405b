"""A verification of a turn (tests run, a claim looked into), recorded before it begins and when it ends.

Invariant: `x_check` started is on stable storage before the body runs, the result before the caller goes
on. What is recorded is decided in `thread_store.turns.check_records`.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING, Self

from protocol.errors import RolloutError
from thread_store.turns.check_records import CheckRecords
from thread_store.turns.last_words import INTERRUPTED_SECONDS_MAX, record_last_words

if TYPE_CHECKING:
    from rollout.recorder import RolloutRecorder

__all__ = ["RecordedCheck"]


class RecordedCheck(CheckRecords):
    """Made by `Turn.check`, used as `async with`. Say `passed`, `failed` or `skipped`; a body that raises has
    failed, one that is cancelled leaves it unfinished, which forbids an automatic resume."""

    def __init__(self, recorder: RolloutRecorder, records: CheckRecords) -> None:
        super().__init__(records.check_id, records.turn_id, records.what, records.call_ids)
        self._recorder = recorder

    async def __aenter__(self) -> Self:
        await self._recorder.record(self.start())
        try:
            await self._recorder.sync()
        except BaseException as error:
            self._note_unbegun(error)
            raise
        return self

    def _note_unbegun(self, error: BaseException) -> None:
        try:
            self._recorder.record_nowait(self.never_begun(error))
        except RolloutError as failure:
            error.add_note(f"that the check {self.check_id} was never begun is not on record: {failure}")

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        end = self.end(error)
        if end is None:
            return
        interrupted = error is not None and not isinstance(error, Exception)
        try:
            async with asyncio.timeout(INTERRUPTED_SECONDS_MAX if interrupted else None):
                await record_last_words(self._recorder, end)
                await self._recorder.sync()
        except (RolloutError, TimeoutError) as failure:
            if error is None:
                raise
            error.add_note(f"the end of the check {self.check_id} is not on stable storage: {failure}")
