"""What one record says: a message, a thought, a tool's call or result, a marker, or just an event.

Invariant: `fact_of` is a pure function of the line, knows the twin tracks' many forms of one
fact (FORMAT.md, Tracks), and never fails: a shape it doesn't know is an event. The `keys` of
two forms of one fact have one in common.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any

from protocol.line import RolloutLine
from thread_store.context.injected_text import is_injected
from thread_store.transcript import tools
from thread_store.transcript.fact import Fact, FactKind, Form
from thread_store.transcript.payload_text import as_text, content_text

__all__ = ["fact_of"]


def fact_of(line: RolloutLine) -> Fact:
    """What the record says."""
    payload = line.payload_object()
    record_type = line.type or ""
    says = _BY_TYPE.get(record_type)
    fact = says(payload) if says is not None and isinstance(payload, dict) else None
    if fact is None:
        subtype = payload.get("type") if isinstance(payload, dict) else None
        name = f"{record_type}/{subtype}" if isinstance(subtype, str) else record_type or "untyped"
        fact = Fact(FactKind.EVENT, Form.OWN, name=name)
    fact.payload = payload
    return fact


# Response items: the model's track


def _response(payload: Mapping[str, Any]) -> Fact | None:
    kind = payload.get("type")
    if kind == "message":
        return _message(as_text(payload.get("role")), content_text(payload.get("content")), Form.RESPONSE)
    if kind == "reasoning":
        parts = [as_text(part.get("text")) for part in _dicts(payload.get("summary"))]
        parts = parts or [as_text(part.get("text")) for part in _dicts(payload.get("content"))]
        return _thinking(parts, Form.RESPONSE)
    if kind == "agent_message":
        return Fact(
            FactKind.ASSISTANT,
            Form.RESPONSE,
            name=as_text(payload.get("author")),
            text=content_text(payload.get("content")),
        )
    if not isinstance(kind, str):
        return None
    if kind.endswith("_output"):
        return tools.response_output(payload)
    if kind.endswith("_call"):
        return tools.response_call(kind, payload)
    return None


# Events and completed items: the reader's track


def _event(payload: Mapping[str, Any]) -> Fact | None:
    kind = as_text(payload.get("type"))
    if kind in ("item_completed", "item_started"):
        item = payload.get("item")
        return _item(item) if isinstance(item, dict) else None
    if kind in ("user_message", "agent_message"):
        role = "user" if kind == "user_message" else "assistant"
        return _message(role, as_text(payload.get("message")), Form.EVENT)
    if kind in ("agent_reasoning", "agent_reasoning_raw_content"):
        return _thinking([as_text(payload.get("text"))], Form.EVENT)
    if kind.endswith("_end") and payload.get("call_id"):
        return tools.tool_ended(kind, payload)
    marker = _event_marker(kind, payload)
    return None if marker is None else _marker(kind, marker, Form.EVENT)


def _event_marker(kind: str, payload: Mapping[str, Any]) -> str | None:
    if kind == "turn_aborted":
        return f"turn aborted: {as_text(payload.get('reason')) or 'no reason given'}"
    if kind in ("task_complete", "turn_complete"):
        error = payload.get("error")
        return f"turn failed: {as_text(error.get('message'))}" if isinstance(error, dict) else None
    if kind == "thread_rolled_back":
        return f"rolled back {as_text(payload.get('num_turns'))} turns; they no longer count"
    if kind == "context_compacted":
        return "context compacted"
    if kind in ("error", "warning", "stream_error"):
        return f"{kind.replace('_', ' ')}: {as_text(payload.get('message'))}"
    if kind in ("entered_review_mode", "exited_review_mode"):
        return kind.replace("_", " ")
    return None


def _item(item: Mapping[str, Any]) -> Fact | None:
    kind = as_text(item.get("type"))
    if kind in ("UserMessage", "AgentMessage"):
        role = "user" if kind == "UserMessage" else "assistant"
        return _message(role, content_text(item.get("content")), Form.ITEM)
    if kind == "Reasoning":
        parts = item.get("summary_text")
        return _thinking([as_text(part) for part in parts] if isinstance(parts, list) else [], Form.ITEM)
    if kind == "ContextCompaction":
        return _marker("context_compacted", "context compacted", Form.ITEM)
    if kind == "Plan":
        return _marker("plan", f"plan: {as_text(item.get('text'))}", Form.ITEM)
    return tools.completed_item(item)


# Own records and the rest


def _compacted(payload: Mapping[str, Any]) -> Fact:
    message = as_text(payload.get("message"))
    return _marker("context_compacted", f"context compacted{': ' if message else ''}{message}", Form.RESPONSE)


def _own_marker(record_type: str) -> Callable[[Mapping[str, Any]], Fact | None]:
    def says(payload: Mapping[str, Any]) -> Fact | None:
        text = _OWN_MARKERS[record_type](payload)
        return Fact(FactKind.MARKER, Form.OWN, name=record_type, text=text) if text else None

    return says


def _writer_marker(payload: Mapping[str, Any]) -> str:
    event = as_text(payload.get("event"))
    if event in ("opened", "closed"):
        return ""
    cut = payload.get("cut_bytes")
    told = [as_text(payload.get("reason")), f"{as_text(cut)} bytes cut" if cut else ""]
    return ": ".join(filter(None, ("writer", event, *told)))


def _plain_marker(template: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda payload: re.sub(r"\{(\w+)\}", lambda match: as_text(payload.get(match[1])), template)


def _erased_marker(payload: Mapping[str, Any]) -> str:
    reason = payload.get("reason")
    return f"{as_text(payload.get('bytes'))} bytes erased" + (f": {as_text(reason)}" if reason else "")


_OWN_MARKERS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "x_writer": _writer_marker,
    "x_approval": _plain_marker("approval of {call_id}: {state}"),
    "x_check": _plain_marker("check {state}: {what}"),
    "x_state": _plain_marker("state {from} to {to}: {reason}"),
    "x_erased": _erased_marker,
    "x_gap": _plain_marker("{bytes} bytes were destroyed by another program: {cause}"),
}
_BY_TYPE: dict[str, Callable[[Mapping[str, Any]], Fact | None]] = {
    "response_item": _response,
    "event_msg": _event,
    "compacted": _compacted,
    "x_call": tools.own_call,
    **{each: _own_marker(each) for each in _OWN_MARKERS},
}


# Facts from their parts

_KEY_CHARACTERS_MAX = 64


def _key(kind: str, text: str) -> str:
    """A key for equal texts; long ones are told by their digest, so that it can be kept at little cost."""
    text = text.strip()
    if len(text) > _KEY_CHARACTERS_MAX:
        text = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return f"{kind}\0{text}"


def _message(role: str, text: str, form: Form) -> Fact:
    key = _key(role, text)
    if role == "assistant":
        kind = FactKind.ASSISTANT
    elif role != "user" or (form is Form.RESPONSE and is_injected(text)):
        kind = FactKind.CONTEXT
    else:
        kind = FactKind.USER
    return Fact(kind, form, keys=(key,), name=role, text=text)


def _thinking(parts: list[str], form: Form) -> Fact:
    text = "\n\n".join(part for part in parts if part)
    keys = dict.fromkeys(_key("thinking", part) for part in (text, *parts))
    return Fact(FactKind.THINKING, form, keys=tuple(keys), text=text, repeats=form is not Form.RESPONSE)


def _marker(name: str, text: str, form: Form) -> Fact:
    keys = (f"marker\0{name}",) if name == "context_compacted" else ()
    return Fact(FactKind.MARKER, form, keys=keys, name=name, text=text)


def _dicts(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
