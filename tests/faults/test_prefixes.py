"""Prefixes of random histories: some of what `python -m tests.faults prefixes` does."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.tool_calls import ToolCallFold
from tests.faults.call_histories import make_history
from tests.faults.prefixes import judge_seed

HISTORIES = 40


@pytest.mark.guarantee("G8")
@pytest.mark.guarantee("G9")
@pytest.mark.case("B60")
@pytest.mark.case("B65")
@pytest.mark.parametrize("seed", range(1, HISTORIES + 1))
def test_every_prefix_of_a_history_tells_what_may_have_happened(seed: int) -> None:
    """Cut at each record and inside it: nothing unsafe may run again, nothing open is missing, and the state
    is the same from the start, from every memory, in forks, reverted and compressed."""
    assert judge_seed(seed).failures == []


def test_histories_hold_what_they_are_meant_to_hold() -> None:
    """Open calls at most prefixes, retries, damage, memories, several writers."""
    histories = [make_history(seed) for seed in range(1, HISTORIES + 1)]
    intents = [intent for each in histories for intent in each.intents]
    assert sum(len(each.memories) for each in histories) > HISTORIES
    assert sum(len(each.damaged) for each in histories) > HISTORIES / 2
    assert sum(len(each.begun) > 1 for each in intents) > 5
    assert sum(not each.ended and bool(each.begun) for each in intents) > HISTORIES


@pytest.mark.parametrize(
    ("owner", "name", "bug", "seed"),
    [
        (ToolCallFold, "_note_replaced", lambda self, call: None, 6),
        (ToolCallFold, "_leave_outside", lambda self: None, 136),
        (ToolCallFold, "note_damage", lambda self, damage: None, 302),
    ],
)
def test_judge_finds_a_fold_that_forgets(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, bug: Any, seed: int
) -> None:
    """The proof that it can fail: decisions are never used up, calls outside turns are mixed up with others,
    damage raises no doubt."""
    monkeypatch.setattr(owner, name, bug)
    assert judge_seed(seed).failures
