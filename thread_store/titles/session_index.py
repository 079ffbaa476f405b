"""The session index: what people named their threads (`<home>/session_index.jsonl`, as Codex writes it).

Invariant: the last line of a thread wins; a line that can't be read, or whose name is blank, says nothing.
A name is one line of text, bounded, and never decides anything but what is shown and found by title.
"""

from __future__ import annotations

import os

import msgspec
from msgspec import Struct

from protocol.codec import encode_value
from protocol.errors import InvalidThreadId
from protocol.ids import ThreadId
from protocol.plain_values import squeezed
from protocol.timestamps import format_timestamp, now_ms
from thread_store.titles.shared_file import SharedCalls, SharedFile

__all__ = ["NAME_CHARS_MAX", "SessionIndex", "checked_name", "read_names"]

NAME_CHARS_MAX = 500


class _Line(Struct):
    id: str
    thread_name: str


_decode = msgspec.json.Decoder(_Line).decode


class SessionIndex:
    """The names of the threads of one home."""

    def __init__(self, home: str | os.PathLike[str], *, calls: SharedCalls | None = None) -> None:
        path = os.path.join(os.path.realpath(home), "session_index.jsonl")
        self._file = SharedFile(path, lock_path=f"{path}.lock", calls=calls)
        self.path = path

    def append(self, thread_id: str, name: str, *, at_ms: int | None = None) -> str:
        """Name a thread; returns the name as it was written: on one line, cut to `NAME_CHARS_MAX`. On return
        it is on stable storage. Needs no lock of the thread: a live one can be named.

        Raises:
            InvalidThreadId: the id is no UUID.
            ValueError: the name is blank.
            RolloutWriteError: it can't be appended; nothing was.
        """
        wanted, written = ThreadId.parse(thread_id), checked_name(name)
        line = {
            "id": str(wanted),
            "thread_name": written,
            "updated_at": format_timestamp(now_ms() if at_ms is None else at_ms),
        }
        self._file.append(encode_value(line) + b"\n")
        return written

    def names(self) -> dict[str, str]:
        """The names by thread id.

        Raises:
            RolloutUnreadable: the system refuses.
        """
        return read_names(self._file.read())

    def status(self) -> tuple[int, int, int] | None:
        """What tells that nothing was appended; None if there is no such file."""
        return self._file.status()


def checked_name(name: str) -> str:
    """A name as it is kept.

    Raises:
        ValueError: it is blank.
    """
    kept = squeezed(name, NAME_CHARS_MAX)
    if not kept:
        raise ValueError("a name that is blank names nothing")
    return kept


def read_names(content: bytes) -> dict[str, str]:
    """The names in the lines of a session index."""
    names: dict[str, str] = {}
    for line in content.split(b"\n"):
        try:
            found = _decode(line)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            continue  # blank, torn, damaged, or of another kind
        name = squeezed(found.thread_name, NAME_CHARS_MAX)
        if name:
            names[_id_text(found.id)] = name
    return names


def _id_text(text: str) -> str:
    try:
        return ThreadId.parse(text)
    except InvalidThreadId:
        return text
