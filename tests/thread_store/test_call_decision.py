"""Decisions on calls: which one is meant, and what is recorded of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.errors import CallNotResolvable
from tests.thread_store.histories import Script
from tests.thread_store.resumed import TURN, call_of, own_call, state_of
from thread_store.home import Home
from thread_store.resume.call_decision import decision_item, find_uncertain
from thread_store.resume.resume_state import ResumeState


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def with_call(home: Home, *states: str, **keys: object) -> ResumeState:
    script = Script()
    script.start(TURN)
    script.call("c1")
    for state in states:
        own_call(script, "c1", state, **keys)
    return state_of(script, home)


def test_uncertain_call_is_found_by_its_id(home: Home) -> None:
    """With or without its turn."""
    state = with_call(home, "started", effect="unsafe")
    assert find_uncertain(state, "c1") is find_uncertain(state, "c1", turn_id=TURN) is call_of(state)


@pytest.mark.parametrize(("state", "verdict"), [("completed", "completed"), ("intended", "pending")])
def test_call_that_is_not_uncertain_is_refused(home: Home, state: str, verdict: str) -> None:
    """The error says what it is."""
    with pytest.raises(CallNotResolvable, match=verdict) as caught:
        find_uncertain(with_call(home, state), "c1")
    assert caught.value.call_id == "c1"
    assert "No call of the thread is uncertain" in caught.value.hint


def test_call_of_another_turn_is_refused(home: Home) -> None:
    """Its candidates are named."""
    with pytest.raises(CallNotResolvable) as caught:
        find_uncertain(with_call(home, "started"), "c1", turn_id="t9")
    assert caught.value.candidates == ((TURN, "c1"),)
    assert "c1" in caught.value.hint


@pytest.mark.guarantee("G8")
def test_call_outside_any_turn_is_not_taken_for_one_of_the_open_turn(home: Home) -> None:
    """A record couldn't tell the two apart."""
    script = Script()
    script.call("c1")
    script.start(TURN)
    script.call("c1")
    state = state_of(script, home)
    with pytest.raises(CallNotResolvable, match="several"):
        find_uncertain(state, "c1")
    assert find_uncertain(state, "c1", turn_id=TURN).turn_id == TURN
    own_call(script, "c1", "completed")
    with pytest.raises(CallNotResolvable, match="outside any turn"):
        find_uncertain(state_of(script, home), "c1")
    script.complete(TURN)
    assert find_uncertain(state_of(script, home), "c1").turn_id is None


def test_decision_says_who_what_and_of_which_attempt(home: Home) -> None:
    """The effect is declared only if it was."""
    call = call_of(with_call(home, "started", effect="unsafe", attempt=3, key="k"))
    item = decision_item(call, "happened", by="ann", note="seen")
    assert (item.state, item.outcome, item.by, item.note) == ("resolved", "happened", "ann", "seen")
    assert (item.turn_id, item.attempt, item.key, item.effect) == (TURN, 3, "k", "unsafe")
    assert item.at_ms
    undeclared = decision_item(call_of(with_call(home)), "happened", by="ann")
    assert (undeclared.effect, undeclared.key) == (None, None)


def test_decision_to_try_again_always_has_a_key(home: Home) -> None:
    """By it the further attempt takes the place of this one."""
    assert decision_item(call_of(with_call(home, "started")), "retry", by="ann").key == f"{TURN}/c1"
    assert decision_item(call_of(with_call(home, "started", key="k")), "retry", by="ann").key == "k"


def test_unknown_outcome_is_refused(home: Home) -> None:
    """The known ones are named."""
    with pytest.raises(ValueError, match="not_happened"):
        decision_item(call_of(with_call(home, "started")), "maybe", by="ann")  # type: ignore[arg-type]
