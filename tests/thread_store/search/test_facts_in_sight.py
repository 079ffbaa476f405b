"""One hit a fact, whatever tracks tell it."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thread_store.search.facts_in_sight import _WAIT_BYTES, FactsInSight, Sighting
from thread_store.search.said_texts import SaidText
from thread_store.transcript.fact import Form

Seen = tuple[str, Form]


def sighting(key: str, form: Form, offset: int, lines: tuple[str, ...] = ("x",)) -> Sighting[str]:
    said = SaidText("user", "text", "", keys=(key,) if key else (), form=form)
    return Sighting(said, offset, [f"{form.name}{offset}:{line}" for line in lines], lines)


def hits(*seen: Sighting[str], ends: bool = True) -> list[str]:
    facts: FactsInSight[str] = FactsInSight()
    found = [hit for each in seen for hit in facts.take(each)]
    return [*found, *facts.finish()] if ends else found


@pytest.mark.case("B125")
@pytest.mark.parametrize("order", list(permutations([Form.RESPONSE, Form.ITEM, Form.EVENT])))
def test_three_records_of_a_fact_are_one_hit(order: tuple[Form, ...]) -> None:
    """In whatever order they come, the record of the model's track gives it."""
    found = hits(*(sighting("k", form, offset) for offset, form in enumerate(order)))
    assert found == [f"RESPONSE{order.index(Form.RESPONSE)}:x"]


@pytest.mark.case("B125")
@pytest.mark.parametrize("forms", [(Form.ITEM, Form.EVENT), (Form.EVENT, Form.ITEM)])
def test_fact_without_a_record_of_the_model_is_one_hit(forms: tuple[Form, ...]) -> None:
    """The first record that told it gives it."""
    assert hits(*(sighting("k", form, at) for at, form in enumerate(forms))) == [f"{forms[0].name}0:x"]


def test_equal_texts_said_twice_are_two_hits() -> None:
    """Two facts of one text are told apart by which tracks have told the first."""
    twice = [Form.RESPONSE, Form.EVENT, Form.RESPONSE, Form.EVENT]
    assert hits(*(sighting("k", form, at) for at, form in enumerate(twice))) == ["RESPONSE0:x", "RESPONSE2:x"]


def test_lines_that_only_one_record_has_are_not_lost() -> None:
    """What the model saw was cut; the reader's track has the rest."""
    found = hits(
        sighting("k", Form.RESPONSE, 0, ("a",)),
        sighting("k", Form.EVENT, 1, ("a", "b")),
        sighting("", Form.OWN, 2),
    )
    assert found == ["RESPONSE0:a", "EVENT1:b", "OWN2:x"]


def test_hit_comes_at_once_unless_its_twin_may_follow() -> None:
    """The model's record is given when it is met; another one when the scan has left it behind."""
    assert hits(sighting("k", Form.RESPONSE, 0), ends=False) == ["RESPONSE0:x"]
    facts: FactsInSight[str] = FactsInSight()
    assert list(facts.take(sighting("k", Form.EVENT, 0))) == []
    assert list(facts.take(sighting("j", Form.RESPONSE, 1))) == []
    assert list(facts.pass_by(_WAIT_BYTES)) == []
    assert list(facts.pass_by(_WAIT_BYTES + 1)) == ["EVENT0:x", "RESPONSE1:x"]


@given(st.lists(st.tuples(st.sampled_from(["", "a", "b"]), st.sampled_from(list(Form))), max_size=30))
def test_nothing_is_lost_and_the_order_is_kept(seen: list[Seen]) -> None:
    """Each key that was seen gives a hit, no record gives two, and the hits are in order of first sight."""
    found = hits(*(sighting(key, form, at) for at, (key, form) in enumerate(seen)))
    assert len(set(found)) == len(found) <= len(seen)
    given_keys = {seen[int("".join(filter(str.isdigit, hit.split(":")[0])))][0] for hit in found}
    assert given_keys == {key for key, _ in seen}


def test_texts_of_one_record_are_known_together() -> None:
    """The other track's record is compared with all of them."""
    seen = [
        sighting("k", Form.RESPONSE, 0, ("a",)),
        sighting("k", Form.RESPONSE, 0, ("b",)),
        sighting("k", Form.ITEM, 1, ("a", "b")),
    ]
    assert hits(*seen) == ["RESPONSE0:a", "RESPONSE0:b"]
