"""Refusals: each reason has a rule, and is waived by its name alone."""

from __future__ import annotations

import pickle

import pytest

from thread_store.resume.resume_refusals import (
    REFUSAL_RULES,
    Refusal,
    RefusalReason,
    refuse,
    split_allowed,
)

CALL = Refusal.make(RefusalReason.UNCERTAIN_CALL, "it may have run", thread="T", call_id="c1")
DAMAGE = Refusal.make(RefusalReason.DAMAGED_RANGE, "it is damaged", path="p", offset=None, end=7)


def test_every_reason_has_a_rule_with_something_to_do() -> None:
    """Nobody is left without a hint."""
    assert set(REFUSAL_RULES) == set(RefusalReason)
    assert all(rule.hint for rule in REFUSAL_RULES.values())


def test_hint_names_the_thread_and_the_call() -> None:
    """So that it can be run as it stands."""
    assert CALL.hint.endswith("rollout tools T --resolve c1 happened|not_happened|retry")
    assert DAMAGE.hint.endswith("rollout check p")


def test_details_hold_what_is_known() -> None:
    """What is unknown is left out."""
    assert DAMAGE.details == {"end": 7}


def test_named_reasons_are_waived_and_no_others() -> None:
    """The two lists keep their order."""
    assert split_allowed([CALL, DAMAGE], ["uncertain_call"]) == ((DAMAGE,), (CALL,))
    assert split_allowed([CALL, DAMAGE], []) == ((CALL, DAMAGE), ())


@pytest.mark.parametrize("name", ["all", "live_writer", "archived"])
def test_what_is_no_reason_or_cannot_be_waived_is_an_error(name: str) -> None:
    """Whether or not it stands against anything."""
    with pytest.raises(ValueError, match=name):
        split_allowed([], [name])


def test_error_tells_of_each_and_travels_between_processes() -> None:
    """Codes once each, the refusals with all they say; the first hint is its own."""
    error = refuse([CALL, CALL, DAMAGE], thread_id="T", path="p")
    assert error.reasons == ("uncertain_call", "damaged_range")
    assert error.refusals == (CALL, CALL, DAMAGE)
    assert error.hint == CALL.hint
    assert "it is damaged" in str(error)
    assert pickle.loads(pickle.dumps(error)).refusals == error.refusals


def test_error_of_many_refusals_stays_short() -> None:
    """It counts what it doesn't name."""
    assert "and 15 more" in str(refuse([DAMAGE] * 20))
