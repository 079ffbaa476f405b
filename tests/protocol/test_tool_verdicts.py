"""Tool verdicts: the table itself."""

from __future__ import annotations

import pytest

from protocol.tool_verdicts import DECISION_RULES, STATE_RULES, Again, Seen, ToolVerdict, rule_for

STATES = [None, "intended", "started", "completed", "failed", "declined", "aborted", "unknown", "superseded"]


@pytest.mark.parametrize("state", STATES)
def test_table_has_a_row_for_every_state_and_evidence(state: str | None) -> None:
    """Nothing that can be recorded is left to chance."""
    assert {seen for own, seen in STATE_RULES if own == state} == set(Seen)


@pytest.mark.guarantee("G8")
def test_no_row_lets_an_unsafe_call_run_again() -> None:
    """Only a decision does; what has a known end never runs again."""
    for rule in STATE_RULES.values():
        assert rule.again is not Again.DECIDED
        if rule.verdict in (ToolVerdict.COMPLETED, ToolVerdict.FAILED, ToolVerdict.DECLINED):
            assert rule.again is Again.NEVER
            assert not rule.blocks
        assert rule.blocks == (rule.verdict is ToolVerdict.UNCERTAIN)


@pytest.mark.guarantee("G8")
@pytest.mark.parametrize("seen", Seen)
def test_state_that_is_unknown_here_is_uncertain(seen: Seen) -> None:
    """A later version may write states that this one doesn't know; `replaced` is no state of a record."""
    for state in ("paused", "replaced", "", "resolved"):
        rule = rule_for(state, seen)
        assert (rule.verdict, rule.again, rule.blocks) == (ToolVerdict.UNCERTAIN, Again.IF_SAFE, True)


def test_decisions_are_the_three_of_the_format() -> None:
    """happened, not_happened, retry: and only retry lets it run."""
    assert {name: (rule.verdict, rule.again) for name, rule in DECISION_RULES.items()} == {
        "happened": (ToolVerdict.COMPLETED, Again.NEVER),
        "not_happened": (ToolVerdict.FAILED, Again.NEVER),
        "retry": (ToolVerdict.PENDING, Again.DECIDED),
    }
