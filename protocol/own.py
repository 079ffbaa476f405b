"""Records of our own (`x_…`): what Codex has no word for. It passes over them.

Invariant: they carry no ordinal (file order is their order), never stand first in a file, and
hold only what their writer saw; the verdict on a call is drawn when the rollout is read
(FORMAT.md, Own types). Times in `_ms` are milliseconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from msgspec import Raw, field

from protocol.decoding import payload_decoder
from protocol.items import RolloutItem, written

__all__ = [
    "DECODERS",
    "ApprovalItem",
    "CallItem",
    "CheckItem",
    "ErasedItem",
    "FilesItem",
    "GapItem",
    "MemoryItem",
    "SourceItem",
    "StateItem",
    "WriterItem",
]


class CallItem(RolloutItem, kw_only=True):
    """`x_call`: how far a tool call got.

    `state`: intended, started (on disk before the side effect begins), completed, failed, declined,
    aborted, unknown (recovery found it open), resolved (a decision: `outcome`, `by`, `note`) or
    superseded (a later attempt with the same `key` took its place).
    """

    record_type: ClassVar[str] = "x_call"

    call_id: str
    turn_id: str | None = None
    state: str
    kind: str | None = None
    """shell, patch, mcp, custom, web or agent."""
    name: str | None = None
    attempt: int = written(1)
    effect: str | None = None
    """none, idempotent or unsafe; an unknown one counts as unsafe."""
    key: str | None = None
    """Idempotency key: the same for each attempt of one intent."""
    args_sha256: str | None = None
    approval_id: str | None = None
    error: str | None = None
    outcome: str | None = None
    """Of a decision: happened, not_happened or retry."""
    by: str | None = None
    note: str | None = None
    at_ms: int | None = None


class ApprovalItem(RolloutItem, kw_only=True):
    """`x_approval`: a question whether a call may run, and its answer.

    `state`: requested, approved, declined, expired or withdrawn. `scope`: once, session or rule.
    """

    record_type: ClassVar[str] = "x_approval"

    approval_id: str
    call_id: str | None = None
    turn_id: str | None = None
    state: str
    scope: str | None = None
    by: str | None = None
    reason: str | None = None
    at_ms: int | None = None


class CheckItem(RolloutItem, kw_only=True):
    """`x_check`: a verification and its result.

    `state`: started, passed, failed, skipped or stale (a later effect made it so).
    """

    record_type: ClassVar[str] = "x_check"

    check_id: str
    turn_id: str | None = None
    call_ids: list[str] | None = None
    state: str
    what: str | None = None
    evidence: str | None = None
    at_ms: int | None = None


class WriterItem(RolloutItem, kw_only=True):
    """`x_writer`: who writes. `event`: opened, closed, recovered, repaired or named."""

    record_type: ClassVar[str] = "x_writer"

    event: str
    epoch: int | None = None
    """Counts the openings of the thread, from 1."""
    pid: int | None = None
    host: str | None = None
    program: str | None = None
    reason: str | None = None
    cut_bytes: int | None = None
    quarantine: str | None = None
    """Where cut bytes were kept."""
    name: str | None = None
    at_ms: int | None = None


class MemoryItem(RolloutItem, kw_only=True):
    """`x_memory`: the whole fold at this point, so that a scan from the end may stop here."""

    record_type: ClassVar[str] = "x_memory"

    version: int
    upto_offset: int
    """The fold covers the bytes before this offset."""
    last_line: str | None = None
    """The last line that it covers: the first 16 digits of its sha256."""
    examined_from: int | None = None
    """What stands before this offset, and in older files, was not looked at; None: everything was."""
    older_files: int | None = None
    """How many older files (FORMAT.md, Forks) it covers too. Its places in these are offsets there."""
    max_ordinal: int | None = None
    epoch: int | None = None
    turn_id: str | None = None
    """The turn that is open."""
    open_calls: Any = None
    recent_calls: Any = None
    """The newest calls that ended."""
    approvals: Any = None
    checks: Any = None
    damage: Any = None
    """Ranges that may have hidden a call."""
    turn_context: Any = None
    thread_settings: Any = None
    usage: Any = None
    files: Any = None
    """By path, the `x_files` of the files that were read."""
    agents: Any = None
    """By thread id, what sub-agents did last."""
    memory: Any = None


class StateItem(RolloutItem, kw_only=True):
    """`x_state`: the thread went from one state to another, and why."""

    record_type: ClassVar[str] = "x_state"

    from_: str | None = field(default=None, name="from")
    to: str
    reason: str | None = None


class FilesItem(RolloutItem, kw_only=True):
    """`x_files`: a file as the agent read it, so that a later edit sees real conflicts only."""

    record_type: ClassVar[str] = "x_files"

    path: str
    size: int | None = None
    mtime_ns: int | None = None
    sha256: str | None = None
    read_at: int | str | None = None


class SourceItem(RolloutItem, kw_only=True):
    """`x_source`: an imported record that has no counterpart here, as it was."""

    record_type: ClassVar[str] = "x_source"

    format: str
    path: str | None = None
    offset: int | None = None
    record: Any = None


class ErasedItem(RolloutItem, kw_only=True):
    """`x_erased`: a record was overwritten on demand."""

    record_type: ClassVar[str] = "x_erased"

    ordinal: int | None = None
    bytes: int
    at: int | str | None = None
    """The byte offset of the erased record, or when it was erased."""
    reason: str | None = None
    was: str | None = None
    """Where another rollout's history ends with this line: the first 16 digits of the sha256 that it had."""


class GapItem(RolloutItem, kw_only=True):
    """`x_gap`: so many bytes of accepted records were destroyed by another program."""

    record_type: ClassVar[str] = "x_gap"

    bytes: int
    cause: str | None = None


DECODERS: dict[str, Callable[[Raw | bytes], RolloutItem]] = {
    each.record_type: payload_decoder(each)
    for each in (
        ApprovalItem,
        CallItem,
        CheckItem,
        ErasedItem,
        FilesItem,
        GapItem,
        MemoryItem,
        SourceItem,
        StateItem,
        WriterItem,
    )
}
