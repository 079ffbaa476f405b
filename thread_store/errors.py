"""Errors of many threads that the floors below can't meet. The root is `protocol.errors`."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence

from protocol.errors import RolloutError

__all__ = [
    "AmbiguousThread",
    "InvalidCursor",
    "NotCurrentRollout",
    "NotInHome",
    "SearchInvalid",
    "StoreClosed",
    "ThreadsUnwritten",
]

NAMED_MAX = 5
"""How many of the matching ids the message lists."""

TEXT_SHOWN_MAX = 80
"""How much of what was searched for the message repeats."""


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


class InvalidCursor(RolloutError, ValueError):
    """The text is no cursor of a list, or of a list in another order."""

    code = "invalid_cursor"

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(
            f"{text[:80]!r} is no cursor of this list: {reason}",
            hint="Give the cursor of the page before as it is, or begin without one",
        )
        self.text = text
        self.reason = reason


class NotCurrentRollout(RolloutError):
    """The file is of a thread that goes on in another one (`current_path`), since a revert or a take-over."""

    code = "not_current_rollout"

    def __init__(
        self, *, path: str | os.PathLike[str], thread_id: str, current_path: str | os.PathLike[str]
    ) -> None:
        older, current = os.fspath(path), os.fspath(current_path)
        super().__init__(
            f"{older} is an older rollout of {thread_id}, which goes on in {current}",
            hint=f"Name the thread by its id, or fork the older one: rollout fork {shlex.quote(older)}",
            path=path,
            thread_id=thread_id,
        )
        self.current_path = current


class NotInHome(RolloutError):
    """The file lies in no home, so that it has no thread: no lock, no other rollouts."""

    code = "not_in_home"

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(
            f"{os.fspath(path)} is a file by itself and no thread of a home",
            hint=f"Make it one: rollout fork {shlex.quote(os.fspath(path))}",
            path=path,
        )


class SearchInvalid(RolloutError, ValueError):
    """There is no such search: the text is empty, the pattern is none. `reason` says what."""

    code = "search_invalid"

    def __init__(self, text: str, reason: str) -> None:
        shown = text if len(text) <= TEXT_SHOWN_MAX else text[:TEXT_SHOWN_MAX] + "…"
        super().__init__(
            f"can't search for {shown!r}: {reason}",
            hint="Patterns are those of RE2; without -e the text is taken as it is",
        )
        self.text = text
        self.reason = reason


class StoreClosed(RolloutError):
    """The store was closed, was never entered, or belongs to the parent of this process."""

    code = "store_closed"

    def __init__(self, path: str | os.PathLike[str], reason: str = "is not open") -> None:
        super().__init__(
            f"the store of {os.fspath(path)} {reason}",
            hint="Use it inside `async with LocalThreadStore(home) as store`",
            path=path,
        )
        self.reason = reason


class ThreadsUnwritten(RolloutError):
    """The store was closed, and some threads could not write everything; `errors` tells of each by its id."""

    code = "threads_unwritten"

    def __init__(self, errors: Mapping[str, RolloutError], *, threads: int) -> None:
        listed = "; ".join(f"{thread_id}: {error.message}" for thread_id, error in errors.items())
        super().__init__(f"{len(errors)} of {threads} threads could not be closed with everything: {listed}")
        self.errors = dict(errors)
