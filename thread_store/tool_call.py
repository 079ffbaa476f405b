"""One tool call of a turn, recorded so that a resume knows how far it got.

Invariant: the request and `x_call` started are on stable storage before the body runs; its end is on
stable storage before the caller goes on, and so before the model can see the result. Whatever ends the
body, the call has an end on record: completed, failed, declined, or aborted, with an output that
tells the truth.
"""

from __future__ import annotations

import asyncio
import enum
import hashlib
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from protocol import tracks
from protocol.errors import RolloutError
from protocol.own import CallItem
from protocol.timestamps import now_ms

if TYPE_CHECKING:
    from protocol.items import RolloutItem
    from thread_store.thread import Turn

__all__ = ["RecordedCall", "ToolEffect"]

_INTERRUPTED = "outcome unknown: the call was interrupted while it ran"
_NO_RESULT = "the tool gave no result"
_UNBEGUN = "it was never begun: its request could not be synced"

_END_SECONDS_MAX = 5.0
"""A cancelled caller is not held up longer by a disk that hangs."""


class ToolEffect(enum.StrEnum):
    """What running a tool again could do. An unknown tool is `UNSAFE`."""

    NONE = "none"
    IDEMPOTENT = "idempotent"
    UNSAFE = "unsafe"


class RecordedCall:
    """Made by `Turn.tool_call`, used as `async with`. Tell how it ended with one of its methods; a body that
    raises has failed, one that is cancelled was aborted."""

    def __init__(
        self,
        turn: Turn,
        name: str,
        arguments: str | Mapping[str, Any],
        *,
        call_id: str,
        effect: ToolEffect,
        kind: str,
        key: str | None,
        attempt: int,
    ) -> None:
        self.turn = turn
        self.name = name
        self.arguments = arguments
        self.call_id = call_id
        self.effect = effect
        self._kind = kind
        self._key = key
        self._attempt = attempt
        self._end: list[RolloutItem] | None = None

    async def __aenter__(self) -> Self:
        thread = self.turn.thread
        request = tracks.tool_call(call_id=self.call_id, name=self.name, arguments=self.arguments)
        await thread.record(*request, self._state("started"))
        try:
            await thread.sync()
        except BaseException as error:
            self._note_unbegun(error)
            raise
        return self

    def _note_unbegun(self, error: BaseException) -> None:
        """The body won't run. Should the request reach the file after all, this says so."""
        try:
            self.turn.thread.record_nowait(self._state("aborted", error=_UNBEGUN))
        except RolloutError as failure:
            error.add_note(f"that the call {self.call_id} was never begun is not on record: {failure}")

    # How it ended

    def completed(self, output: Any) -> None:
        """It did what it should. `output`: text, or content parts, as the model gets it."""
        self._end = self._result("completed", output)

    def failed(self, error: str, output: Any = None) -> None:
        """It did not. `output`: what the model gets; by default the error's text."""
        self._end = self._result("failed", error if output is None else output, error=error)

    def declined(self, reason: str) -> None:
        """Somebody did not allow it: it was not run."""
        self._end = self._result("declined", reason, error=reason)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        interrupted = error is not None and not isinstance(error, Exception)
        try:
            async with asyncio.timeout(_END_SECONDS_MAX if interrupted else None):
                await self.turn.thread.record(self._end_of(error))
                await self.turn.thread.sync()
        except (RolloutError, TimeoutError) as failure:
            if error is None:
                raise
            # What happened in the body goes first: a cancelled task stays cancelled.
            error.add_note(f"the end of the call {self.call_id} is not on stable storage: {failure}")

    def _end_of(self, error: BaseException | None) -> list[RolloutItem]:
        if self._end is not None:
            return self._end
        if error is None:
            return self._result("completed", _NO_RESULT)
        if not isinstance(error, Exception):  # cancelled, or Ctrl-C: nobody knows how far it came
            return self._result("aborted", _INTERRUPTED, error=type(error).__name__)
        text = f"{type(error).__name__}: {error}"
        return self._result("failed", text, error=text)

    def _result(self, state: str, output: Any, *, error: str | None = None) -> list[RolloutItem]:
        return [
            *tracks.tool_result(
                call_id=self.call_id,
                name=self.name,
                arguments=self.arguments,
                output=output,
                error=error,
            ),
            self._state(state, error=error),
        ]

    def _state(self, state: str, *, error: str | None = None) -> CallItem:
        return CallItem(
            call_id=self.call_id,
            turn_id=self.turn.turn_id,
            state=state,
            kind=self._kind,
            name=self.name,
            attempt=self._attempt,
            effect=self.effect,
            key=self._key,
            args_sha256=_digest(self.arguments),
            error=error,
            at_ms=now_ms(),
        )


def _digest(arguments: str | Mapping[str, Any]) -> str:
    """Of the arguments as the model's request holds them."""
    request = tracks.tool_call(call_id="", name="", arguments=arguments)[0]
    text: str = request.arguments  # type: ignore[attr-defined]  # a function call
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
