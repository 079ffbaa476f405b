"""Sessions of pi (versions 1 to 3) and of omp, which is made from it: one entry a line, a tree by `parentId`.

Invariant: entries are taken in the order of the file. One that goes on from an earlier turn than the last
takes back those in between; the last entry's branch is the one that goes on. Before version 2 entries have no
ids, and the order is the tree.

omp keeps a title in a line of fixed size before the header, and puts large images into files of their own,
named by their hash.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from protocol.items import RolloutItem
from protocol.response_items import ResponseItem
from thread_store.importing.content import data_url, joined_text
from thread_store.importing.conversation import Conversation
from thread_store.importing.json_lines import JsonLine, read_json_lines
from thread_store.importing.plain_reader import PlainReader
from thread_store.importing.source import SourceThread, Step
from thread_store.importing.values import as_mapping, as_moment, as_text

__all__ = ["FORMAT", "PiReader", "looks_like"]

FORMAT = "pi"

_HEAD_LINES = 3
_BLOB = re.compile(r"blob:sha256:([0-9a-f]{64})")
_BLOB_BYTES_MAX = 64 << 20
_ENDS = frozenset({"stop", "length"})


def looks_like(values: list[dict[str, Any]]) -> bool:
    """Whether these first records are pi's or omp's."""
    head = [each for each in values[:_HEAD_LINES] if each.get("type") != "title"]
    return bool(head) and head[0].get("type") == "session" and "cwd" in head[0] and "payload" not in head[0]


class PiReader(PlainReader):
    """One file."""

    @cached_property
    def main(self) -> SourceThread:
        title, header = None, dict[str, Any]()
        for line, _ in zip(read_json_lines(self.path, []), range(_HEAD_LINES), strict=False):
            if line.value.get("type") == "title":
                title = as_text(line.value.get("title"))
            elif line.value.get("type") == "session":
                header = line.value
                break
        return SourceThread(
            format=FORMAT,
            id=as_text(header.get("id")) or self.name,
            path=self.path,
            created_ms=as_moment(header.get("timestamp")) or 0,
            cwd=as_text(header.get("cwd")) or "/",
            originator="omp" if "titleSource" in header or title is not None else "pi",
            version=str(header.get("version", 1)),
            parent=as_text(header.get("parentSession")) or as_text(header.get("branchedFrom")),
            title=title or as_text(header.get("title")),
            branches=True,
        )

    def steps(self) -> Iterator[Step]:
        self.damaged.clear()
        entries = _Entries(self.conversation(), self.path)
        for line in read_json_lines(self.path, self.damaged):
            if line.value.get("type") not in ("session", "title"):
                yield entries.take(line)


class _Entries:
    def __init__(self, talk: Conversation, path: str) -> None:
        self._talk = talk
        self._path = path
        self._turn_of: dict[str, int] = {}
        self._since: list[tuple[str, list[RolloutItem]]] = []
        """What the model sees of the entries behind the last compaction, and of those that it kept."""

    def take(self, line: JsonLine) -> Step:
        entry, talk = line.value, self._talk
        kind = str(entry.get("type"))
        at_ms = as_moment(entry.get("timestamp"))
        back = self._back_to(entry) if kind in ("message", "compaction", "branch_summary") else []
        items = self._items(entry, kind, talk.at(at_ms))
        entry_id = as_text(entry.get("id")) or f"line {line.number}"
        self._turn_of[entry_id] = talk.turns
        title = as_text(entry.get("name")) if kind == "session_info" else None
        title = as_text(entry.get("title")) if kind == "title_change" else title
        if items is None:
            role = as_mapping(entry.get("message")).get("role")
            kept = f"{kind}/{role}" if kind == "message" else kind
            return Step(at_ms, [*back, *talk.kept(entry, offset=line.offset)], kept=kept, title=title)
        self._since.append((entry_id, [each for each in items if isinstance(each, ResponseItem)]))
        return Step(at_ms, [*back, *items], title=title)

    def _back_to(self, entry: dict[str, Any]) -> list[RolloutItem]:
        turn = self._turn_of.get(as_text(entry.get("parentId")) or "")
        if turn is None:
            return []
        back = self._talk.roll_back(self._talk.turns - turn)
        if back:
            self._since = [each for each in self._since if self._turn_of.get(each[0], 0) <= turn]
        return back

    def _items(self, entry: dict[str, Any], kind: str, at_ms: int) -> list[RolloutItem] | None:
        talk = self._talk
        if kind == "message":
            return self._message(as_mapping(entry.get("message")), at_ms)
        if kind == "compaction":
            kept = self._kept_from(entry)
            self._since = kept
            history = [item for _, items in kept for item in items]
            return talk.compaction(as_text(entry.get("summary")) or "", history, at_ms)
        if kind == "branch_summary" and as_text(entry.get("summary")):
            return talk.context(entry["summary"], at_ms)
        if kind == "custom_message":
            return talk.context(joined_text(entry.get("content")), at_ms)
        if kind == "model_change":
            talk.use_model(as_text(entry.get("modelId")) or as_text(entry.get("model")))
        return None

    def _kept_from(self, entry: dict[str, Any]) -> list[tuple[str, list[RolloutItem]]]:
        first = entry.get("firstKeptEntryId")
        for index, (entry_id, _) in enumerate(self._since):
            if entry_id == first:
                return self._since[index:]
        return []

    def _message(self, message: dict[str, Any], at_ms: int) -> list[RolloutItem] | None:
        talk, content = self._talk, message.get("content")
        match message.get("role"):
            case "user":
                return talk.user(joined_text(content), at_ms, images=self._images(content))
            case "assistant":
                return self._replied(message, content, at_ms)
            case "toolResult":
                failed = message.get("isError") is True
                return talk.result(
                    as_text(message.get("toolCallId")), self._output(content), at_ms, failed=failed
                )
            case "bashExecution":
                command = {"command": as_text(message.get("command")) or ""}
                call = talk.call(None, "bash", command, at_ms)
                code = message.get("exitCode")
                done = talk.result(
                    None, as_text(message.get("output")) or "", at_ms, failed=code not in (0, None)
                )
                return [*call, *(done or ())]
            case "custom" | "hookMessage":
                return talk.context(joined_text(content), at_ms)
            case "system":
                return talk.context(joined_text(content), at_ms, role="developer")
        return None

    def _replied(self, message: dict[str, Any], content: Any, at_ms: int) -> list[RolloutItem]:
        talk, items = self._talk, list[RolloutItem]()
        talk.use_model(as_text(message.get("model")))
        last, called = None, False
        for part in content if isinstance(content, list) else [{"type": "text", "text": content}]:
            block = as_mapping(part)
            kind, text = block.get("type"), as_text(block.get("text"))
            if kind == "text" and text:
                items, last = [*items, *talk.assistant(text, at_ms)], text
            elif kind == "thinking":
                signature = as_text(block.get("thinkingSignature"))
                items += talk.thinking(as_text(block.get("thinking")) or "", at_ms, encrypted=signature)
            elif kind == "toolCall":
                called = True
                name = as_text(block.get("name")) or "tool"
                items += talk.call(as_text(block.get("id")), name, block.get("arguments", {}), at_ms)
        reason = as_text(message.get("stopReason"))
        if reason == "aborted":
            return [*items, *talk.abort_turn(at_ms)]
        if reason == "error":
            return [*items, *talk.end_turn(at_ms, error=as_text(message.get("errorMessage")) or "error")]
        return [*items, *talk.end_turn(at_ms, last=last)] if reason in _ENDS and not called else items

    # Images

    def _output(self, content: Any) -> Any:
        images, text = self._images(content), joined_text(content)
        if not images:
            return text
        parts: list[dict[str, Any]] = [{"type": "input_text", "text": text}] if text else []
        return [*parts, *({"type": "input_image", "image_url": url} for url in images)]

    def _images(self, content: Any) -> list[str]:
        blocks = [as_mapping(each) for each in content] if isinstance(content, list) else []
        return [
            url for each in blocks if each.get("type") == "image" and (url := self._image(each)) is not None
        ]

    def _image(self, block: dict[str, Any]) -> str | None:
        data = as_text(block.get("data"))
        named = _BLOB.fullmatch(data or "")
        if named is None:
            return data_url(block.get("mimeType"), data)
        content = _blob(self._path, named[1])
        return (
            data if content is None else data_url(block.get("mimeType"), base64.b64encode(content).decode())
        )


def _blob(path: str, digest: str) -> bytes | None:
    """An image that lies in a file of its own: `<agent>/blobs/<hash>`; None if it isn't there any more."""
    folder = os.path.dirname(os.path.abspath(path))
    for _ in range(4):
        try:
            with open(os.path.join(folder, "blobs", digest), "rb") as file:
                return file.read(_BLOB_BYTES_MAX)
        except (FileNotFoundError, NotADirectoryError):
            folder = os.path.dirname(folder)
    return None
