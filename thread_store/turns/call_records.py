"""One tool call: what to record of it, and when. Decided here without waiting, for handles of either kind.

Invariant: a call goes made → intended → started → ended and never back (`_MOVES`); its body may run only
behind `started`, and only if the approval that was asked for it was given. What ends it is told by
the body, else by what the body raised; a call of which nobody knows how far it came is `aborted`,
one whose body never ran is `declined`. A move counts once its records were accepted.
"""

from __future__ import annotations

import enum
import hashlib
from typing import TYPE_CHECKING, Any, Self

from protocol.call_state import ToolCall
from protocol.errors import CallRefused
from protocol.items import RolloutItem
from protocol.own import CallItem
from protocol.timestamps import now_ms
from protocol.tool_safety import Effect
from thread_store.turns.call_tracks import CallEnd, CallSpec, arguments_text, end_records, request_records

if TYPE_CHECKING:
    from collections.abc import Mapping

    from thread_store.turns.approval_records import ApprovalRecords

__all__ = ["CallPhase", "CallRecords", "args_sha256"]

_INTERRUPTED = "outcome unknown: the call was interrupted while it ran"
_NO_RESULT = "the tool gave no result"
_NEVER_BEGUN = "not run: its request could not be put on stable storage"


class CallPhase(enum.StrEnum):
    """How far a call got in this process."""

    MADE = "made"
    """Nothing is recorded yet."""
    INTENDED = "intended"
    """Its request is, and that it has not begun."""
    STARTED = "started"
    ENDED = "ended"


_MOVES = {
    CallPhase.INTENDED: (CallPhase.MADE,),
    CallPhase.STARTED: (CallPhase.MADE, CallPhase.INTENDED),
    CallPhase.ENDED: (CallPhase.INTENDED, CallPhase.STARTED),
}
"""What each phase may follow."""


class CallRecords:
    """A call in the hands of whoever runs the tool. Tell how it ended with one of its methods."""

    def __init__(self, spec: CallSpec, *, replaces: ToolCall | None = None) -> None:
        self.spec = spec
        self.phase = CallPhase.MADE
        self.approval: ApprovalRecords | None = None
        """What was asked last whether it may run."""
        self._replaces = replaces
        self._end: CallEnd | None = None

    @property
    def call_id(self) -> str:
        """The model's id of the call."""
        return self.spec.call_id

    @property
    def effect(self) -> Effect:
        """What running it again could do; unsafe if nobody said anything else."""
        return self.spec.effect or Effect.UNSAFE

    # How it ended, as the body tells it

    def completed(
        self,
        output: Any,
        *,
        exit_code: int | None = None,
        changes: Mapping[str, Any] | None = None,
        result: Mapping[str, Any] | None = None,
        seconds: float | None = None,
    ) -> None:
        """It did what it should.

        Args:
            output: text, or content parts, as the model gets it.
            exit_code: of a command.
            changes: of a patch, by path; see `tracks.patch_result`.
            result: the whole answer of an MCP server.
            seconds: how long it took.
        """
        self._end = CallEnd(
            state="completed",
            output=output,
            exit_code=exit_code,
            changes=changes or {},
            result=result,
            seconds=seconds,
        )

    def failed(
        self,
        error: str,
        output: Any = None,
        *,
        exit_code: int | None = None,
        changes: Mapping[str, Any] | None = None,
        seconds: float | None = None,
    ) -> None:
        """It did not. `output`: what the model gets; by default the error's text. The rest as `completed`."""
        self._end = CallEnd(
            state="failed",
            output=error if output is None else output,
            error=error,
            exit_code=exit_code,
            changes=changes or {},
            seconds=seconds,
        )

    def declined(self, reason: str) -> None:
        """It was not run, because somebody did not allow it."""
        self._end = CallEnd(state="declined", output=reason, error=reason)

    # What to record. What is known of a call comes before its request: a reader that stops between the two
    # doesn't take it for one of which nothing is known.

    def intend(self) -> list[RolloutItem]:
        """The request, and that it has not begun: a resume finds the call pending."""
        self._require(CallPhase.INTENDED)
        request, _ = request_records(self.spec)
        return [self._own("intended"), *request]

    def start(self) -> list[RolloutItem]:
        """What must be on stable storage before the body runs.

        Raises:
            CallRefused: it has begun before, or what was asked for it was not approved.
        """
        self._require(CallPhase.STARTED)
        if self.approval is not None and not self.approval.is_approved:
            raise CallRefused(self.call_id, f"its approval is {self.approval.state}")
        request, shown = request_records(self.spec)
        asked = [] if self.phase is CallPhase.INTENDED else request
        return [self._own("started"), *asked, *shown, *self._superseded()]

    def _superseded(self) -> list[RolloutItem]:
        """The attempt before gives way, behind the start of this one."""
        old = self._replaces
        if old is None:
            return []
        return [
            CallItem(
                call_id=old.call_id,
                turn_id=old.turn_id,
                state="superseded",
                attempt=old.attempt,
                key=self.spec.key,
                at_ms=now_ms(),
            )
        ]

    def end(self, error: BaseException | None = None) -> list[RolloutItem]:
        """How it ended, where the body raised `error`."""
        return self._ended(self._end or self._end_of(error))

    @staticmethod
    def _end_of(error: BaseException | None) -> CallEnd:
        if error is None:
            return CallEnd(state="completed", output=_NO_RESULT)
        if not isinstance(error, Exception):  # cancelled, or Ctrl-C: nobody knows how far it came
            return CallEnd(state="aborted", output=_INTERRUPTED, error=type(error).__name__)
        text = f"{type(error).__name__}: {error}"
        return CallEnd(state="failed", output=text, error=text)

    def decline(self, reason: str) -> list[RolloutItem]:
        """That its body never ran, and why."""
        return self._ended(CallEnd(state="declined", output=reason, error=reason))

    def never_begun(self, error: BaseException) -> list[RolloutItem]:
        """That its body won't run, because `error` came before it. Should the request reach the file after
        all, these records follow it."""
        if isinstance(error, Exception):
            return self.decline(f"{_NEVER_BEGUN} ({error})")
        return self.decline(f"not run: interrupted before it began ({type(error).__name__})")

    def _ended(self, end: CallEnd) -> list[RolloutItem]:
        self._require(CallPhase.ENDED)
        own = self._own(end.state, error=end.error)
        shown = end_records(self.spec, end)
        # A file may end between any two lines: what Codex's records have no word for comes first, or they
        # would tell of an end (or of a failure) that there was not.
        return [own, *shown] if end.state in ("aborted", "declined") else [*shown, own]

    # Where it stands

    def note(self, phase: CallPhase) -> Self:
        """The records of a move were accepted."""
        self._require(phase)
        self.phase = phase
        return self

    def note_approval(self, asked: ApprovalRecords) -> None:
        """It is asked whether it may run: it waits for the answer."""
        self.approval = asked

    def _require(self, phase: CallPhase) -> None:
        if self.phase not in _MOVES[phase]:
            raise CallRefused(self.call_id, f"it can't become {phase}: it is {self.phase}")

    def _own(self, state: str, *, error: str | None = None) -> CallItem:
        spec = self.spec
        return CallItem(
            call_id=spec.call_id,
            turn_id=spec.turn_id,
            state=state,
            kind=spec.kind,
            name=spec.name,
            attempt=spec.attempt,
            effect=spec.effect,
            key=spec.key,
            args_sha256=args_sha256(spec.arguments),
            approval_id=None if self.approval is None else self.approval.approval_id,
            error=error,
            at_ms=now_ms(),
        )


def args_sha256(arguments: str | Mapping[str, Any]) -> str:
    """Of the arguments as the model's request holds them."""
    return hashlib.sha256(arguments_text(arguments).encode("utf-8", "surrogatepass")).hexdigest()
