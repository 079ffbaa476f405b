"""What a list knows of one rollout file, read from its head and its tail.

Invariant: a function of the bytes alone, read with less than 128 KiB of them (`HEAD_BYTES_MAX`,
`TAIL_BYTES_MAX`), unless the first prompt stands late: then so much more as it takes to find it, up to
`LATE_BYTES_MAX`. What can't be known from there is None, and what is no rollout says what it is.
"""

from __future__ import annotations

from msgspec import Struct

__all__ = [
    "FACTS_VERSION",
    "GONE",
    "HEAD_BYTES_MAX",
    "LATE_BYTES_MAX",
    "TAIL_BYTES_MAX",
    "RolloutFacts",
    "TurnState",
]

HEAD_BYTES_MAX = 80 << 10
TAIL_BYTES_MAX = 40 << 10
LATE_BYTES_MAX = 32 << 20

FACTS_VERSION = 1
"""Changes with the meaning of any fact: facts of another version are read again."""


GONE = "gone"
"""The `problem_code` of a file that went away while it was looked at."""


class TurnState:
    """How a file ends, as far as its tail tells."""

    ENDED = "ended"
    OPEN = "open"
    UNKNOWN = "unknown"


class RolloutFacts(Struct, omit_defaults=True, kw_only=True):
    """Everything may be unknown. Texts are on one line and cut."""

    problem: str | None = None
    """Why it is no rollout, or can't be read."""
    problem_code: str | None = None
    notes: list[str] = []
    """What is odd about it: a torn tail, an id that isn't the one in the name."""
    meta_id: str | None = None
    """The id that its first session_meta states."""
    created: str | None = None
    cwd: str | None = None
    branch: str | None = None
    source: str | None = None
    """cli, vscode, exec, mcp, …; `subagent` for each kind of it."""
    provider: str | None = None
    originator: str | None = None
    model: str | None = None
    nickname: str | None = None
    parent_id: str | None = None
    """The thread whose sub-agent it is."""
    forked_from: str | None = None
    fork_ordinal: int | None = None
    """The last item that it shares with the thread that it was forked from."""
    base_rollout: str | None = None
    """The rollout that it rests on."""
    prompt: str | None = None
    """What was typed first, in this file."""
    fallback: str | None = None
    """What else could tell what it is about: its task, the first answer."""
    updated_ms: int | None = None
    """The time in the last record that has one."""
    items: int | None = None
    """One more than the greatest ordinal of the last records."""
    turn: str = TurnState.UNKNOWN
    closed: bool | None = None
    """Whether its last writer said that it ended; None where none of ours wrote."""
    torn: bool = False
    open_calls: int = 0
    """Calls in the tail without a known end."""
    content_bytes: int | None = None
    """Of a compressed file: what it holds, where that is known."""
