"""What threads are called and labelled, as a list needs it: read when it is first asked for, once.

Invariant: names and labels that can't be read are done without, and noted; they never keep a thread from
being listed.
"""

from __future__ import annotations

import os

from protocol.errors import RolloutUnreadable
from thread_store.home import Home

__all__ = ["ThreadNames"]


class ThreadNames:
    """The names and labels of the threads of one home."""

    def __init__(self, home: Home) -> None:
        self._home = os.fspath(home.path)
        self._names: dict[str, str] | None = None
        self._labels: dict[str, list[str]] | None = None
        self.notes: list[str] = []

    def name(self, thread_id: str) -> str | None:
        """What a person called the thread."""
        if self._names is None:
            self._names = self._read_names()
        return self._names.get(thread_id)

    def labels(self, thread_id: str) -> tuple[str, ...]:
        """The labels that stick to it, sorted."""
        if self._labels is None:
            self._labels = self._read_labels()
        return tuple(self._labels.get(thread_id, ()))

    def _read_names(self) -> dict[str, str]:
        if not os.path.lexists(os.path.join(self._home, "session_index.jsonl")):
            return {}
        from thread_store.titles.session_index import SessionIndex

        try:
            return SessionIndex(self._home).names()
        except RolloutUnreadable as error:
            self.notes.append(error.message)
            return {}

    def _read_labels(self) -> dict[str, list[str]]:
        if not os.path.lexists(os.path.join(self._home, "thread-store", "labels.jsonl")):
            return {}
        from thread_store.titles.thread_labels import ThreadLabels

        try:
            return ThreadLabels(self._home).labels()
        except RolloutUnreadable as error:
            self.notes.append(error.message)
            return {}
