"""Labels: words that a person sticks to a thread and takes off again (`<home>/thread-store/labels.jsonl`).

Invariant: a line says what was added and what was taken away, so that two programs that label one thread at
once lose nothing of each other. A label is one word without white space, and is compared as it stands.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

import msgspec
from msgspec import Struct

from protocol.codec import encode_value
from protocol.ids import ThreadId
from protocol.timestamps import format_timestamp, now_ms
from thread_store.titles.shared_file import SharedCalls, SharedFile

__all__ = ["LABEL_CHARS_MAX", "ThreadLabels"]

LABEL_CHARS_MAX = 60


class _Line(Struct):
    id: str
    add: list[str] = []
    remove: list[str] = []


_decode = msgspec.json.Decoder(_Line).decode


class ThreadLabels:
    """The labels of the threads of one home."""

    def __init__(self, home: str | os.PathLike[str], *, calls: SharedCalls | None = None) -> None:
        self.path = os.path.join(os.path.realpath(home), "thread-store", "labels.jsonl")
        self._file = SharedFile(self.path, calls=calls)

    def change(self, thread_id: str, *, add: Iterable[str] = (), remove: Iterable[str] = ()) -> list[str]:
        """Add labels and take others away; returns those that the thread has then, sorted. On return it is
        on stable storage; where it changes nothing, nothing is written.

        Raises:
            InvalidThreadId: the id is no UUID.
            ValueError: one is no label.
            RolloutUnreadable, RolloutWriteError: the system refuses; nothing was changed.
        """
        wanted = ThreadId.parse(thread_id)
        added, removed = [_checked(each) for each in add], [_checked(each) for each in remove]
        before = set(self.labels().get(wanted, ()))
        after = (before | set(added)) - set(removed)
        if after != before:
            line = {
                "id": str(wanted),
                "add": added,
                "remove": removed,
                "updated_at": format_timestamp(now_ms()),
            }
            self._file.append(encode_value(line) + b"\n")
        return sorted(after)

    def labels(self) -> dict[str, list[str]]:
        """The labels by thread id, sorted; a thread without any isn't there.

        Raises:
            RolloutUnreadable: the system refuses.
        """
        found: dict[str, set[str]] = {}
        for line in self._file.read().split(b"\n"):
            try:
                read = _decode(line)
            except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
                continue  # blank, torn, or damaged
            labels = found.setdefault(read.id, set())
            labels.update(read.add)
            labels.difference_update(read.remove)
        return {thread_id: sorted(labels) for thread_id, labels in found.items() if labels}


def _checked(label: str) -> str:
    if (
        not label
        or len(label) > LABEL_CHARS_MAX
        or label != "".join(label.split())
        or not label.isprintable()
    ):
        raise ValueError(
            f"{label[:80]!r} is no label: one word of at most {LABEL_CHARS_MAX} characters, without spaces"
        )
    return label
