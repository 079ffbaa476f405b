"""Transcripts of MyCodeAgent: `transcript-<session>.jsonl`, one event a line.

Invariant: the session is that of the first record that names one; records of another one are kept as they
are. A checkpoint is what the model goes on from: its summary, and the messages from an index on.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

from protocol.items import RolloutItem
from protocol.response_items import ResponseItem
from thread_store.importing.content import joined_text
from thread_store.importing.conversation import Conversation
from thread_store.importing.json_lines import read_json_lines
from thread_store.importing.plain_reader import PlainReader
from thread_store.importing.source import SourceThread, Step
from thread_store.importing.values import as_mapping, as_moment, as_text

__all__ = ["FORMAT", "MyCodeAgentReader", "looks_like"]

FORMAT = "mycodeagent"

_EVENTS = frozenset({"message", "state_transition", "tool_lifecycle", "checkpoint", "terminal"})
_HEAD_LINES = 50


def looks_like(values: list[dict[str, Any]]) -> bool:
    """Whether these first records are such a transcript's."""
    return any(as_text(each.get("event_type")) in _EVENTS and "event_id" in each for each in values)


class MyCodeAgentReader(PlainReader):
    """One transcript."""

    @cached_property
    def main(self) -> SourceThread:
        session, first_ms = None, None
        for line, _ in zip(read_json_lines(self.path, []), range(_HEAD_LINES), strict=False):
            session = session or as_text(line.value.get("session_id"))
            first_ms = as_moment(line.value.get("timestamp")) if first_ms is None else first_ms
            if session and first_ms is not None:
                break
        return SourceThread(
            format=FORMAT,
            id=session or self.name,
            path=self.path,
            created_ms=first_ms or 0,
            originator="mycodeagent",
        )

    def steps(self) -> Iterator[Step]:
        self.damaged.clear()
        events = _Events(self.conversation(), self.main.id)
        for line in read_json_lines(self.path, self.damaged):
            yield events.take(line.value, line.offset)


class _Events:
    def __init__(self, talk: Conversation, session: str) -> None:
        self._talk = talk
        self._session = session
        self._messages: list[RolloutItem] = []
        """What the model sees, one a message; only those behind a checkpoint can be asked for."""

    def take(self, event: dict[str, Any], offset: int) -> Step:
        talk, kind = self._talk, str(event.get("event_type"))
        at_ms = as_moment(event.get("timestamp"))
        payload, now = as_mapping(event.get("payload")), talk.at(at_ms)
        items: list[RolloutItem] | None = None
        if event.get("session_id") in (None, self._session):
            items = self._items(kind, payload, now)
        if items is None:
            return Step(at_ms, talk.kept(event, offset=offset), kept=_name_of(kind, payload))
        return Step(at_ms, items)

    def _items(self, kind: str, payload: dict[str, Any], at_ms: int) -> list[RolloutItem] | None:
        talk = self._talk
        if kind == "message":
            return self._message(payload, at_ms)
        if kind == "tool_lifecycle":
            return _lifecycle(payload, talk, at_ms)
        if kind == "checkpoint":
            start = payload.get("retain_start_idx")
            kept = self._messages[start:] if isinstance(start, int) and start >= 0 else []
            self._messages = list(kept)
            return talk.compaction(as_text(payload.get("summary")) or "", kept, at_ms)
        if kind == "terminal":
            reason = as_text(payload.get("reason"))
            failed = reason if reason not in (None, "final", "completed", "success") else None
            return talk.end_turn(at_ms, error=failed)
        return None

    def _message(self, payload: dict[str, Any], at_ms: int) -> list[RolloutItem] | None:
        talk, text = self._talk, joined_text(payload.get("content"))
        role = payload.get("role")
        if role == "user":
            self._messages.append(ResponseItem.message("user", text))
            return talk.user(text, at_ms)
        if role == "assistant":
            self._messages.append(ResponseItem.message("assistant", text))
            return talk.assistant(text, at_ms) if text else []
        if role == "summary":
            self._messages.append(ResponseItem.message("user", text))
            return talk.context(text, at_ms)
        if role == "tool":
            self._messages.append(ResponseItem.message("user", text))
            call_id = as_text(as_mapping(payload.get("metadata")).get("tool_call_id"))
            return None if call_id is None else talk.result(call_id, text, at_ms)
        return None


def _lifecycle(payload: dict[str, Any], talk: Conversation, at_ms: int) -> list[RolloutItem] | None:
    call_id, status = as_text(payload.get("tool_call_id")), payload.get("status")
    if call_id is None:
        return None
    if status in ("requested", "started"):
        name = as_text(payload.get("tool_name")) or "tool"
        arguments = payload.get("arguments", payload.get("tool_input", {}))
        return talk.call(call_id, name, arguments, at_ms)
    if status in ("completed", "failed"):
        output = payload.get("output", payload.get("result", payload.get("error", "")))
        return talk.result(call_id, joined_text(output), at_ms, failed=status == "failed")
    return None


def _name_of(kind: str, payload: dict[str, Any]) -> str:
    role = payload.get("role")
    return f"{kind}/{role}" if kind == "message" and isinstance(role, str) else kind
