"""The first prompt: what a person typed first, wherever in a rollout it stands.

Invariant: injected context never counts. Where a prompt is told as an event (or an item), that text counts,
else the message that the model saw. A line that is cut by the end of what was read still gives the
beginning of its text. What is given is on one line, and at most `PROMPT_CHARS_MAX` long.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from protocol.plain_values import squeezed
from protocol.user_texts import INJECTED_PREFIXES, Track, typed_text
from thread_store.context.injected_text import is_injected

__all__ = ["PROMPT_CHARS_MAX", "FirstPrompt", "cut_line_prompt", "late_lines", "shown_prompt"]

PROMPT_CHARS_MAX = 200

_MARKER = re.compile(r"^## My request for Codex:", re.MULTILINE)
"""An editor puts its own words before those of the person, up to this heading."""

_SIGNS = (b"user_message", b"UserMessage", b'"user"')

_STRING = rb'\s*:\s*"((?:[^"\\]|\\.)*)'
_CUT_EVENT = re.compile(rb'"type"\s*:\s*"user_message".*?"message"' + _STRING, re.DOTALL)
_CUT_ITEM = re.compile(rb'"type"\s*:\s*"UserMessage".*?"text"' + _STRING, re.DOTALL)
_CUT_MODEL = re.compile(rb'"role"\s*:\s*"user".*?"(?:text|content)"' + _STRING, re.DOTALL)
_CUT_BYTES = 64 << 10
_KEPT_BYTES = 8 << 10
_LINE_BYTES_MAX = 4 << 20
_OPEN_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?\Z")


class FirstPrompt:
    """Looks at one line after the other, oldest first. `text`: what it has by now."""

    def __init__(self) -> None:
        self.told: str | None = None
        """As an event or an item: nothing later can be better."""
        self.seen: str | None = None
        """As a message for the model."""

    @property
    def text(self) -> str | None:
        return self.told or self.seen

    def look_at(self, kind: str, payload: dict[str, Any]) -> None:
        """Look at the payload of a line."""
        found = typed_text(kind, payload)
        if found is not None:
            self.take(*found)

    def take(self, track: Track, text: str) -> None:
        """Take a text for what was typed first, if it is none that was injected."""
        shown = shown_prompt(text)
        if shown is None or self.told:
            return
        if track is not Track.MODEL:
            self.told = shown
        elif self.seen is None and not is_injected(text):
            self.seen = shown


def shown_prompt(text: str) -> str | None:
    """A prompt as a list shows it; None if nothing is left of it."""
    head, start = text[: 1 << 16], 0
    for marker in _MARKER.finditer(head):  # the last one; `.*` before it would be quadratic
        start = marker.end()
    return squeezed(head[start:].lstrip(), PROMPT_CHARS_MAX) or None


def _may_hold_prompt(line: bytes) -> bool:
    """Whether it is worth decoding."""
    return any(sign in line for sign in _SIGNS)


def cut_line_prompt(data: bytes) -> tuple[Track, str] | None:
    """The beginning of a prompt in a line of which only the beginning is there."""
    head = data[:_CUT_BYTES]
    for track, pattern in ((Track.EVENT, _CUT_EVENT), (Track.ITEM, _CUT_ITEM), (Track.MODEL, _CUT_MODEL)):
        found = pattern.search(head)
        text = _decoded(found[1]) if found else ""
        if text.strip():
            injected = is_injected(text) or text.lstrip().startswith((*INJECTED_PREFIXES, "<"))
            return None if injected else (track, text)
    return None


def _decoded(string: bytes) -> str:
    """The text of a JSON string that may be cut anywhere."""
    text = string[:_KEPT_BYTES].decode(errors="ignore")
    text = _OPEN_ESCAPE.sub("", text) if not text.endswith("\\\\") else text
    try:
        decoded = json.loads(f'"{text}"', strict=False)
    except json.JSONDecodeError:
        return ""
    return decoded if isinstance(decoded, str) else ""


def late_lines(blocks: Iterator[bytes], start: bytes) -> Iterator[bytes]:
    """The lines of the blocks that may hold a prompt; `start` is the beginning of the first one.

    Of a line of more than `_LINE_BYTES_MAX` there is the beginning.
    """
    rest, is_cut = start, False
    for block in blocks:
        first, newline, others = block.partition(b"\n")
        if not is_cut:
            rest += first
        if not newline:
            if len(rest) > _LINE_BYTES_MAX:
                rest, is_cut = rest[:_CUT_BYTES], True
            continue
        lines = [rest, *others.split(b"\n")]
        rest, is_cut = lines.pop(), False
        yield from (line for line in lines if _may_hold_prompt(line))
    if rest and _may_hold_prompt(rest):
        yield rest
