"""The head of a rollout as a list reads it: whose it is, where it ran, what was typed first.

Invariant: the first session_meta is the thread's own, later ones are copied history; a line that can't be
read is passed over. A folder is only a text here.
"""

from __future__ import annotations

import re
from typing import Any

from protocol.errors import InvalidLine
from protocol.line import RolloutLine, decode_line
from protocol.meta import SessionMeta, decode_meta
from protocol.plain_values import squeezed
from protocol.validity import is_blank
from rollout.grammar import is_rollout_line
from thread_store.listing.first_prompt import FirstPrompt, cut_line_prompt
from thread_store.listing.rollout_facts import RolloutFacts

__all__ = ["HeadScan", "source_name"]

_TEXT_CHARS_MAX = 200
_CWD_CHARS_MAX = 4096
_ENVIRONMENT_CWD = re.compile(r"<environment_context>.*?<cwd>(.*?)</cwd>", re.DOTALL)


class HeadScan:
    """Takes the lines of a head, oldest first."""

    def __init__(self) -> None:
        self.meta: SessionMeta | None = None
        self.prompt = FirstPrompt()
        self.is_rollout = False
        self._context_cwd: str | None = None
        self._environment_cwd: str | None = None
        self._model: str | None = None
        self._answer: str | None = None

    @property
    def is_done(self) -> bool:
        """Whether further lines can add nothing that counts."""
        return self.meta is not None and self.prompt.told is not None and self._cwd() is not None

    def take(self, data: bytes) -> None:
        """Look at a line."""
        if is_blank(data):
            return
        try:
            line = decode_line(data)
        except (InvalidLine, RecursionError):
            return  # readers warn of it; a list has no line to show
        self.take_line(line)

    def take_line(self, line: RolloutLine) -> None:
        """Look at a line that was decoded."""
        self.is_rollout = self.is_rollout or is_rollout_line(line)
        if line.type == "session_meta":
            if self.meta is None:
                self.meta = _meta_of(line)
        elif line.type == "turn_context":
            self._take_context(line.payload_object())
        elif line.type in ("response_item", "request_item", "event_msg"):
            payload = line.payload_object()
            if isinstance(payload, dict):
                # What a third-party writer calls request_item is what the model saw, too.
                kind = "event_msg" if line.type == "event_msg" else "response_item"
                self.prompt.look_at(kind, payload)
                self._take_item(payload)

    def take_cut(self, data: bytes) -> None:
        """Look at a line of which only the beginning was read."""
        found = cut_line_prompt(data)
        if found is not None:
            self.prompt.take(*found)

    def _take_context(self, value: Any) -> None:
        if isinstance(value, dict):
            self._context_cwd = self._context_cwd or _text(value.get("cwd"), _CWD_CHARS_MAX)
            self._model = self._model or _text(value.get("model"))

    def _take_item(self, payload: dict[str, Any]) -> None:
        kind, role = payload.get("type"), payload.get("role")
        if kind == "message" and role == "user" and self._environment_cwd is None:
            found = _ENVIRONMENT_CWD.search(_message_text(payload))
            self._environment_cwd = _text(found[1].strip(), _CWD_CHARS_MAX) if found else None
        elif self._answer is None and kind == "message" and role == "assistant":
            self._answer = _text(_message_text(payload))
        elif self._answer is None and kind == "agent_message":
            self._answer = _text(payload.get("message"))

    def _cwd(self) -> str | None:
        stated = self.meta.cwd if self.meta is not None else None
        return stated or self._context_cwd or self._environment_cwd

    def fill(self, facts: RolloutFacts) -> None:
        """Write down what was found."""
        facts.cwd, facts.model = self._cwd(), self._model
        facts.prompt, facts.fallback = self.prompt.text, self._answer
        if self.meta is not None:
            _fill_meta(facts, self.meta)


def _meta_of(line: RolloutLine) -> SessionMeta | None:
    try:
        return decode_meta(line.payload)
    except InvalidLine:
        return None


def _fill_meta(facts: RolloutFacts, meta: SessionMeta) -> None:
    facts.meta_id, facts.created = _text(meta.id), _text(meta.timestamp)
    facts.branch = None if meta.git is None else _text(meta.git.branch)
    facts.source = source_name(meta.source)
    facts.provider, facts.originator = _text(meta.model_provider), _text(meta.originator)
    facts.nickname, facts.parent_id = _text(meta.agent_nickname), _text(meta.parent_thread_id)
    facts.forked_from = _text(meta.forked_from_id)
    if meta.history_base is not None:
        facts.base_rollout = _text(meta.history_base.thread_id)
        facts.fork_ordinal = meta.history_base.end_ordinal_exclusive - 1
    elif meta.forked_from_ordinal_exclusive is not None:
        facts.fork_ordinal = meta.forked_from_ordinal_exclusive - 1
    task = meta.x_task.get("prompt") if isinstance(meta.x_task, dict) else meta.x_task
    facts.fallback = _text(task) or facts.fallback or _text(meta.agent_path)


def source_name(source: Any) -> str:
    """One word for how a thread was started; `unknown` where it says nothing that could be one."""
    if isinstance(source, dict) and len(source) == 1:
        kind, value = next(iter(source.items()))
        return value if kind == "custom" and isinstance(value, str) and value else str(kind)
    return source if isinstance(source, str) and source else "unknown"


def _message_text(payload: dict[str, Any]) -> str:
    content = payload.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = (each.get("text") for each in parts if isinstance(each, dict))
    return "\n".join(each for each in texts if isinstance(each, str))


def _text(value: Any, chars_max: int = _TEXT_CHARS_MAX) -> str | None:
    if not isinstance(value, str) or not value:
        return None
    return value[:chars_max] if chars_max > _TEXT_CHARS_MAX else squeezed(value, chars_max) or None
