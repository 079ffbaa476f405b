"""Thread summary: what a list shows of a thread.

Invariant: bounded, and made of what is known anyway: the meta of the rollout and its fold. Of the rest
only the first message of the user is looked for, near the start, and once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from protocol.meta import SessionMeta
from protocol.plain_values import squeezed
from protocol.tool_verdicts import ToolVerdict
from protocol.user_texts import typed_text
from thread_store.chain.lineage import Lineage
from thread_store.chain.open_rollout import OpenRollout
from thread_store.folding.thread_folding import FoldedThread

__all__ = ["MESSAGE_CHARS_MAX", "ThreadSummary", "find_first_message", "summarize"]

MESSAGE_CHARS_MAX = 200
_HEAD_RECORDS_MAX = 200
_HEAD_BYTES_MAX = 1 << 20


class ThreadSummary(Struct, omit_defaults=True, kw_only=True):
    """What a list shows. Everything may be unknown."""

    first_message: str | None = None
    """What the user typed first, on one line, cut to `MESSAGE_CHARS_MAX`."""
    last_message: str | None = None
    cwd: str | None = None
    branch: str | None = None
    model: str | None = None
    created: str | None = None
    updated: str | None = None
    """The time in the last line."""
    last_ordinal: int | None = None
    """The greatest one: about how many records there are."""
    state: str | None = None
    open_calls: int = 0
    """Calls without a known end."""
    blocking_calls: int = 0
    """Those of them that stand against an automatic resume."""
    damaged: bool = False
    """Whether a range that can't be read stands against it."""


def summarize(
    folded: FoldedThread, meta: SessionMeta, *, updated: str | None, first_message: str | None
) -> ThreadSummary:
    """The summary of a fold and of the meta of its rollout."""
    fold = folded.fold
    calls, context = fold.calls.open_calls(), fold.facts.turn_context
    settings: Mapping[str, Any] = (
        context.value if context is not None and isinstance(context.value, dict) else {}
    )
    return ThreadSummary(
        first_message=first_message,
        last_message=_clipped(fold.memory.goal),
        cwd=meta.cwd,
        branch=None if meta.git is None else meta.git.branch,
        model=_text(settings.get("model")),
        created=meta.timestamp,
        updated=updated,
        last_ordinal=fold.damage.max_ordinal,
        state=fold.memory.state,
        open_calls=sum(each.verdict in (ToolVerdict.PENDING, ToolVerdict.UNCERTAIN) for each in calls),
        blocking_calls=sum(each.blocks_resume for each in calls),
        damaged=bool(fold.calls.damaged_ranges),
    )


def find_first_message(lineage: Lineage) -> str | None:
    """What the user typed first, if it stands near the start of the oldest file. Reads no more than that."""
    with lineage.open(0) as file:
        end = lineage.segments[0].end
        return _first_message(file, lineage.segments[0].meta_end, end)


def _first_message(file: OpenRollout, start: int, end: int) -> str | None:
    records = file.forward(start, end, block_bytes=64 << 10)
    for count, record in enumerate(records):
        if count == _HEAD_RECORDS_MAX or record.offset - start > _HEAD_BYTES_MAX:
            return None
        if record.line is None or record.line.type not in ("response_item", "event_msg"):
            continue
        payload = record.line.payload_object()
        typed = typed_text(record.line.type, payload) if isinstance(payload, dict) else None
        if typed is not None:
            return _clipped(typed[1])
    return None


def _clipped(text: str | None) -> str | None:
    return None if text is None else squeezed(text, MESSAGE_CHARS_MAX)


def _text(value: Any) -> str | None:
    return squeezed(value, MESSAGE_CHARS_MAX) if isinstance(value, str) and value else None
