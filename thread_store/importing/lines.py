"""The lines of an imported thread: its meta, then what its source says, step by step.

Invariant: they follow from the source alone. Times are the source's own and never step back; records are
numbered where the thread is paginated.
"""

from __future__ import annotations

from protocol.codec import encode_item
from protocol.items import RolloutItem
from protocol.meta import SessionMeta
from protocol.timestamps import format_timestamp
from thread_store.importing.source import SourceThread
from thread_store.importing.threads import thread_id_of

__all__ = ["ThreadLines"]


class ThreadLines:
    """Encodes one thread. `parent_id`: the thread that it was started by."""

    def __init__(self, thread: SourceThread, *, parent_id: str | None = None) -> None:
        self._numbered = not thread.branches
        self._next = 0
        self._at_ms = max(0, thread.created_ms)
        self._stamp = format_timestamp(self._at_ms)
        self.thread_id = thread_id_of(thread)
        self.meta = SessionMeta(
            id=self.thread_id,
            session_id=parent_id or self.thread_id,
            parent_thread_id=parent_id,
            timestamp=self._stamp,
            cwd=thread.cwd,
            originator=thread.originator,
            cli_version=thread.version or "unknown",
            source="cli" if parent_id is None else _subagent_of(parent_id),
            git=thread.git,
            history_mode="paginated" if self._numbered else "legacy",
        )

    def first(self) -> bytes:
        """The line of the meta."""
        return self._line(self.meta.filled(thread_id=self.thread_id, timestamp=self.meta.timestamp or ""))

    def of_step(self, items: list[RolloutItem], at_ms: int | None) -> bytes:
        """The lines of what was said at a moment; without one, at that of what stands before."""
        if at_ms is not None and at_ms > self._at_ms:
            self._at_ms, self._stamp = at_ms, format_timestamp(at_ms)
        return b"".join(map(self._line, items))

    def _line(self, item: RolloutItem) -> bytes:
        ordinal = None
        if self._numbered and not item.record_type.startswith("x_"):
            ordinal, self._next = self._next, self._next + 1
        return encode_item(item, timestamp=self._stamp, ordinal=ordinal)


def _subagent_of(parent_id: str) -> dict[str, object]:
    return {"subagent": {"thread_spawn": {"parent_thread_id": parent_id, "depth": 1}}}
