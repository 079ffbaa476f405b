"""Trajectories in ATIF (Agent Trajectory Interchange Format, 1.0 to 1.8): one document, step by step.

Invariant: a step is one answer of the model with its calls and what they gave back. Steps that were copied
from another trajectory as context are the model's, not the person's.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

from thread_store.importing.content import data_url
from thread_store.importing.conversation import Conversation
from thread_store.importing.plain_reader import PlainReader
from thread_store.importing.source import SourceThread, Step
from thread_store.importing.values import as_list, as_mapping, as_moment, as_text

__all__ = ["FORMAT", "AtifReader", "looks_like"]

FORMAT = "atif"


def looks_like(values: list[dict[str, Any]]) -> bool:
    """Whether this document is a trajectory."""
    first = values[0] if values else {}
    version = first.get("schema_version")
    has_steps = isinstance(first.get("steps"), list) and isinstance(first.get("agent"), dict)
    return has_steps and (version is None or (isinstance(version, str) and version.startswith("ATIF")))


class AtifReader(PlainReader):
    """One trajectory."""

    @cached_property
    def main(self) -> SourceThread:
        document = self._document
        agent = as_mapping(document.get("agent"))
        stamps = (as_mapping(each).get("timestamp") for each in as_list(document.get("steps")))
        times = map(as_moment, stamps)
        name = as_text(document.get("session_id")) or as_text(document.get("trajectory_id"))
        return SourceThread(
            format=FORMAT,
            id=name or self.name,
            path=self.path,
            created_ms=next((each for each in times if each is not None), None) or 0,
            originator=as_text(agent.get("name")) or "atif",
            version=as_text(agent.get("version")) or "",
        )

    @cached_property
    def _document(self) -> dict[str, Any]:
        return self.read_document()

    def steps(self) -> Iterator[Step]:
        talk = self.conversation()
        talk.use_model(as_text(as_mapping(self._document.get("agent")).get("model_name")))
        for each in as_list(self._document.get("steps")):
            step = as_mapping(each)
            yield _step_of(step, talk)
        for name in ("final_metrics", "subagent_trajectories", "notes", "extra"):
            if self._document.get(name):
                yield Step(None, talk.kept({name: self._document[name]}), kept=name)


def _step_of(step: dict[str, Any], talk: Conversation) -> Step:
    at_ms = as_moment(step.get("timestamp"))
    now, source = talk.at(at_ms), step.get("source")
    text, images = _message(step.get("message"))
    if source == "user" and step.get("is_copied_context") is not True:
        return Step(at_ms, talk.user(text, now, images=images))
    if source in ("user", "system"):
        role = "user" if source == "user" else "developer"
        return Step(at_ms, talk.context(text or _observed(step), now, role=role))
    if source != "agent":
        return Step(at_ms, talk.kept(step), kept=f"step/{source}")
    talk.use_model(as_text(step.get("model_name")))
    items = talk.thinking(as_text(step.get("reasoning_content")) or "", now)
    if text:
        items = [*items, *talk.assistant(text, now)]
    calls = [as_mapping(each) for each in as_list(step.get("tool_calls"))]
    for call in calls:
        name = as_text(call.get("function_name")) or "tool"
        items = [*items, *talk.call(as_text(call.get("tool_call_id")), name, call.get("arguments", {}), now)]
    for each in as_list(as_mapping(step.get("observation")).get("results")):
        result = as_mapping(each)
        content, _ = _message(result.get("content"))
        made = talk.result(as_text(result.get("source_call_id")), content, now)
        items = [*items, *(talk.context(content, now) if made is None and content else made or ())]
    return Step(at_ms, items if calls else [*items, *talk.end_turn(now, last=text or None)])


def _observed(step: dict[str, Any]) -> str:
    results = as_list(as_mapping(step.get("observation")).get("results"))
    return "\n".join(_message(as_mapping(each).get("content"))[0] for each in results)


def _message(content: Any) -> tuple[str, list[str]]:
    """Its text and its images."""
    if isinstance(content, str):
        return content, []
    parts = [as_mapping(each) for each in content] if isinstance(content, list) else []
    texts = [as_text(part.get("text")) for part in parts]
    sources = [as_mapping(part.get("source")) for part in parts if part.get("type") == "image"]
    urls = [
        as_text(each.get("url") or each.get("path")) or data_url(each.get("media_type"), each.get("data"))
        for each in sources
    ]
    return "\n".join(filter(None, texts)), [url for url in urls if url is not None]
