"""The view that a model takes: a result for each call, a call for each result, all else untouched."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from tests.thread_store.histories import dump
from tests.thread_store.naive_context import user_message
from thread_store.context.model_item import ModelItem, payload_item
from thread_store.context.model_view import UNKNOWN_OUTCOME, pair_calls, valid_view

RESULTS = {
    "function_call": "function_call_output",
    "local_shell_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "tool_search_call": "tool_search_output",
}


def item(kind: str, call_id: str | None = None, **keys: Any) -> ModelItem:
    named = {} if call_id is None else {"call_id": call_id}
    made = payload_item(Raw(dump({"type": kind, **named, **keys})))
    assert made is not None
    return made


def said(text: str) -> ModelItem:
    made = payload_item(Raw(dump(user_message(text))))
    assert made is not None
    return made


def payloads(items: list[ModelItem]) -> list[dict[str, Any]]:
    return [json.loads(bytes(each.payload)) for each in items]


@pytest.mark.case("B61")
def test_results_out_of_order_stay_where_they_are() -> None:
    """Parallel calls are matched by id."""
    items = [
        item("function_call", "a"),
        item("custom_tool_call", "b"),
        said("meanwhile"),
        item("custom_tool_call_output", "b", output="2"),
        item("function_call_output", "a", output="1"),
    ]
    view = valid_view(items)
    assert view.items == items
    assert view.answered == view.left_out == ()


@pytest.mark.case("B132")
@pytest.mark.parametrize("kind", RESULTS)
def test_call_without_result_gets_one_that_says_its_outcome_is_unknown(kind: str) -> None:
    """Of every kind that has results, right behind the call; never "aborted"."""
    call = item(kind, "a")
    view = valid_view([call, said("next")])
    made = json.loads(bytes(view.items[1].payload))
    assert (made["type"], made["call_id"]) == (RESULTS[kind], "a")
    assert kind == "tool_search_call" or made["output"] == UNKNOWN_OUTCOME
    assert "aborted" not in json.dumps(made)
    assert [view.items[0], *view.items[2:]] == [call, said("next")]
    assert view.items[1].place is None
    assert view.answered == ("a",)


@pytest.mark.case("B132")
def test_calls_that_never_have_a_result_need_none() -> None:
    """Searches of the web, images, and calls that name no id."""
    items = [
        item("web_search_call", status="completed"),
        item("image_generation_call", status="completed", result=""),
        item("local_shell_call", status="completed", action={}),
        item("tool_search_call", execution="server", arguments={}),
    ]
    assert valid_view(items).items == items


def test_known_outcome_is_said_instead() -> None:
    """Who knows more of a call than that it has no result gives the text."""
    view = valid_view([item("function_call", "a")], outputs={"a": "declined by the user"})
    assert payloads(view.items)[1]["output"] == "declined by the user"


@pytest.mark.case("B66")
def test_result_whose_call_was_compacted_away_is_left_out() -> None:
    """A checkpoint between call and result leaves a context that a model takes."""
    orphan = item("function_call_output", "a", output="late")
    view = valid_view([said("summary"), orphan, said("next")])
    assert view.items == [said("summary"), said("next")]
    assert view.left_out == (orphan,)


@pytest.mark.parametrize(
    "orphan",
    [
        item("function_call_output", "b"),
        item("custom_tool_call_output", "a"),
        item("function_call_output"),
    ],
)
def test_result_of_another_call_or_kind_is_left_out(orphan: ModelItem) -> None:
    """It answers nothing, and the call is still without result."""
    view = valid_view([item("function_call", "a"), orphan])
    assert view.left_out == (orphan,)
    assert view.answered == ("a",)


def test_second_result_of_a_call_is_left_out() -> None:
    """The first one is what the model saw."""
    first, second = (
        item("function_call_output", "a", output="1"),
        item("function_call_output", "a", output="2"),
    )
    view = valid_view([item("function_call", "a"), first, second])
    assert view.items[1:] == [first]
    assert view.left_out == (second,)


def test_result_before_its_call_answers_nothing() -> None:
    """Order is what makes a pair."""
    view = valid_view([item("function_call_output", "a"), item("function_call", "a")])
    assert [each.kind for each in view.items] == ["function_call", "function_call_output"]
    assert payloads(view.items)[1]["output"] == UNKNOWN_OUTCOME


kinds = st.sampled_from([*RESULTS, *set(RESULTS.values()), "message"])
contexts = st.lists(
    st.builds(
        lambda kind, call_id: said("x") if kind == "message" else item(kind, call_id),
        kinds,
        st.sampled_from(["a", "b", "c", None]),
    ),
    max_size=12,
)


@given(contexts)
def test_view_of_any_context_is_valid_and_keeps_the_rest(items: list[ModelItem]) -> None:
    """Each call that needs a result has one, each result a call; all else is there in order."""
    view = valid_view(items)
    assert all(pair.call is not None and pair.result is not None for pair in pair_calls(view.items))
    assert [each for each in view.items if not is_result(each)] == [
        each for each in items if not is_result(each)
    ]
    results = sum(map(is_result, items))
    assert sum(map(is_result, view.items)) == results + len(view.answered) - len(view.left_out)
    assert valid_view(view.items).items == view.items


def is_result(each: ModelItem) -> bool:
    return each.kind in RESULTS.values()
