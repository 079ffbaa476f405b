"""Call state: one tool call as the fold keeps it, and as others see it.

Invariant: the state holds what records said, never a verdict; that is drawn from the table when it
is asked for. A record can take the call forward or begin it anew; what is behind it says nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from protocol.call_facts import CallFact, Said, count_of, text_of
from protocol.plain_values import clipped
from protocol.tool_safety import Effect, worse_effect
from protocol.tool_verdicts import KNOWN_VERDICTS, REPLACED_RULE, Again, CallRule, Seen, ToolVerdict, rule_for

__all__ = ["ARGUMENTS_CHARS_MAX", "CallChange", "CallState", "Decision", "ToolCall"]

ARGUMENTS_CHARS_MAX = 4096
"""Longer arguments are cut in the fold; the whole ones stand at the offset of the request."""


class Decision(Struct, frozen=True, omit_defaults=True):
    """What somebody decided of an uncertain call. `outcome`: happened, not_happened or retry."""

    outcome: str | None = None
    by: str | None = None
    note: str | None = None
    at_ms: int | None = None


class ToolCall(Struct, frozen=True, kw_only=True):
    """A tool call and what became of it. Ordinals and offsets (bytes) are None where not known."""

    turn_id: str | None
    call_id: str
    kind: str | None
    """shell, patch, mcp, custom, web or agent."""
    name: str | None
    namespace: str | None
    arguments: str | None
    """As the model wrote them, at most `ARGUMENTS_CHARS_MAX` characters. None once the call ended."""
    arguments_cut: bool
    effect: Effect
    effect_declared: bool
    """Whether a record declared the effect; else it is the registry's."""
    attempt: int
    key: str | None
    """Idempotency key: the same for each attempt of one intent."""
    args_sha256: str | None
    approval_id: str | None
    own: str | None
    """The state of its last `x_call`; None: there is none."""
    replaced: bool
    """Whether a later attempt with the same key took its place."""
    verdict: ToolVerdict
    reason: str
    """Why, for people."""
    error: str | None
    may_run_again: bool
    blocks_resume: bool
    decision: Decision | None
    has_output: bool
    """Whether the model's track holds an output for it."""
    epoch: int | None
    request_ordinal: int | None
    request_offset: int | None
    last_ordinal: int | None
    last_offset: int | None

    @property
    def result_known(self) -> bool:
        """Whether it is known how it ended."""
        return self.verdict in KNOWN_VERDICTS

    @property
    def is_open(self) -> bool:
        """Whether its end is not known, and no later attempt took its place."""
        return not self.result_known and not self.replaced

    @property
    def output_missing(self) -> bool:
        """Whether a recovery must write the output: its end is known and the model was not told."""
        return self.result_known and not self.has_output


_RUNS = ("intended", "started")
_NO_RUN = ("intended", "declined", "failed")
_NOT_BEGUN = (ToolVerdict.PENDING, ToolVerdict.DECLINED)
_GIVING_WAY = ("resolved", "superseded")
_OWN_ENDS = ("completed", "failed", "declined")
_SEEN_ENDS = (Seen.COMPLETED, Seen.FAILED, Seen.DECLINED, Seen.ABORTED)
_EPOCH_ENDS = {
    "closed": "; its writer closed the rollout since",
    "lost": "; its writer ended without closing the rollout",
}
_EFFECTS = {effect.value: effect for effect in Effect}


class CallState(Struct, omit_defaults=True, kw_only=True):
    """A call as the fold keeps it, and as it stands in a snapshot."""

    call_id: str
    turn_id: str | None = None
    kind: str | None = None
    name: str | None = None
    namespace: str | None = None
    arguments: str | None = None
    arguments_cut: bool = False
    effect: Effect | None = None
    """As `x_call` declared it; None: the registry decides."""
    attempt: int = 1
    key: str | None = None
    args_sha256: str | None = None
    approval_id: str | None = None
    approval: str | None = None
    own: str | None = None
    """The state of the last `x_call`."""
    replaced: bool = False
    """Whether a later attempt with the same key took its place."""
    decision: Decision | None = None
    seen: Seen = Seen.REQUEST
    requested: bool = False
    has_output: bool = False
    error: str | None = None
    epoch: int | None = None
    epoch_end: str | None = None
    """closed or lost: how the epoch ended in which the call was last heard of."""
    request_ordinal: int | None = None
    request_offset: int | None = None
    last_ordinal: int | None = None
    last_offset: int | None = None

    @property
    def place(self) -> tuple[str, str]:
        return self.turn_id or "", self.call_id

    @property
    def rule(self) -> CallRule:
        if self.replaced:
            return REPLACED_RULE
        own = "declined" if self.own == "intended" and self.approval == "declined" else self.own
        return rule_for(own, self.seen, self.decision.outcome if self.decision else None)

    @property
    def is_open(self) -> bool:
        return not self.replaced and self.rule.verdict in (ToolVerdict.PENDING, ToolVerdict.UNCERTAIN)

    def begin_anew(self) -> None:
        """A further run: what is known of the one before says nothing of it."""
        self.seen, self.has_output, self.error, self.replaced = Seen.REQUEST, False, None, False
        self.decision = self.approval = self.approval_id = self.own = None

    def gives_way_to(self, later: CallState) -> bool:
        """Whether that attempt takes the place of this one: somebody decided on it, or this one is
        superseded and that one has begun. One that is pending or was declined takes no doubt away."""
        if later.key != self.key or later.attempt <= self.attempt or self.own not in _GIVING_WAY:
            return False
        decided = self.decision is not None and self.decision.outcome == "retry"
        return decided or (self.own == "superseded" and later.rule.verdict not in _NOT_BEGUN)

    def view(self, registered: Effect) -> ToolCall:
        """The call with its verdict; `registered` is the effect if no record declared one."""
        rule = self.rule
        effect = self.effect or registered
        safe = effect is not Effect.UNSAFE
        note = _EPOCH_ENDS.get(self.epoch_end or "", "") if rule.verdict is ToolVerdict.UNCERTAIN else ""
        return ToolCall(
            **{name: getattr(self, name) for name in _SHARED_FIELDS},
            effect=effect,
            effect_declared=self.effect is not None,
            verdict=rule.verdict,
            reason=rule.reason + note,
            may_run_again=rule.again is Again.DECIDED or (rule.again is Again.IF_SAFE and safe),
            blocks_resume=rule.blocks and not safe,
        )

    def apply_fact(self, fact: CallFact) -> None:
        """Take what a record of Codex's types says."""
        self.kind = self.kind or fact.kind
        self.name = self.name or fact.name
        self.namespace = self.namespace or fact.namespace
        if self.arguments is None and fact.arguments is not None:
            self.arguments = fact.arguments[:ARGUMENTS_CHARS_MAX]
            self.arguments_cut = len(fact.arguments) > ARGUMENTS_CHARS_MAX
        if fact.said is Said.OUTPUT:
            self.has_output = True
            if self.seen not in _SEEN_ENDS:
                self.seen = fact.seen
        elif fact.seen in _SEEN_ENDS:
            self.seen, self.error = fact.seen, clipped(fact.error) or self.error
        elif fact.seen is Seen.BEGUN and self.seen is Seen.REQUEST:
            self.seen = Seen.BEGUN

    def advance(self, state: str, attempt: int) -> bool:
        """Make ready for a further own state; False if that state says nothing any more."""
        if attempt > self.attempt:
            if state in _NO_RUN and self.rule.verdict is ToolVerdict.UNCERTAIN:
                return False  # that attempt never began, so the doubt about this one stays
            self.begin_anew()
            self.attempt = attempt
        if attempt != self.attempt:
            return False
        if self.own == "resolved":
            if state in _RUNS:
                self.begin_anew()
            return state in (*_RUNS, "resolved", "superseded")  # the decision stands
        if state == "intended":
            return self.own in (None, "intended")  # it is behind that already
        if state == "started" and (self.own in _OWN_ENDS or self.seen in _SEEN_ENDS):
            self.begin_anew()
        return True

    def apply_own(self, payload: Mapping[str, Any], state: str) -> None:
        """Take what an `x_call` says."""
        self.own = state
        for name in ("kind", "name", "key", "args_sha256", "approval_id"):
            setattr(self, name, text_of(payload.get(name)) or getattr(self, name))
        self.error = clipped(payload.get("error")) or self.error
        if payload.get("effect") is not None:
            told = _EFFECTS.get(text_of(payload["effect"]) or "", Effect.UNSAFE)
            self.effect = told if self.effect is None else worse_effect(told, self.effect)
        if state == "resolved":
            self.decision = _decision(payload)


class CallChange:
    """What one record changed of a call. Good until the next record is taken: `call` is drawn when it
    is asked for."""

    __slots__ = ("_registered", "_state", "before", "is_decided", "verdict")

    def __init__(
        self, state: CallState, registered: Effect, *, before: ToolVerdict | None, is_decided: bool
    ) -> None:
        self._state = state
        self._registered = registered
        self.before = before
        """The verdict before; None: the call is new."""
        self.is_decided = is_decided
        """Whether the record is somebody's decision."""
        self.verdict = state.rule.verdict

    @property
    def call(self) -> ToolCall:
        """The call as it is now."""
        return self._state.view(self._registered)

    @property
    def call_id(self) -> str:
        """The id of the call."""
        return self._state.call_id

    @property
    def effect(self) -> Effect:
        """What the call does, declared or registered."""
        return self._state.effect or self._registered

    @property
    def has_output(self) -> bool:
        """Whether the model's track holds an output for it."""
        return self._state.has_output

    @property
    def has_ended(self) -> bool:
        """Whether its end is known now and was not before, or turns out to be no good one."""
        if self.before in KNOWN_VERDICTS and self.verdict is ToolVerdict.COMPLETED:
            return False
        return self.verdict in KNOWN_VERDICTS and self.verdict is not self.before


def _decision(payload: Mapping[str, Any]) -> Decision:
    return Decision(
        outcome=text_of(payload.get("outcome")),
        by=text_of(payload.get("by")),
        note=clipped(payload.get("note")),
        at_ms=count_of(payload.get("at_ms")),
    )


_SHARED_FIELDS = tuple(
    name for name in ToolCall.__struct_fields__ if name in CallState.__struct_fields__ and name != "effect"
)
