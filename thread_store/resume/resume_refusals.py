"""Refusals: what stands against going on with a thread automatically.

Invariant: each reason is a member of `RefusalReason` with a row in `REFUSAL_RULES`, and `bytes_refusals` is a
pure function of what was folded. What depends on the surroundings (a live writer, the workspace, git) is
found elsewhere (`thread_store.resume.resume_surroundings`). Nothing is waived unless it is named, and what
makes appending impossible can't be waived at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from msgspec import Struct

from protocol.checks import Check
from protocol.damage import Damage
from protocol.errors import ResumeRefused
from protocol.session_memory import SessionMemory
from protocol.tool_calls import ToolCall

__all__ = [
    "REFUSAL_RULES",
    "TERMINAL_STATES",
    "Refusal",
    "RefusalReason",
    "RefusalRule",
    "bytes_refusals",
    "refuse",
    "split_allowed",
]

TERMINAL_STATES = frozenset(
    {"aborted", "canceled", "cancelled", "completed", "done", "failed", "finished", "terminated"}
)
"""Where an `x_state` goes `to` when a thread has ended for good. A newer one takes it back."""

BASE_DAMAGE = "base_"
"""How the reasons of damage begin that stands for files which the thread rests on."""


class RefusalReason(StrEnum):
    """Why a thread isn't resumed automatically."""

    LIVE_WRITER = "live_writer"
    """Somebody writes it now."""
    ARCHIVED = "archived"
    """It was put aside."""
    TERMINAL_STATE = "terminal_state"
    """It says that it ended for good."""
    UNCERTAIN_CALL = "uncertain_call"
    """A call may have had a side effect, and nobody knows."""
    DAMAGED_RANGE = "damaged_range"
    """A range can't be read that may have hidden such a call."""
    BASE_MISSING = "base_missing"
    """The files that it rests on can't be read."""
    UNEXAMINED_RANGE = "unexamined_range"
    """What is older was not looked at."""
    UNFINISHED_CHECK = "unfinished_check"
    """A verification was begun and not ended."""
    HEAD_DIFFERS = "head_differs"
    """The workspace stands at another commit than was recorded."""
    WORKSPACE_MISSING = "workspace_missing"
    WORKSPACE_IS_SYMLINK = "workspace_is_symlink"


class RefusalRule(NamedTuple):
    """`waivable`: a caller may name the reason and go on all the same. `hint`: what to do; `{thread}`,
    `{call}` and `{path}` are filled in."""

    waivable: bool
    hint: str


REFUSAL_RULES: dict[RefusalReason, RefusalRule] = {
    RefusalReason.LIVE_WRITER: RefusalRule(False, "Wait until its writer has stopped, or fork the thread"),
    RefusalReason.ARCHIVED: RefusalRule(False, "Take it out first: rollout unarchive {thread}"),
    RefusalReason.TERMINAL_STATE: RefusalRule(True, "Fork it to go on from its end: rollout fork {thread}"),
    RefusalReason.UNCERTAIN_CALL: RefusalRule(
        True,
        "Find out, then record it: rollout tools {thread} --resolve {call} happened|not_happened|retry",
    ),
    RefusalReason.DAMAGED_RANGE: RefusalRule(True, "Look at what is damaged: rollout check {path}"),
    RefusalReason.BASE_MISSING: RefusalRule(True, "Put the file back that it rests on, or go on without it"),
    RefusalReason.UNEXAMINED_RANGE: RefusalRule(True, "Read everything: rollout resume {thread} --deep"),
    RefusalReason.UNFINISHED_CHECK: RefusalRule(True, "Run the check again and record how it ended"),
    RefusalReason.HEAD_DIFFERS: RefusalRule(True, "Look at what changed, or check out the recorded commit"),
    RefusalReason.WORKSPACE_MISSING: RefusalRule(True, "Put the folder back"),
    RefusalReason.WORKSPACE_IS_SYMLINK: RefusalRule(True, "Put the real folder back"),
}


class Refusal(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that stands against an automatic resume. `details`: what it is about, by field."""

    reason: RefusalReason
    message: str
    hint: str = ""
    details: dict[str, Any] = {}

    @classmethod
    def make(
        cls,
        reason: RefusalReason,
        message: str,
        *,
        thread: str | None = None,
        path: str = "",
        **details: Any,
    ) -> Refusal:
        """With the hint of its rule, filled in."""
        told = {"thread": thread or "", "path": path, "call": details.get("call_id", "")}
        kept = {name: value for name, value in details.items() if value is not None}
        return cls(
            reason=reason, message=message, hint=REFUSAL_RULES[reason].hint.format(**told), details=kept
        )

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}"


def bytes_refusals(
    *,
    thread_id: str | None,
    path: str,
    calls: Iterable[ToolCall],
    checks: Iterable[Check],
    damage: Iterable[Damage],
    memory: SessionMemory,
    unexamined_before: int | None,
) -> list[Refusal]:
    """What the bytes of a thread say against it. `unexamined_before`: the offset before which nothing was
    looked at; None if everything was."""
    found = [_terminal(memory.state, thread_id)] if memory.state in TERMINAL_STATES else []
    found += [_uncertain(each, thread_id) for each in calls if each.blocks_resume]
    found += [_damaged(each, thread_id, path) for each in damage if each.hides_calls and not each.accepted]
    if unexamined_before is not None:
        message = f"what stands before byte {unexamined_before:,} was not looked at"
        found.append(
            Refusal.make(RefusalReason.UNEXAMINED_RANGE, message, thread=thread_id, before=unexamined_before)
        )
    return found + [_unfinished(each, thread_id) for each in checks if each.is_unfinished]


def _terminal(state: str | None, thread_id: str | None) -> Refusal:
    message = f"the thread ended: its last recorded state is {state}"
    return Refusal.make(RefusalReason.TERMINAL_STATE, message, thread=thread_id, state=state)


def _uncertain(call: ToolCall, thread_id: str | None) -> Refusal:
    named = call.name or call.kind or "a call"
    return Refusal.make(
        RefusalReason.UNCERTAIN_CALL,
        f"{named} ({call.call_id}) may have had a side effect: {call.reason}",
        thread=thread_id,
        call_id=call.call_id,
        turn_id=call.turn_id,
        name=call.name,
        attempt=call.attempt,
        offset=call.request_offset,
    )


def _damaged(damage: Damage, thread_id: str | None, path: str) -> Refusal:
    is_base = damage.reason.startswith(BASE_DAMAGE)
    where = "" if damage.offset is None else f" at byte {damage.offset:,}"
    many = f" ({damage.count} ranges)" if damage.count > 1 else ""
    message = (
        "the files that the thread rests on can't be read"
        if is_base
        else f"a range that may have hidden a tool call can't be relied on: {damage.reason}{where}{many}"
    )
    return Refusal.make(
        RefusalReason.BASE_MISSING if is_base else RefusalReason.DAMAGED_RANGE,
        message,
        thread=thread_id,
        path=path,
        damage=damage.reason,
        offset=damage.offset,
        end=damage.end,
        detail=damage.detail or None,
        count=damage.count,
    )


def _unfinished(check: Check, thread_id: str | None) -> Refusal:
    message = f"the check {check.what or check.check_id!r} was begun and has no result"
    return Refusal.make(
        RefusalReason.UNFINISHED_CHECK, message, thread=thread_id, check_id=check.check_id, what=check.what
    )


def split_allowed(
    refusals: Sequence[Refusal], allow: Iterable[str]
) -> tuple[tuple[Refusal, ...], tuple[Refusal, ...]]:
    """Those that stand, and those that are waived because their reason is named.

    Raises:
        ValueError: a name is no reason, or one that can't be waived.
    """
    allowed = {RefusalReason(each) for each in allow}
    for each in allowed:
        if not REFUSAL_RULES[each].waivable:
            raise ValueError(f"{each} can't be allowed: {REFUSAL_RULES[each].hint}")
    standing = tuple(each for each in refusals if each.reason not in allowed)
    waived = tuple(each for each in refusals if each.reason in allowed)
    return standing, waived


def refuse(
    refusals: Sequence[Refusal], *, thread_id: str | None = None, path: str | None = None
) -> ResumeRefused:
    """The error that tells of them."""
    reasons = list(dict.fromkeys(each.reason.value for each in refusals))
    return ResumeRefused(reasons, refusals=refusals, thread_id=thread_id, path=path)
