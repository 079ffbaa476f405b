"""Gemini CLI's sessions: a document with all messages, or (since 0.40) a log of them and of `$set` patches.

Invariant: a message counts once, in the place where its id came first, as it was said last. What a patch took
out was said all the same: it stays, and the patch is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

from protocol.items import RolloutItem
from thread_store.importing.content import data_url
from thread_store.importing.conversation import Conversation
from thread_store.importing.json_lines import read_json_lines
from thread_store.importing.plain_reader import PlainReader
from thread_store.importing.source import SourceThread, Step
from thread_store.importing.values import as_json, as_list, as_mapping, as_moment, as_text

__all__ = ["FORMAT", "GeminiCliReader", "looks_like"]

FORMAT = "gemini-cli"

_REPLIES = ("gemini", "model")


def looks_like(values: list[dict[str, Any]]) -> bool:
    """Whether these first records, or this document, are Gemini CLI's."""
    first = values[0] if values else {}
    if "sessionId" not in first:
        return False
    if isinstance(first.get("messages"), list):
        return "startTime" in first or "projectHash" in first
    return "projectHash" in first and "startTime" in first


class GeminiCliReader(PlainReader):
    """One file."""

    @cached_property
    def main(self) -> SourceThread:
        head = self._records[0] if self._records else {}
        return SourceThread(
            format=FORMAT,
            id=as_text(head.get("sessionId")) or self.name,
            path=self.path,
            created_ms=as_moment(head.get("startTime")) or 0,
            originator="gemini-cli",
            title=as_text(head.get("summary")),
        )

    @cached_property
    def _records(self) -> list[dict[str, Any]]:
        self.damaged.clear()
        if not self.path.endswith(".json"):
            return [each.value for each in read_json_lines(self.path, self.damaged)]
        return [self.read_document()]

    def steps(self) -> Iterator[Step]:
        talk = self.conversation()
        messages, other = self._messages()
        for message in messages:
            yield _step(message, talk)
        for record in other:
            yield Step(None, talk.kept(record), kept="$set" if "$set" in record else "record")

    def _messages(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """And what is none."""
        found: dict[Any, dict[str, Any]] = {}
        other: list[dict[str, Any]] = []

        def take(message: Any) -> None:
            if not isinstance(message, dict):
                other.append({"message": message})
            else:
                found[as_text(message.get("id")) or len(found)] = message

        for number, record in enumerate(self._records):
            patch = record.get("$set")
            batch = record.get("messages") if number == 0 else as_mapping(patch).get("messages")
            if isinstance(batch, list):
                known = set(found)
                for message in batch:
                    take(message)
                if patch is not None and known - {as_text(as_mapping(each).get("id")) for each in batch}:
                    other.append(record)  # it took some out
            elif patch is not None:
                other.extend([record] if set(as_mapping(patch)) - {"lastUpdated"} else [])
            elif number or "type" in record:
                take(record)
        return list(found.values()), other


def _step(message: dict[str, Any], talk: Conversation) -> Step:
    at_ms = as_moment(message.get("timestamp"))
    now = talk.at(at_ms)
    kind = message.get("type")
    if kind == "user":
        return Step(at_ms, _asked(message, talk, now))
    if kind in _REPLIES:
        return Step(at_ms, _replied(message, talk, now))
    return Step(at_ms, talk.kept(message), kept=f"message/{kind}")


def _asked(message: dict[str, Any], talk: Conversation, at_ms: int) -> list[RolloutItem]:
    sent, images = _parts(message.get("content"))
    shown, _ = _parts(message.get("displayContent"))
    if sent.lstrip().startswith("<session_context>"):
        return talk.context(sent, at_ms)
    return talk.user(shown or sent, at_ms, images=images, sent=sent)


def _parts(content: Any) -> tuple[str, list[str]]:
    parts = content if isinstance(content, list) else [content]
    texts, images = [], []
    for part in parts:
        if isinstance(part, str):
            texts.append(part)
            continue
        given = as_mapping(part)
        texts.append(as_text(given.get("text")) or "")
        data = as_mapping(given.get("inlineData"))
        url = data_url(data.get("mimeType"), data.get("data"))
        images += [url] if url is not None else []
    return "\n".join(filter(None, texts)), images


def _replied(message: dict[str, Any], talk: Conversation, at_ms: int) -> list[RolloutItem]:
    talk.use_model(as_text(message.get("model")))
    items: list[RolloutItem] = []
    for thought in as_list(message.get("thoughts")):
        given = as_mapping(thought)
        words = (given.get("subject"), given.get("description"), given.get("text"))
        items += talk.thinking("\n".join(each for each in words if isinstance(each, str)), at_ms)
    text, _ = _parts(message.get("content"))
    if text:
        items += talk.assistant(text, at_ms)
    calls = [each for each in as_list(message.get("toolCalls")) if isinstance(each, dict)]
    for call in calls:
        items += _called(call, talk, at_ms)
    return items if calls else [*items, *talk.end_turn(at_ms, last=text or None)]


def _called(call: dict[str, Any], talk: Conversation, at_ms: int) -> list[RolloutItem]:
    call_id, name = as_text(call.get("id")), as_text(call.get("name")) or "tool"
    at_ms = as_moment(call.get("timestamp")) or at_ms
    items = talk.call(call_id, name, call.get("args", {}), at_ms)
    output = _output(call)
    if output is None:
        return items
    failed = call.get("status") in ("error", "cancelled")
    return [*items, *(talk.result(call_id, output, at_ms, failed=failed) or ())]


def _output(call: dict[str, Any]) -> str | None:
    """What the model got; else what was shown."""
    texts = []
    results = call.get("result")
    for part in results if isinstance(results, list) else [results]:
        response = as_mapping(as_mapping(part).get("functionResponse")).get("response")
        given = as_mapping(response)
        said = given.get("output", given.get("error", response))
        if said is not None:
            texts.append(as_json(said))
        elif isinstance(part, dict) and part:
            texts.append(as_text(part.get("text")) or as_json(part))
    if texts:
        return "\n".join(texts)
    shown = call.get("resultDisplay")
    return None if shown is None else as_json(shown)
