"""A sink that keeps a rollout in memory: for tests, and for agents that shall leave nothing on disk.

Invariant: it holds the very bytes that a file would hold. It never fails and is never disturbed;
durable is what was appended, until the process ends.
"""

from __future__ import annotations

from collections.abc import Callable

from rollout.backlog import Backlog, Chunk

__all__ = ["MemorySink"]


class MemorySink:
    """As `rollout.sink.Sink` has it. `content` is the rollout; it outlives the sink."""

    def __init__(self, path: str, content: bytearray, *, on_close: Callable[[], None]) -> None:
        self.path = path
        self.epoch = 0
        self._content = content
        self._created = bool(content)
        self._on_close = on_close

    @property
    def end_bytes(self) -> int:
        return len(self._content)

    @property
    def created(self) -> bool:
        return self._created

    def create(self, backlog: Backlog) -> None:
        self._created = True

    def append(self, chunk: Chunk) -> None:
        chunk.offset = len(self._content)
        self._content += chunk.data
        chunk.handed = len(chunk.data)

    def verify(self) -> None:
        return

    def sync_job(self, backlog: Backlog) -> Callable[[], None]:
        return lambda: None

    def sync_failed(self) -> None:
        raise AssertionError("a sync in memory can't fail")

    def heal(self, backlog: Backlog) -> None:
        raise AssertionError("nothing disturbs a rollout in memory")

    def close(self) -> None:
        self._on_close()

    def close_in_child(self) -> None:
        return
