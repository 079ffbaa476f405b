"""What to list: the order, the page, and which threads.

Invariant: no filter is hidden. A thread is left out only because something that the caller gave says so; what
another program wrote as its name, its source or its kind never decides it.
"""

from __future__ import annotations

from typing import Literal, TypedDict

from msgspec import Struct

from protocol.timestamps import parse_timestamp

__all__ = ["LIMIT_MAX", "ListOptions", "Order", "Sort", "ThreadQuery"]

Sort = Literal["created", "updated", "size", "items"]
Order = Literal["newest", "oldest"]
"""`newest`: the greatest first."""

LIMIT_MAX = 1000


class ListOptions(TypedDict, total=False):
    """The keywords of `list_threads`: the fields of a `ThreadQuery`."""

    sort: Sort
    order: Order
    limit: int
    cursor: str | None
    cwd: str | None
    under: str | None
    source: str | None
    provider: str | None
    archived: bool | None
    live: bool | None
    broken: bool | None
    subagents: bool | None
    title: str | None
    named: str | None
    label: str | None
    created_since: str | None
    created_until: str | None
    updated_since: str | None
    updated_until: str | None


class ThreadQuery(Struct, frozen=True, kw_only=True):
    """What to list. Filters that are None take everything, and all of them hold together.

    Times are RFC 3339; `since` is included, `until` isn't.
    """

    sort: Sort = "created"
    order: Order = "newest"
    limit: int = 50
    """From 1 to `LIMIT_MAX`."""
    cursor: str | None = None
    """`ThreadPage.cursor` of the page before."""
    cwd: str | None = None
    """Exactly this folder, compared by its name; where no thread has that name, by where it leads."""
    under: str | None = None
    """This folder, or one under it."""
    source: str | None = None
    """cli, vscode, exec, mcp, subagent, …"""
    provider: str | None = None
    archived: bool | None = False
    """False: those that aren't; True: those that are; None: both."""
    live: bool | None = None
    broken: bool | None = None
    subagents: bool | None = None
    title: str | None = None
    """Stands in the title, in upper or lower case."""
    named: str | None = None
    """A pattern with `*`, `?` and `[…]` that the name or the title fits, in upper or lower case."""
    label: str | None = None
    created_since: str | None = None
    created_until: str | None = None
    updated_since: str | None = None
    updated_until: str | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.limit <= LIMIT_MAX:
            raise ValueError(f"limit must be from 1 to {LIMIT_MAX}, not {self.limit}")
        if self.sort not in ("created", "updated", "size", "items"):
            raise ValueError(f"{self.sort!r} is no order of a list")
        if self.order not in ("newest", "oldest"):
            raise ValueError(f"order must be newest or oldest, not {self.order!r}")
        for name in ("created_since", "created_until", "updated_since", "updated_until"):
            text = getattr(self, name)
            if text is not None and parse_timestamp(text) is None:
                raise ValueError(f"{name} must be an RFC 3339 time, not {text!r}")
