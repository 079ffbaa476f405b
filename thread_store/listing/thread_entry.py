"""Thread entry: one thread as a list shows it. Made of facts, of what it is called, and of who holds it."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from protocol.errors import RolloutError, WriterHolder
from protocol.timestamps import format_timestamp
from thread_store.listing.rollout_facts import RolloutFacts, TurnState

__all__ = ["ThreadEntry", "ThreadPage", "make_entry"]


class ThreadEntry(Struct, frozen=True, kw_only=True):
    """One thread. What isn't known is None; texts are on one line and cut."""

    thread_id: str
    """As the file's name has it."""
    meta_id: str | None = None
    """As the rollout states it. Old files have one that is no UUID, and copies that of another thread."""
    path: str
    """The rollout that it goes on in."""
    name: str | None = None
    """What a person called it."""
    preview: str | None = None
    """What was typed first."""
    title: str | None = None
    """The name, else the preview, else what it was told to do or answered first."""
    state: str = "ended"
    """`live`, `ended`, `crashed` (its writer never said that it ended, or a turn is open), `damaged` or
    `archived`."""
    problem: str | None = None
    """Why nothing of it can be read."""
    notes: tuple[str, ...] = ()
    archived: bool = False
    compressed: bool = False
    writer: WriterHolder | None = None
    created: str | None = None
    updated: str | None = None
    """The time in its last record, but never later than the file was written; without one, that time."""
    size_bytes: int = 0
    """What the file takes."""
    content_bytes: int | None = None
    """What it holds; None where it is compressed and that isn't known."""
    items: int | None = None
    open_calls: int = 0
    """Among the last records: calls without a known end."""
    cwd: str | None = None
    branch: str | None = None
    source: str | None = None
    provider: str | None = None
    originator: str | None = None
    model: str | None = None
    nickname: str | None = None
    parent_id: str | None = None
    """The thread whose sub-agent it is."""
    forked_from: str | None = None
    fork_ordinal: int | None = None
    labels: tuple[str, ...] = ()


class ThreadPage(NamedTuple):
    """Some entries, and where the list goes on; `cursor` is None at its end.

    `notes`: what was done without (the index). `passed_over`: folders that could not be listed, and
    files that could not be looked at.
    """

    threads: tuple[ThreadEntry, ...]
    cursor: str | None = None
    notes: tuple[str, ...] = ()
    passed_over: tuple[RolloutError, ...] = ()


def make_entry(
    facts: RolloutFacts,
    *,
    thread_id: str,
    path: str,
    name: str | None,
    labels: tuple[str, ...],
    archived: bool,
    compressed: bool,
    size_bytes: int,
    created: str | None,
    updated_ms: int,
    preview: str | None,
    writer: WriterHolder | None,
    is_live: bool,
) -> ThreadEntry:
    """Put it together."""
    return ThreadEntry(
        thread_id=thread_id,
        meta_id=facts.meta_id,
        path=path,
        name=name,
        preview=preview,
        title=name or preview or facts.fallback or facts.nickname,
        state=_state(facts, archived=archived, is_live=is_live),
        problem=facts.problem,
        notes=tuple(facts.notes),
        archived=archived,
        compressed=compressed,
        writer=writer,
        created=created,
        updated=format_timestamp(updated_ms),
        size_bytes=size_bytes,
        content_bytes=facts.content_bytes if compressed else size_bytes,
        items=facts.items,
        open_calls=facts.open_calls,
        cwd=facts.cwd,
        branch=facts.branch,
        source=facts.source,
        provider=facts.provider,
        originator=facts.originator,
        model=facts.model,
        nickname=facts.nickname,
        parent_id=facts.parent_id,
        forked_from=facts.forked_from,
        fork_ordinal=facts.fork_ordinal,
        labels=labels,
    )


def _state(facts: RolloutFacts, *, archived: bool, is_live: bool) -> str:
    if is_live:
        return "live"
    if facts.problem is not None:
        return "damaged"
    if archived:
        return "archived"
    unfinished = facts.torn or facts.turn == TurnState.OPEN or facts.closed is False
    return "crashed" if unfinished else "ended"
