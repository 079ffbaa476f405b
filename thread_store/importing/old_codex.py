"""Rollouts that Codex wrote before its lines had envelopes: bare items, or one document.

Invariant: each item is what it was, on both tracks. Such a rollout is read and searched as it is; it is
imported so that it can go on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from itertools import islice
from typing import Any

from protocol.errors import NotARollout
from protocol.items import RolloutItem
from protocol.meta import GitInfo, SessionMeta, meta_of
from rollout.head import find_head
from rollout.reader import read_rollout
from rollout.source import open_source
from thread_store.context.injected_text import is_injected
from thread_store.importing.content import joined_text
from thread_store.importing.conversation import Conversation
from thread_store.importing.plain_reader import PlainReader
from thread_store.importing.source import SourceDamage, SourceThread, Step
from thread_store.importing.values import as_mapping, as_moment, as_text

__all__ = ["FORMAT", "OldCodexReader", "is_old"]

FORMAT = "codex"

_HEAD_RECORDS = 40
_CWD = re.compile(r"<environment_context>.*?<cwd>([^<]+)</cwd>", re.DOTALL)


def is_old(path: str) -> bool:
    """Whether a file is a rollout from before the envelope. Raises RolloutUnreadable."""
    return _old_meta(path) is not None


def _old_meta(path: str) -> SessionMeta | None:
    source = open_source(path)
    try:
        head = find_head(source)
    except NotARollout:
        return None
    finally:
        source.close()
    line = None if head.meta is None else head.meta.line
    return meta_of(line) if line is not None and line.upcast_from is not None else None


class OldCodexReader(PlainReader):
    """One file."""

    @cached_property
    def main(self) -> SourceThread:
        meta = _old_meta(self.path)
        stamp = None if meta is None else as_moment(meta.timestamp)
        return SourceThread(
            format=FORMAT,
            id=meta.id if meta is not None and meta.id else self.name,
            path=self.path,
            created_ms=stamp or 0,
            cwd=(meta.cwd if meta is not None and meta.cwd else _cwd_of(self.path)) or "/",
            git=_git_of(meta),
            originator=meta.originator if meta is not None else "codex",
            version=meta.cli_version if meta is not None else "",
            branches=True,
        )

    def steps(self) -> Iterator[Step]:
        self.damaged.clear()
        talk = self.conversation()
        for record in read_rollout(self.path):
            line = record.line
            if line is None:
                self._note(record.warning)
            elif line.type != "session_meta":
                at_ms = as_moment(line.timestamp)
                payload = as_mapping(line.payload_object())
                items = _items(payload, talk, talk.at(at_ms)) if line.type == "response_item" else None
                if items is None:
                    yield Step(at_ms, talk.kept(payload, offset=record.offset), kept=line.type or "line")
                else:
                    yield Step(at_ms, items)

    def _note(self, warning: Any) -> None:
        if warning is not None:
            self.damaged.append(
                SourceDamage(
                    path=self.path,
                    line=warning.line_no,
                    offset=warning.offset_bytes,
                    bytes=warning.size_bytes,
                    reason=warning.message,
                )
            )


def _items(payload: dict[str, Any], talk: Conversation, at_ms: int) -> list[RolloutItem] | None:
    """On both tracks: what has no events was shown by its items alone."""
    kind, call_id = str(payload.get("type")), as_text(payload.get("call_id")) or as_text(payload.get("id"))
    if kind == "message":
        text = joined_text(payload.get("content"))
        if payload.get("role") == "assistant":
            return talk.assistant(text, at_ms)
        if payload.get("role") != "user":
            return talk.context(text, at_ms, role="developer")
        return talk.context(text, at_ms) if is_injected(text) else talk.user(text, at_ms)
    if kind == "reasoning":
        text = joined_text(payload.get("summary"))
        return talk.thinking(text, at_ms, encrypted=as_text(payload.get("encrypted_content")))
    if kind in ("function_call", "custom_tool_call"):
        arguments = payload.get("arguments", payload.get("input", ""))
        return talk.call(call_id, as_text(payload.get("name")) or "tool", arguments, at_ms)
    if kind == "local_shell_call":
        return talk.call(call_id, "shell", as_mapping(payload.get("action")), at_ms)
    if kind.endswith("_call_output"):
        output = payload.get("output")
        return talk.result(call_id, output if isinstance(output, str) else joined_text(output), at_ms)
    return None


def _cwd_of(path: str) -> str | None:
    """As the first context says: the header of those times has none."""
    for record in islice(read_rollout(path), _HEAD_RECORDS):
        if record.line is not None and record.line.type == "response_item":
            payload = as_mapping(record.line.payload_object())
            found = _CWD.search(joined_text(payload.get("content")))
            if found is not None:
                return found[1]
    return None


def _git_of(meta: SessionMeta | None) -> GitInfo | None:
    return None if meta is None else meta.git
