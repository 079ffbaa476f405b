"""What one record says, as texts that a person or a model saw: no keys, ids, times, images, signed blocks.

Invariant: a pure function of the record, for any shape; nothing here raises. Two records that tell one fact
(the tracks of FORMAT.md) have a key in common. A text is what was said and not how it was written down: a
call's arguments are searched by their values. Nothing is in a text that isn't in one string of the record
(but line breaks between parts): `raw_pattern` relies on it.

Left out: the history in a checkpoint, snapshots of context and `x_memory` (they repeat what other
records say); the instructions in a meta line unless they are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from protocol.line import RolloutLine
from thread_store.search.text_values import NO_TEXT, SIGNED, all_strings, read_strings, unpacked
from thread_store.transcript.fact import Fact, FactKind, Form
from thread_store.transcript.facts import fact_of
from thread_store.transcript.payload_text import as_text

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
_TOOL_KEYS = {
    "args": frozenset(
        {"action", "arguments", "changes", "command", "input", "invocation", "prompt", "query"},
    ),
    "output": frozenset(
        {"aggregated_output", "content_items", "error", "formatted_output", "message", "note", "output"}
        | {"result", "stderr", "stdout", "text"}
    ),
}


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
        role=_role_of(fact),
        field=field,
        text=text,
        part=part,
        keys=fact.keys if key is None else (*fact.keys, key),
        form=fact.form,
        repeats=fact.repeats,
        tool=(fact.name or None) if fact.kind is FactKind.TOOL else None,
        call_id=fact.keys[0].partition("\0")[2] if fact.kind is FactKind.TOOL and fact.keys else None,
    )


def _role_of(fact: Fact) -> str:
    role = (
        fact.payload.get("role") if fact.kind is FactKind.EVENT and isinstance(fact.payload, dict) else None
    )
    if role in ("user", "assistant", "tool"):
        return str(role)  # of a kind that isn't known, but it says whose it is
    return _ROLES[fact.kind]


def _meta_texts(payload: Any, *, instructions: bool) -> Iterator[SaidText]:
    if not isinstance(payload, dict):
        return
    for field, text in all_strings(payload.get("x_task"), "x_task"):
        yield SaidText("context", field, text)
    if instructions:
        base = payload.get("base_instructions")
        told = base.get("text") if isinstance(base, dict) else payload.get("instructions")
        yield SaidText("context", "instructions", as_text(told))


# What was spoken, thought, or happened


def _spoken_texts(fact: Fact) -> Iterator[SaidText]:
    if fact.kind is FactKind.MARKER or fact.kind is FactKind.EVENT:
        for field, text in read_strings(fact.payload, ""):
            yield _said(fact, field, text, key=f"event\0{text.strip()[:200]}" if fact.keys else None)
    elif fact.kind is FactKind.THINKING:
        for names in _THOUGHTS:
            holder = _item_of(fact.payload)
            texts = [text for name in names for _, text in all_strings(holder.get(name), "")]
            yield _said(fact, "text", "\n\n".join(texts), part=names[0])
    else:
        text = _spoken(_item_of(fact.payload))
        yield _said(fact, "text", text, key=f"spoken\0{_ROLES[fact.kind]}\0{text.strip()[:400]}")


_THOUGHTS = (("summary", "summary_text", "text"), ("content", "raw_content"))


def _item_of(payload: Mapping[str, Any]) -> Mapping[str, Any]:
    item = payload.get("item")
    return item if isinstance(item, dict) else payload


def _spoken(holder: Mapping[str, Any]) -> str:
    """The text of a message without its images. Its parts are joined by what no anchor holds."""
    content = holder.get("content", holder.get("message"))
    if isinstance(content, str):
        return content
    parts = (
        [part.get("text") for part in content if isinstance(part, dict)] if isinstance(content, list) else ()
    )
    return "\n".join(part for part in parts if isinstance(part, str))


def _unknown_item(payload: Any) -> Iterator[tuple[str, str]]:
    """A response item of a kind that isn't known: what looks like text."""
    if isinstance(payload, dict) and not str(payload.get("type", "")).startswith("ghost"):
        yield from read_strings({key: each for key, each in payload.items() if key not in NO_TEXT}, "")


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
    holder = _item_of(payload)
    for part, names in _TOOL_KEYS.items():
        for name in holder:
            if name in names:
                for field, text in _tool_strings(name, holder[name], part if name == "arguments" else name):
                    yield _said(fact, field, text, part=part)


def _arguments(fact: Fact) -> Iterator[tuple[str, str]]:
    payload = fact.payload
    for name in ("arguments", "input", "action", "revised_prompt"):
        yield from _tool_strings(name, payload.get(name), "args")


def _tool_strings(name: str, value: Any, field: str) -> Iterator[tuple[str, str]]:
    if name in ("arguments", "input"):
        return all_strings(unpacked(value), field, passed_over=SIGNED)
    return all_strings(value, field)


def _output(payload: Mapping[str, Any], fact: Fact) -> Iterator[tuple[str, str]]:
    output = payload.get("output", payload.get("tools"))
    if isinstance(output, str):
        told = fact.result.output if fact.result is not None else None
        yield "output", told if told is not None else output
    elif isinstance(output, dict):
        yield from all_strings(output.get("content", output), "output")
    else:
        yield from all_strings(output, "output")
