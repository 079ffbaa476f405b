"""Tool verdicts: what became of a call, told from the records that speak of it.

Invariant: the answer is a table (`STATE_RULES`), and what it has no row for is uncertain. No row
lets an unsafe call that may have run go again; only a person's or policy's decision does
(FORMAT.md, Tool calls).
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

__all__ = [
    "DECISION_RULES",
    "DOUBTED_RULE",
    "KNOWN_VERDICTS",
    "REPLACED_RULE",
    "STATE_RULES",
    "Again",
    "CallRule",
    "Seen",
    "ToolVerdict",
    "rule_for",
]


class ToolVerdict(StrEnum):
    """What became of a tool call."""

    COMPLETED = "completed"
    FAILED = "failed"
    DECLINED = "declined"
    PENDING = "pending"
    """It was asked for and has not begun."""
    UNCERTAIN = "uncertain"
    """It may have run, and how it ended is not known."""


KNOWN_VERDICTS = (ToolVerdict.COMPLETED, ToolVerdict.FAILED, ToolVerdict.DECLINED)
"""Those of calls whose end is known."""


class Seen(StrEnum):
    """What Codex's own records tell of a call."""

    REQUEST = "request"
    """Nothing, or that it was asked for."""
    BEGUN = "begun"
    """That it began."""
    COMPLETED = "completed"
    """That it ended; an output says no more than that."""
    FAILED = "failed"
    DECLINED = "declined"
    ABORTED = "aborted"
    """That it was cut short: what it had done by then is not known."""


class Again(StrEnum):
    """Whether a call may run (again)."""

    NEVER = "never"
    IF_SAFE = "if_safe"
    """Only without a side effect, or with an idempotent one."""
    DECIDED = "decided"
    """Somebody decided that it may, as a further attempt."""


class CallRule(NamedTuple):
    """What follows from the last own state of a call and from what Codex's records tell of it."""

    verdict: ToolVerdict
    again: Again
    blocks: bool
    """Whether it stops an automatic resume if the call is unsafe."""
    reason: str


def _known(verdict: ToolVerdict, reason: str) -> CallRule:
    return CallRule(verdict, Again.NEVER, False, reason)


def _uncertain(reason: str) -> CallRule:
    return CallRule(ToolVerdict.UNCERTAIN, Again.IF_SAFE, True, reason)


def _pending(reason: str) -> CallRule:
    return CallRule(ToolVerdict.PENDING, Again.IF_SAFE, False, reason)


_ENDS = {
    Seen.COMPLETED: _known(ToolVerdict.COMPLETED, "its result is recorded"),
    Seen.FAILED: _known(ToolVerdict.FAILED, "its failure is recorded"),
    Seen.DECLINED: _known(ToolVerdict.DECLINED, "it was declined"),
    Seen.ABORTED: _uncertain("it was cut short while it ran"),
}
_INTENDED_ENDS = {**_ENDS, Seen.BEGUN: _uncertain("it began and has no result")}

_SUPERSEDED = CallRule(
    ToolVerdict.UNCERTAIN, Again.NEVER, True, "a later attempt was to replace it and is nowhere recorded"
)
REPLACED_RULE = CallRule(ToolVerdict.UNCERTAIN, Again.NEVER, False, "a later attempt replaced it")
"""Once the later attempt with the same key is recorded: now that one is what counts."""

DOUBTED_RULE = _uncertain("it may have begun in a range that can't be read")
"""In the place of one that says pending, where records may be missing behind it."""

_NO_OWN = "it was asked for and has no result; it may have run"
_STARTED = "it started and has no result"

STATE_RULES: dict[tuple[str | None, Seen], CallRule] = {
    (None, Seen.REQUEST): _uncertain(_NO_OWN),
    (None, Seen.BEGUN): _uncertain("it began and has no result"),
    **{(None, seen): rule for seen, rule in _ENDS.items()},
    ("intended", Seen.REQUEST): _pending("it was recorded as not yet run"),
    **{("intended", seen): rule for seen, rule in _INTENDED_ENDS.items()},
    ("started", Seen.REQUEST): _uncertain(_STARTED),
    ("started", Seen.BEGUN): _uncertain(_STARTED),
    **{("started", seen): rule for seen, rule in _ENDS.items()},
    **{("completed", seen): _known(ToolVerdict.COMPLETED, "it completed") for seen in Seen},
    **{("failed", seen): _known(ToolVerdict.FAILED, "it failed") for seen in Seen},
    **{("declined", seen): _known(ToolVerdict.DECLINED, "it was declined") for seen in Seen},
    **{("aborted", seen): _uncertain("it was cut short while it ran") for seen in Seen},
    **{("unknown", seen): _uncertain("a recovery found it open") for seen in Seen},
    **{("superseded", seen): _SUPERSEDED for seen in Seen},
}
"""By the state of the last `x_call` (None: there is none) and what Codex's records tell."""

DECISION_RULES: dict[str | None, CallRule] = {
    "happened": _known(ToolVerdict.COMPLETED, "it was decided that it happened"),
    "not_happened": _known(ToolVerdict.FAILED, "it was decided that it did not happen"),
    "retry": CallRule(ToolVerdict.PENDING, Again.DECIDED, False, "it was decided to try again"),
}
"""By the outcome of an `x_call` that is `resolved`: the decision stands until a further attempt."""

_STRANGE = _uncertain("its records say something that is not known here")


def rule_for(state: str | None, seen: Seen, outcome: str | None = None) -> CallRule:
    """The rule for a call whose last `x_call` has this state (and outcome, if it is `resolved`)."""
    if state == "resolved":
        return DECISION_RULES.get(outcome, _STRANGE)
    return STATE_RULES.get((state, seen), _STRANGE)
