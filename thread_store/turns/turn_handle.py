"""What a turn with awaits and a turn with blocking waits have in common: all that doesn't wait.

Invariant: both record the same; what that is stands in `thread_store.turns.turn_records`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from protocol import tracks
from protocol.events import PlanStep
from protocol.items import RolloutItem
from thread_store.turns.turn_records import TurnRecords

if TYPE_CHECKING:
    from protocol.context import TurnContext
    from protocol.meta import SessionMeta
    from protocol.tool_safety import ToolSafety
    from rollout.recorder import RecorderHandle

__all__ = ["TurnHandle"]


class TurnHandle:
    """A turn of an open thread."""

    def __init__(
        self,
        recorder: RecorderHandle,
        turn_id: str,
        context: TurnContext | None,
        *,
        meta: SessionMeta,
        safety: ToolSafety,
    ) -> None:
        self.turn_id = turn_id
        self._recorder = recorder
        self._records = TurnRecords(turn_id, cwd=meta.cwd, context=context, safety=safety)

    def user_message(self, text: str, *, images: Sequence[str] = ()) -> None:
        """What the user said, on both tracks. Raises as `record_nowait`."""
        self._recorder.record_nowait(tracks.user_message(text, images=images))

    def agent_message(self, text: str, *, phase: str | None = None) -> None:
        """What the agent said, on both tracks. `phase`: commentary, partial_answer or final_answer."""
        self._recorder.record_nowait(tracks.agent_message(text, phase=phase))
        self._records.last_agent_message = text

    def agent_reasoning(self, summary: str | Sequence[str]) -> None:
        """What the agent thought, as the texts of its summary, on both tracks."""
        self._recorder.record_nowait(tracks.agent_reasoning(summary))

    def plan(
        self,
        steps: Sequence[PlanStep | Mapping[str, str] | tuple[str, str]],
        *,
        explanation: str | None = None,
    ) -> None:
        """The plan as it stands, for the display and the session memory. The model's own call of its tool for
        plans is recorded as any other call. `steps`: (text, pending | in_progress | completed)."""
        self._recorder.record_nowait(self._records.plan(steps, explanation))

    def error(self, message: str) -> None:
        """Something went wrong that is no call's failure: shown to a person, kept in the session memory."""
        self._recorder.record_nowait(RolloutItem.raw("event_msg", {"type": "error", "message": message}))
