"""Errors of many threads that the floors below can't meet. The root is `protocol.errors`."""

from __future__ import annotations

from collections.abc import Sequence

from protocol.errors import RolloutError

__all__ = ["AmbiguousThread"]

NAMED_MAX = 5
"""How many of the matching ids the message lists."""


class AmbiguousThread(RolloutError, LookupError):
    """The text fits more than one thread, or is too short to be trusted; `matches` are their ids."""

    code = "ambiguous_thread"

    def __init__(self, name: str, matches: Sequence[str], *, minimum: int | None = None) -> None:
        listed = ", ".join(matches[:NAMED_MAX]) + (", …" if len(matches) > NAMED_MAX else "")
        if len(matches) == 1 and minimum is not None:
            message = (
                f"{name!r} is too short to name a thread, it takes {minimum} characters; it fits {listed}"
            )
        else:
            message = f"{name!r} matches {len(matches)} threads: {listed}"
        super().__init__(message, hint="Give more characters")
        self.name = name
        self.matches = tuple(matches)
