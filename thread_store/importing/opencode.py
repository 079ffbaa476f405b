"""opencode's sessions as it exports them: `{"info": …, "messages": [{"info", "parts"}]}`.

Invariant: call and answer are one part there, and two items here. What a revert hides was said all the same:
it is taken back, not left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

from protocol.items import RolloutItem
from thread_store.importing.conversation import Conversation
from thread_store.importing.plain_reader import PlainReader
from thread_store.importing.source import SourceThread, Step
from thread_store.importing.values import as_list, as_mapping, as_text

__all__ = ["FORMAT", "OpencodeReader", "looks_like"]

FORMAT = "opencode"

_LATEST_MS = 253_402_214_400_000
"""The last day but one that has a date: of the year 9999."""


def looks_like(values: list[dict[str, Any]]) -> bool:
    """Whether this document is opencode's."""
    first = values[0] if values else {}
    info = first.get("info")
    return isinstance(info, dict) and isinstance(first.get("messages"), list) and "id" in info


class OpencodeReader(PlainReader):
    """One exported document."""

    @cached_property
    def main(self) -> SourceThread:
        info = as_mapping(self._document.get("info"))
        return SourceThread(
            format=FORMAT,
            id=as_text(info.get("id")) or self.name,
            path=self.path,
            created_ms=_ms(as_mapping(info.get("time")).get("created")) or 0,
            cwd=as_text(info.get("directory")) or "/",
            originator="opencode",
            version=as_text(info.get("version")) or "",
            parent=as_text(info.get("parentID")),
            title=as_text(info.get("title")),
            branches=True,
        )

    @cached_property
    def _document(self) -> dict[str, Any]:
        return self.read_document()

    def steps(self) -> Iterator[Step]:
        talk = self.conversation()
        reverted = as_text(as_mapping(as_mapping(self._document.get("info")).get("revert")).get("messageID"))
        turns_before: int | None = None
        compacting = False
        for each in as_list(self._document.get("messages")):
            message = as_mapping(each)
            info = as_mapping(message.get("info"))
            if reverted is not None and info.get("id") == reverted:
                turns_before = talk.turns
            parts = [as_mapping(part) for part in as_list(message.get("parts"))]
            at_ms = _ms(as_mapping(info.get("time")).get("created"))
            if info.get("role") == "user":
                compacting = any(part.get("type") == "compaction" for part in parts)
                yield from _asked(parts, talk, at_ms)
            elif compacting and info.get("summary") is True:
                compacting = False
                text = "\n".join(filter(None, (as_text(part.get("text")) for part in parts)))
                yield Step(at_ms, talk.compaction(text, [], talk.at(at_ms)))
            else:
                yield from _replied(info, parts, talk, at_ms)
        if turns_before is not None:
            yield Step(None, talk.roll_back(talk.turns - turns_before))


def _asked(parts: list[dict[str, Any]], talk: Conversation, at_ms: int | None) -> Iterator[Step]:
    typed, images = [], []
    now = talk.at(at_ms)
    for part in parts:
        kind, text = part.get("type"), as_text(part.get("text"))
        if kind == "text" and text is not None and part.get("synthetic") is not True:
            typed.append(text)
        elif kind == "text" and text is not None:
            yield Step(at_ms, talk.context(text, now))
        elif kind == "file" and str(part.get("mime", "")).startswith("image/") and as_text(part.get("url")):
            images.append(part["url"])
        else:
            yield Step(at_ms, talk.kept(part), kept=f"part/{kind}")
    if typed or images:
        yield Step(at_ms, talk.user("\n".join(typed), now, images=images))


def _replied(
    info: dict[str, Any], parts: list[dict[str, Any]], talk: Conversation, at_ms: int | None
) -> Iterator[Step]:
    talk.use_model(as_text(info.get("modelID")))
    now, last = talk.at(at_ms), None
    for part in parts:
        kind, text = part.get("type"), as_text(part.get("text"))
        if kind == "text":
            last = text or last
            yield Step(at_ms, talk.assistant(text, now) if text else [])
        elif kind == "reasoning":
            yield Step(at_ms, talk.thinking(text or "", now))
        elif kind == "tool":
            yield _called(part, talk, at_ms)
        else:
            yield Step(at_ms, talk.kept(part), kept=f"part/{kind}")
    ended = _ms(as_mapping(info.get("time")).get("completed")) or at_ms
    error = info.get("error")
    if error is not None:
        yield Step(ended, talk.end_turn(talk.at(ended), error=str(as_mapping(error).get("name") or error)))
    elif info.get("finish") == "stop":
        yield Step(ended, talk.end_turn(talk.at(ended), last=last))


def _called(part: dict[str, Any], talk: Conversation, at_ms: int | None) -> Step:
    state = as_mapping(part.get("state"))
    time = as_mapping(state.get("time"))
    begun, ended = _ms(time.get("start")) or at_ms, _ms(time.get("end")) or at_ms
    call_id, name = as_text(part.get("callID")), as_text(part.get("tool")) or "tool"
    items: list[RolloutItem] = talk.call(call_id, name, state.get("input", {}), talk.at(begun))
    if state.get("status") in ("completed", "error"):
        failed = state.get("status") == "error"
        output = state.get("error") if failed else state.get("output")
        items += (
            talk.result(call_id, output if isinstance(output, str) else "", talk.at(ended), failed=failed)
            or []
        )
    return Step(begun, items)


def _ms(value: Any) -> int | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return int(value) if is_number and 0 <= value <= _LATEST_MS else None
