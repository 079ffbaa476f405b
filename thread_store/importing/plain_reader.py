"""What the readers of linear sources share: one conversation, one thread."""

from __future__ import annotations

import os
from typing import Any

from rollout.source import raise_unreadable
from thread_store.importing.conversation import Conversation
from thread_store.importing.json_lines import parse_json
from thread_store.importing.source import SourceDamage, SourceThread
from thread_store.importing.threads import thread_id_of

__all__ = ["PlainReader", "as_mapping", "as_text", "mtime_ms"]


class PlainReader:
    """A source that holds one conversation. Its subclass says `main` and the steps."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.damaged: list[SourceDamage] = []

    @property
    def main(self) -> SourceThread:
        """Whose conversation it is."""
        raise NotImplementedError

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
            return as_mapping(parse_json(data))
        except ValueError as error:
            self.damaged.append(
                SourceDamage(path=self.path, line=None, offset=0, bytes=len(data), reason=str(error))
            )
            return {}

    def conversation(self) -> Conversation:
        """A fresh one."""
        main = self.main
        return Conversation(
            thread_id_of(main),
            format=main.format,
            path=main.path,
            created_ms=main.created_ms,
            cwd=main.cwd,
        )


def as_text(value: Any) -> str | None:
    """A text that says something."""
    return value if isinstance(value, str) and value else None


def as_mapping(value: Any) -> dict[str, Any]:
    """An object, or an empty one."""
    return value if isinstance(value, dict) else {}


def mtime_ms(path: str) -> int:
    """When the file was written last: for a source that tells no time."""
    return os.stat(path).st_mtime_ns // 1_000_000
