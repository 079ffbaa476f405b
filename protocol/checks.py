"""Checks: which verifications were begun, how they ended, and which no longer say anything.

Invariant: a check that passed is stale as soon as a later call may have changed something, and one
that was begun and not ended stays unfinished, whatever happens (it forbids an automatic resume).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, to_builtins

from protocol.call_facts import text_of
from protocol.decoding import convert_plain
from protocol.plain_values import clipped
from protocol.tool_calls import CallChange
from protocol.tool_safety import Effect
from protocol.tool_verdicts import ToolVerdict

__all__ = ["CHECKS_MAX", "Check", "CheckFold"]

CHECKS_MAX = 64
"""The newest so many are kept; those that ended are let go first."""

_ENDED = ("passed", "failed", "skipped", "stale")


class Check(Struct, omit_defaults=True, kw_only=True):
    """A verification (tests run, a claim looked into) and its result."""

    check_id: str
    turn_id: str | None = None
    call_ids: list[str] = []
    state: str
    """started, passed, failed, skipped or stale."""
    what: str | None = None
    evidence: str | None = None
    first_ordinal: int | None = None
    """The greatest ordinal when it was first met: own records have none."""
    ordinal: int | None = None
    offset: int | None = None

    @property
    def is_unfinished(self) -> bool:
        """Whether its end is not known."""
        return self.state not in _ENDED


class CheckFold:
    """The checks of a thread, record by record."""

    def __init__(self) -> None:
        self._checks: dict[str, Check] = {}

    @property
    def checks(self) -> list[Check]:
        """All that are kept, those that were heard of last at the end."""
        return list(self._checks.values())

    @property
    def unfinished(self) -> list[Check]:
        """Checks that were begun and not ended."""
        return [each for each in self._checks.values() if each.is_unfinished]

    def take(
        self, payload: Mapping[str, Any], *, ordinal: int | None, offset: int | None
    ) -> tuple[Check | None, bool]:
        """Take an `x_check` after the record `ordinal`; return it (None: it can't be read), and whether
        an unfinished one had to be let go for it."""
        check_id, state = text_of(payload.get("check_id")), text_of(payload.get("state"))
        if check_id is None or state is None:
            return None, True
        before = self._checks.pop(check_id, None)
        check = Check(
            check_id=check_id,
            turn_id=text_of(payload.get("turn_id")) or (before.turn_id if before else None),
            call_ids=_texts(payload.get("call_ids")) or (before.call_ids if before else []),
            state=state,
            what=clipped(payload.get("what")) or (before.what if before else None),
            evidence=clipped(payload.get("evidence")),
            first_ordinal=before.first_ordinal if before else ordinal,
            ordinal=ordinal,
            offset=offset,
        )
        self._checks[check_id] = check
        return check, self._let_go()

    def _let_go(self) -> bool:
        if len(self._checks) <= CHECKS_MAX:
            return False
        ended = (key for key, each in self._checks.items() if not each.is_unfinished)
        oldest = next(ended, next(iter(self._checks)))
        return self._checks.pop(oldest).is_unfinished

    def note_call(self, change: CallChange, *, own: bool) -> list[Check]:
        """A call went on: return the checks that passed before and say nothing any more.

        `own`: it was an own record, so that a pending call is known not to have begun.
        """
        if change.effect is Effect.NONE or change.verdict is ToolVerdict.DECLINED:
            return []
        if change.verdict is ToolVerdict.PENDING and (own or change.is_intended):
            return []
        stale = [
            each
            for each in self._checks.values()
            if each.state == "passed" and change.call_id not in each.call_ids
        ]
        for each in stale:
            each.state = "stale"
        return stale

    def to_plain(self) -> list[Any]:
        """As plain values, fit for JSON."""
        plain: list[Any] = to_builtins(list(self._checks.values()))
        return plain

    @classmethod
    def from_plain(cls, plain: Any) -> CheckFold:
        """From what `to_plain` gave. Raises `msgspec.ValidationError` if it doesn't fit."""
        fold = cls()
        fold._checks = {each.check_id: each for each in convert_plain(plain, list[Check])}
        return fold


def _texts(value: Any) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
