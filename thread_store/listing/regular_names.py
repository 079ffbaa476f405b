"""Regular names: those of a thread's first rollout, as we and Codex give them.

Invariant: they sort as they stand, by time and id, and the id is cut out of them. Every other name of a
rollout is *odd*, and is read by `RolloutName`.
"""

from __future__ import annotations

import re

__all__ = ["ID", "KEY", "is_regular", "tail_of"]

is_regular = re.compile(
    r"rollout-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d"
    r"-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\.jsonl(?:\.zst)?"
).fullmatch

KEY = slice(8, 64)
"""Time and id."""
ID = slice(28, 64)


def tail_of(name: str) -> int:
    """The end of the id in a regular name: different ids have different ones, but for chance."""
    return int(name[47:51] + name[52:64], 16)
