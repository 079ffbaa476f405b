"""The prompt history: what a person typed, over all threads (`<home>/history.jsonl`, as Codex writes it).

Invariant: a line for each prompt, oldest first; a line that can't be read says nothing. It serves to type a
prompt again and is no part of any thread: what a thread was told stands in its rollout.
"""

from __future__ import annotations

import os
import time
from typing import NamedTuple

import msgspec
from msgspec import Struct

from protocol.codec import encode_value
from protocol.ids import ThreadId
from thread_store.titles.shared_file import SharedCalls, SharedFile

__all__ = ["Prompt", "PromptHistory"]


class Prompt(NamedTuple):
    """Something that was typed, when (seconds since the epoch), and in which thread."""

    thread_id: str
    at_seconds: int
    text: str


class _Line(Struct):
    text: str
    ts: int = 0
    session_id: str | None = None
    conversation_id: str | None = None
    """How older versions of Codex call `session_id`."""


_decode = msgspec.json.Decoder(_Line).decode


class PromptHistory:
    """The prompts that were typed into the threads of one home."""

    def __init__(self, home: str | os.PathLike[str], *, calls: SharedCalls | None = None) -> None:
        self.path = os.path.join(os.path.realpath(home), "history.jsonl")
        self._file = SharedFile(self.path, calls=calls)

    def append(self, thread_id: str, text: str, *, at_seconds: int | None = None) -> None:
        """Add a prompt. On return it is on stable storage.

        Raises:
            InvalidThreadId: the id is no UUID.
            RolloutWriteError: it can't be appended; nothing was.
        """
        at = int(time.time()) if at_seconds is None else at_seconds
        line = {"session_id": str(ThreadId.parse(thread_id)), "ts": at, "text": text}
        self._file.append(encode_value(line) + b"\n")

    def prompts(self) -> list[Prompt]:
        """All of them, oldest first.

        Raises:
            RolloutUnreadable: the system refuses.
        """
        found = []
        for line in self._file.read().split(b"\n"):
            try:
                read = _decode(line)
            except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
                continue  # blank, torn, or damaged
            found.append(Prompt(read.session_id or read.conversation_id or "", read.ts, read.text))
        return found
