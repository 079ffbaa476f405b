"""The context as a model takes it: each call has one result, each result its call.

Invariant: `valid_view` is pure and changes nothing that is recorded. Items keep their order and their
bytes; a call without a result gets one right behind it that says that its outcome is unknown, a result
without a call before it, or a second one, is left out. Calls that never have a result (web search, image
generation) need none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Raw, Struct

from protocol.codec import encode_value
from thread_store.context.model_item import ModelItem, payload_item

__all__ = ["UNKNOWN_OUTCOME", "CallPair", "ModelView", "made_result", "pair_calls", "valid_view"]

UNKNOWN_OUTCOME = "outcome unknown: the process ended while this call ran; it may or may not have happened"

_RESULT_OF = {
    "function_call": "function_call_output",
    "local_shell_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "tool_search_call": "tool_search_output",
}
_RESULTS = frozenset(_RESULT_OF.values())


class CallPair(NamedTuple):
    """Where a call and its result stand in a list of items; None for one that isn't there."""

    call: int | None
    result: int | None


class ModelView(Struct, frozen=True, kw_only=True):
    """A context that a model takes.

    `answered`: ids of calls whose result was made here; `left_out`: results that are not in it.
    """

    items: list[ModelItem]
    answered: tuple[str, ...] = ()
    left_out: tuple[ModelItem, ...] = ()


def pair_calls(items: Sequence[ModelItem]) -> list[CallPair]:
    """All calls that need a result, and all results, as pairs.

    A result belongs to the newest call before it with its id and of its kind that has none yet.
    """
    pairs: list[CallPair] = []
    waiting: dict[tuple[str, str], list[int]] = {}
    for index, item in enumerate(items):
        if item.call_id is None:
            if item.kind in _RESULTS:
                pairs.append(CallPair(None, index))
        elif item.kind in _RESULT_OF:
            waiting.setdefault((_RESULT_OF[item.kind], item.call_id), []).append(index)
        elif item.kind in _RESULTS:
            calls = waiting.get((item.kind, item.call_id))
            pairs.append(CallPair(calls.pop() if calls else None, index))
    pairs += (CallPair(call, None) for calls in waiting.values() for call in calls)
    return pairs


def valid_view(items: Sequence[ModelItem], *, outputs: Mapping[str, str] | None = None) -> ModelView:
    """Derive the view that a model takes.

    `outputs`: by call id, what to say instead of `UNKNOWN_OUTCOME` where more is known of a call.
    """
    pairs = pair_calls(items)
    orphans = {pair.result for pair in pairs if pair.call is None}
    dangling = {pair.call for pair in pairs if pair.result is None}
    view: list[ModelItem] = []
    answered: list[str] = []
    for index, item in enumerate(items):
        if index in orphans:
            continue
        view.append(item)
        if index in dangling and item.call_id is not None:
            answered.append(item.call_id)
            view.append(made_result(item, (outputs or {}).get(item.call_id, UNKNOWN_OUTCOME)))
    left_out = tuple(items[index] for index in sorted(_numbers(orphans)))
    return ModelView(items=view, answered=tuple(answered), left_out=left_out)


def _numbers(values: Iterable[int | None]) -> Iterable[int]:
    return (each for each in values if each is not None)


def made_result(call: ModelItem, text: str) -> ModelItem:
    """A result of that call with this text, as its kind wants it; never recorded."""
    kind = _RESULT_OF[call.kind]
    payload: dict[str, Any] = {"type": kind, "call_id": call.call_id}
    if kind == "tool_search_output":
        payload |= {"status": "incomplete", "execution": "client", "tools": []}
    else:
        payload["output"] = text
    made = payload_item(Raw(encode_value(payload)))
    assert made is not None
    return made
