"""What the readers of linear sources share: one conversation, one thread."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from typing import Any

from protocol.errors import InvalidLine
from rollout.source import raise_unreadable
from thread_store.importing.conversation import Conversation
from thread_store.importing.json_lines import parse_json
from thread_store.importing.source import SourceDamage, SourceThread

__all__ = ["PlainReader"]


class PlainReader(ABC):
    """A source that holds one conversation. Its subclass says `main` and the steps."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.damaged: list[SourceDamage] = []

    @property
    @abstractmethod
    def main(self) -> SourceThread:
        """Whose conversation it is."""

    def threads(self) -> list[SourceThread]:
        return [self.main]

    def sub_thread(self, sub: str) -> SourceThread:
        raise LookupError(f"{self.path} has no sub-agents, and none is called {sub!r}")

    def read_document(self) -> dict[str, Any]:
        """The file as one JSON object; an empty one if it is none, which is told as damage.

        Raises:
            RolloutUnreadable: the system refuses.
        """
        self.damaged.clear()
        try:
            with open(self.path, "rb") as file:
                data = file.read()
        except OSError as error:
            raise_unreadable(self.path, error, "read")
        try:
            return parse_json(data)
        except InvalidLine as error:
            self.damaged.append(
                SourceDamage(path=self.path, line=None, offset=0, bytes=len(data), reason=error.detail)
            )
            return {}

    def conversation(self) -> Conversation:
        """A fresh one."""
        return Conversation(self.main)

    @property
    def name(self) -> str:
        """What a conversation is called that says no id: as its file is, wherever that lies."""
        return os.path.basename(self.path)
