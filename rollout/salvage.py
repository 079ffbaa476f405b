"""Salvage: what a writer that ends could not make durable, and where it is set aside.

Invariant: every accepted line that no sync covered is set aside, in order. The caller learns how
many items these are and where they were kept; if no place took them it gets the lines themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import anyio

from protocol.errors import UnwrittenItems
from rollout.backlog import Backlog
from rollout.place import Place
from rollout.progress import Progress
from rollout.service import Service

__all__ = ["KeepUnwritten", "Salvage", "Salvaged"]

KeepUnwritten = Callable[[list[bytes], int, int], str | None]
"""Takes lines, the offset where they belong and the number of items; returns where they were kept."""


@dataclass(frozen=True, slots=True)
class Salvaged:
    """What was not durable. `kept_path`: where it is now; None if no place took it."""

    lines: list[bytes]
    items: int
    kept_path: str | None

    @property
    def unkept(self) -> bytes:
        """The lines themselves, if no place took them."""
        return b"" if self.kept_path else b"".join(self.lines)

    def error(self, path: str, cause: BaseException | None) -> UnwrittenItems:
        """What the caller of a close is told."""
        error = UnwrittenItems(
            path=path,
            cause=cause,
            kept_path=self.kept_path,
            unwritten=self.unkept,
            pending_items=self.items,
        )
        error.__cause__ = cause
        return error


class Salvage:
    """Sets aside for one writer, at its end; on the service loop only."""

    def __init__(
        self,
        *,
        service: Service,
        backlog: Backlog,
        progress: Progress,
        place: Place,
        keep: KeepUnwritten,
    ) -> None:
        self._service = service
        self._backlog = backlog
        self._progress = progress
        self._place = place
        self._keep = keep

    async def run(self, *, seconds_max: float) -> Salvaged:
        """Set aside in a thread, waiting no longer than that: the disk may hang. Nothing makes no file."""
        lines, items = self._place.undurable_lines(), self._progress.pending_items
        kept_path = None
        if not lines:
            return Salvaged(lines, items, kept_path)
        with anyio.move_on_after(seconds_max):
            kept_path = await self._service.run_blocking(self._keeping(lines, items))
        return Salvaged(lines, items, kept_path)

    def run_now(self) -> str | None:
        """Set aside right here, after a bug: nothing can be waited for any more. Returns where it is."""
        lines = self._place.undurable_lines()
        return self._keeping(lines, self._progress.pending_items)() if lines else None

    def _keeping(self, lines: list[bytes], items: int) -> Callable[[], str | None]:
        return partial(self._keep, lines, self._backlog.durable_offset, items)
