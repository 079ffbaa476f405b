"""What one record says, as texts that a person or a model saw: no keys, ids, times, images, signed blocks.

Invariant: a pure function of the record, for any shape; nothing here raises. Two records that tell one fact
(the tracks of FORMAT.md) have a key in common. A text is what was said and not how it was written down: a
call's arguments are searched by their values.

Left out: the history in a checkpoint, snapshots of context and `x_memory` (they repeat what other
records say); the instructions in a meta line unless they are asked for.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from protocol.line import RolloutLine
from thread_store.transcript.fact import Fact, FactKind, Form
from thread_store.transcript.facts import fact_of
from thread_store.transcript.payload_text import as_text, command_text

__all__ = ["SaidText", "said_texts"]


class SaidText(Struct, frozen=True):
    """One text. `part` tells the texts of one fact apart; `keys` are those of the fact."""

    role: str
    field: str
    text: str
    part: str = "text"
    keys: tuple[str, ...] = ()
    form: Form = Form.OWN
    repeats: bool = False
    tool: str | None = None
    call_id: str | None = None


_ROLES = {
    FactKind.USER: "user",
    FactKind.ASSISTANT: "assistant",
    FactKind.CONTEXT: "context",
    FactKind.THINKING: "thinking",
    FactKind.TOOL: "tool",
    FactKind.MARKER: "event",
    FactKind.EVENT: "event",
}

# Their texts are no news, or nobody's.
_SILENT_TYPES = frozenset(
    {"turn_context", "world_state", "retained_context", "dynamic_tools_updated", "token_usage_record"}
    | {"security_risk_score", "x_memory", "x_writer", "x_files"}
)
_SAID_KEYS = frozenset(
    {
        "text",
        "message",
        "content",
        "explanation",
        "step",
        "plan",
        "summary",
        "note",
        "reason",
        "what",
        "cause",
    }
    | {
        "error",
        "evidence",
        "prompt",
        "query",
        "queries",
        "question",
        "questions",
        "answer",
        "answers",
        "title",
    }
    | {
        "description",
        "objective",
        "last_agent_message",
        "thread_name",
        "label",
        "record",
        "messages",
        "items",
    }
    | {"item", "goal", "details", "header", "options", "info", "review_output", "findings", "body", "output"}
    | {"user_facing_hint", "overall_explanation", "transcript", "delta"}
)
"""Members of events and own records whose strings somebody reads."""

_TOOL_KEYS = {
    "args": frozenset(
        {"command", "arguments", "query", "prompt", "invocation", "changes", "action", "input"}
    ),
    "output": frozenset(
        {
            "aggregated_output",
            "stdout",
            "stderr",
            "formatted_output",
            "output",
            "result",
            "error",
            "content_items",
        }
        | {"note", "message", "text"}
    ),
}
_NEVER = frozenset(
    {
        "type",
        "id",
        "call_id",
        "turn_id",
        "item_id",
        "thread_id",
        "status",
        "role",
        "phase",
        "signature",
        "data",
    }
    | {
        "encrypted_content",
        "image_url",
        "url_signature",
        "thought_signature",
        "mime_type",
        "mimeType",
        "sha256",
    }
    | {"process_id", "timestamp", "at", "at_ms", "blob", "audio", "file_data"}
)
"""Members whose strings are no text, wherever they stand."""

_DEPTH_MAX = 32


def said_texts(line: RolloutLine, *, instructions: bool = False) -> list[SaidText]:
    """The texts of a record. `instructions`: also those that a meta line holds."""
    record_type = line.type or ""
    if record_type in _SILENT_TYPES:
        return []
    if record_type == "session_meta":
        told = _meta_texts(line.payload_object(), instructions=instructions)
        return [each for each in told if each.text]
    fact = fact_of(line)
    says = _tool_texts if fact.kind is FactKind.TOOL else _spoken_texts
    texts = [each for each in says(fact) if each.text]
    if record_type == "response_item" and not texts:
        return [_said(fact, field, text) for field, text in _unknown_item(fact.payload) if text]
    return texts


def _said(fact: Fact, field: str, text: str, *, part: str = "text", key: str | None = None) -> SaidText:
    return SaidText(
        role=_ROLES[fact.kind],
        field=field,
        text=text,
        part=part,
        keys=fact.keys if key is None else (*fact.keys, key),
        form=fact.form,
        repeats=fact.repeats,
        tool=(fact.name or None) if fact.kind is FactKind.TOOL else None,
        call_id=fact.keys[0].partition("\0")[2] if fact.kind is FactKind.TOOL and fact.keys else None,
    )


def _meta_texts(payload: Any, *, instructions: bool) -> Iterator[SaidText]:
    if not isinstance(payload, dict):
        return
    for field, text in _strings(payload.get("x_task"), "x_task"):
        yield SaidText("context", field, text)
    if instructions:
        base = payload.get("base_instructions")
        told = base.get("text") if isinstance(base, dict) else payload.get("instructions")
        yield SaidText("context", "instructions", as_text(told))


# What was spoken, thought, or happened


def _spoken_texts(fact: Fact) -> Iterator[SaidText]:
    if fact.kind is FactKind.MARKER or fact.kind is FactKind.EVENT:
        for field, text in _event_strings(fact.payload, ""):
            yield _said(fact, field, text, key=f"event\0{text.strip()[:200]}" if fact.keys else None)
    elif fact.kind is FactKind.THINKING:
        yield _said(fact, "text", fact.text)
        for field, text in _strings(fact.payload.get("content"), "content"):
            if text not in fact.text:
                yield _said(fact, field, text, part="content")
    else:
        text = _without_names(fact)
        yield _said(fact, "text", text, key=f"spoken\0{_ROLES[fact.kind]}\0{text.strip()[:400]}")


def _without_names(fact: Fact) -> str:
    """The text of a message without the words in brackets that stand for its images."""
    holder = fact.payload.get("item") or fact.payload
    content = holder.get("content") if isinstance(holder, dict) else None
    if not isinstance(content, list):
        return fact.text
    texts = [part.get("text") for part in content if isinstance(part, dict)]
    return "\n".join(text for text in texts if isinstance(text, str))


def _event_strings(value: Any, field: str, depth: int = 0) -> Iterator[tuple[str, str]]:
    """The strings under members that somebody reads."""
    if depth > _DEPTH_MAX:
        return
    if isinstance(value, str):
        if field:
            yield field, value
    elif isinstance(value, list):
        for each in value:
            yield from _event_strings(each, field, depth + 1)
    elif isinstance(value, dict):
        for name, each in value.items():
            if name in _SAID_KEYS:
                yield from _event_strings(each, f"{field}.{name}" if field else name, depth + 1)


def _unknown_item(payload: Any) -> Iterator[tuple[str, str]]:
    """A response item of a kind that isn't known: what looks like text."""
    if isinstance(payload, dict) and not str(payload.get("type", "")).startswith("ghost"):
        yield from _event_strings({key: each for key, each in payload.items() if key not in _NEVER}, "")


# Tool calls


def _tool_texts(fact: Fact) -> Iterator[SaidText]:
    payload = fact.payload
    if fact.form is Form.RESPONSE:
        if fact.is_call:
            for field, text in _arguments(fact):
                yield _said(fact, field, text, part="args")
        if fact.result is not None:
            for field, text in _output(payload, fact):
                yield _said(fact, field, text, part="output")
        return
    holder = payload.get("item") if isinstance(payload.get("item"), dict) else payload
    for part, names in _TOOL_KEYS.items():
        for name in holder:
            if name not in names:
                continue
            value = holder[name]
            if name == "command":
                value = command_text(value)
            elif name == "arguments":
                value = _unpacked(value)
            for field, text in _strings(value, part if name == "arguments" else name):
                yield _said(fact, field, text, part=part)


def _arguments(fact: Fact) -> Iterator[tuple[str, str]]:
    payload = fact.payload
    if payload.get("type") == "local_shell_call":
        yield "args", fact.text
        return
    for name in ("arguments", "input", "action", "revised_prompt"):
        yield from _strings(_unpacked(payload.get(name)), "args")


def _output(payload: Mapping[str, Any], fact: Fact) -> Iterator[tuple[str, str]]:
    output = payload.get("output", payload.get("tools"))
    if isinstance(output, str):
        told = fact.result.output if fact.result is not None else None
        yield "output", told if told is not None else output
    elif isinstance(output, dict):
        yield from _strings(output.get("content", output), "output")
    else:
        yield from _strings(output, "output")


def _unpacked(value: Any) -> Any:
    """Arguments are JSON in a string, mostly; else they are the text that they are."""
    if not isinstance(value, str) or not value.lstrip().startswith(("{", "[")):
        return value
    try:
        unpacked = json.loads(value)
    except (ValueError, RecursionError):
        return value
    return unpacked


def _strings(value: Any, field: str, depth: int = 0) -> Iterator[tuple[str, str]]:
    """All strings below a value but those that are no text; a list of nothing but strings is one text."""
    if isinstance(value, str):
        if not value.startswith("data:"):
            yield field, value
    elif depth > _DEPTH_MAX:
        return
    elif isinstance(value, list):
        if value and all(isinstance(each, str) for each in value):
            yield field, " ".join(value)
            return
        for each in value:
            yield from _strings(each, field, depth + 1)
    elif isinstance(value, dict):
        plain = value.get("type") not in ("image", "input_image", "audio", "input_audio", "encrypted_content")
        for name, each in value.items() if plain else ():
            if name not in _NEVER:
                simple = name in ("text", "content") and field in ("output", "content")
                yield from _strings(each, field if simple else f"{field}.{name}", depth + 1)
