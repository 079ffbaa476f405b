"""What a recorder tells of itself."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from rollout.state import WriterState

__all__ = ["WriterHealth"]


class WriterHealth(Struct, frozen=True):
    """A snapshot of a writer. Items are those of this recorder, without the meta line."""

    state: WriterState
    pending_items: int
    """Accepted, not yet durable."""
    pending_bytes: int
    flushed_items: int
    """Handed to the OS."""
    synced_items: int
    """On stable storage."""
    last_error: BaseException | None
    """The newest failure; None again after the next success."""
    retries: int
    """How often a write, sync or reopen had to be tried again."""
    reopens: int
    """How often the file was healed."""
    redactions: Mapping[str, int] = field(default_factory=dict)
    """How much the redactor replaced in the items accepted, by rule; "hook" where it left no marker."""
