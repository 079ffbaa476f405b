"""What a writer needs of the place it writes to. Positions are opaque to the writer.

A file is one such place (`file_sink`); a log on many machines will be another.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from rollout.backlog import Backlog, Chunk

__all__ = ["Sink", "SinkDisturbed"]


class SinkDisturbed(Exception):
    """The place is not as the writer left it (size, name, inode): heal it, then go on. Not an error yet."""


class Sink(Protocol):
    """One place. All methods but `sync_job`'s result are called by the writer's task alone."""

    @property
    def path(self) -> str:
        """What errors call it."""

    @property
    def end_bytes(self) -> int:
        """Where the next byte will stand."""

    @property
    def epoch(self) -> int:
        """Grows with each healing: a sync that started before it says nothing about what stands now."""

    @property
    def created(self) -> bool:
        """Whether the place exists, so that there is something to check, sync or close."""

    def create(self, backlog: Backlog) -> None:
        """Make the place, or adopt what an earlier try of this recorder left. Raises OSError."""

    def append(self, chunk: Chunk) -> None:
        """Hand over the rest of a chunk and count it in `chunk.handed`, also when it raises.

        Raises:
            SinkDisturbed: look again before writing more.
            OSError: the system refused.
        """

    def verify(self) -> None:
        """Check cheaply that the place is ours and as we left it. Raises as `append`, or `WriterFenced`."""

    def sync_job(self, backlog: Backlog) -> Callable[[], None]:
        """A blocking call that makes everything handed over so far durable, and checks that the place still
        holds it. It may run in any thread. Raises as `append`."""

    def sync_failed(self) -> None:
        """The last sync job failed: what it covered must be written again before the next counts (G3)."""

    def heal(self, backlog: Backlog) -> None:
        """Reopen and reconcile; afterwards the backlog tells truly what must still be written. Blocking.

        Raises:
            RolloutError, OSError: not possible now; the backlog is intact and heal may be called again.
        """

    def close(self) -> None:
        """Let go of it. Never raises for what was already handed over."""

    def close_in_child(self) -> None:
        """In a forked child: let go of it, and of what a sync under way used; no thread does any more."""
