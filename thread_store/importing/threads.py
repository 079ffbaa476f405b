"""The ids under which foreign conversations are recorded here.

Invariant: an id follows from the format and the conversation's own id, and from when it began: whoever
imports it, wherever the file lies, gets the same thread.
"""

from __future__ import annotations

from protocol.ids import ThreadId
from thread_store.importing.conversation import Conversation, derived_uuid
from thread_store.importing.source import SourceThread

__all__ = ["ThreadNames", "thread_id_of"]


def thread_id_of(thread: SourceThread) -> ThreadId:
    """Under which id it is recorded. An id that is a UUID by itself stays what it is."""
    return ThreadId(derived_uuid(thread.created_ms, thread.format, thread.id))


class ThreadNames:
    """The conversations of one source, each made once."""

    def __init__(self, format: str) -> None:
        self._format = format

    def conversation(self, thread: SourceThread) -> Conversation:
        return Conversation(
            thread_id_of(thread),
            format=self._format,
            path=thread.path,
            created_ms=thread.created_ms,
            cwd=thread.cwd,
        )
