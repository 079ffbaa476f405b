"""Records of the model track that are no items of it: checkpoints, settings, usage.

Invariant: keys are Codex's own (FORMAT.md, Records).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from msgspec import Raw, structs

from protocol.decoding import payload_decoder
from protocol.events import TokenUsage
from protocol.items import RolloutItem

__all__ = [
    "DECODERS",
    "Compacted",
    "InterAgentCommunication",
    "TokenUsageRecord",
    "TurnContext",
    "WorldState",
]


class Compacted(RolloutItem, kw_only=True):
    """A checkpoint: from here the model sees `replacement_history` instead of what came before.

    `replacement_history`: items of the model track, typed or as dicts.
    """

    record_type: ClassVar[str] = "compacted"

    message: str
    replacement_history: list[Any] | None = None
    replacement_history_metadata: list[Any] | None = None
    retained_context: Any = None
    window_number: int | None = None
    first_window_id: Any = None
    previous_window_id: Any = None
    window_id: Any = None
    compaction_response_id: str | None = None
    latest_token_usage_record: Any = None
    resume_metadata: Any = None


class TurnContext(RolloutItem, kw_only=True):
    """The settings of a turn. Nothing is claimed that isn't given.

    Codex passes over a record without an absolute `cwd`, `approval_policy`, `model`, and one of
    `sandbox_policy` and `permission_profile`.
    """

    record_type: ClassVar[str] = "turn_context"

    turn_id: str | None = None
    root_turn_id: str | None = None
    cwd: str | None = None
    approval_policy: Any = None
    """untrusted, on-failure, on-request, never, or {"granular": …}."""
    sandbox_policy: Any = None
    """{"type": danger-full-access, read-only, external-sandbox or workspace-write}."""
    permission_profile: Any = None
    model: str | None = None
    effort: str | None = None
    summary: str | None = None
    current_date: str | None = None
    timezone: str | None = None
    collaboration_mode: Any = None
    user_instructions: str | None = None
    developer_instructions: str | None = None
    truncation_policy: Any = None


class WorldState(RolloutItem, kw_only=True):
    """What the model was told of its surroundings; `full` is False for a merge patch."""

    record_type: ClassVar[str] = "world_state"

    full: bool
    state: dict[str, Any]


class TokenUsageRecord(RolloutItem, kw_only=True):
    """Tokens of one response of the model; thread and turn are filled in when it is recorded."""

    record_type: ClassVar[str] = "token_usage_record"
    needs_binding: ClassVar[bool] = True

    thread_id: str | None = None
    turn_id: str | None = None
    session_id: str | None = None
    root_turn_id: str | None = None
    response_id: str
    usage: TokenUsage
    turn_token_usage: TokenUsage | None = None
    thread_token_usage: TokenUsage | None = None

    def bound(self, thread_id: str, turn_id: str | None) -> TokenUsageRecord:
        """This item with its thread and turn filled in where they are unset."""
        return structs.replace(
            self,
            thread_id=self.thread_id or thread_id,
            session_id=self.session_id or thread_id,
            turn_id=self.turn_id or turn_id,
            root_turn_id=self.root_turn_id or turn_id,
        )


class InterAgentCommunication(RolloutItem, kw_only=True):
    """A message between agents; `trigger_turn` says whether it starts a turn."""

    record_type: ClassVar[str] = "inter_agent_communication"

    author: str
    recipient: str
    content: Any
    trigger_turn: bool
    other_recipients: list[Any] | None = None
    id: str | None = None


DECODERS: dict[str, Callable[[Raw | bytes], RolloutItem]] = {
    each.record_type: payload_decoder(each)
    for each in (Compacted, TurnContext, WorldState, TokenUsageRecord, InterAgentCommunication)
}
