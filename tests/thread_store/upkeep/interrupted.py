"""The system's calls, cut short at one of them: the process dies there, or the call fails.

A `Cut` counts the calls of the upkeep and those of the locks alike.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

from thread_store.locks import LockCalls
from thread_store.upkeep.calls import UpkeepCalls

__all__ = ["Cut", "dies", "raises", "uncut"]

# What only looks, or waits, can't leave anything half done.
_LOOKS = frozenset(
    {"current_path", "fstat", "is_regular", "lstat", "monotonic", "names_in", "now", "pread", "read", "sleep"}
    | {"open_read", "open_to_read", "open_folder"}
)


class Cut:
    """At the `at`-th call, before it or `after` it, `what` happens. `calls` and `lock_calls` count."""

    def __init__(self, at: int, what: Callable[[], None], *, after: bool = False) -> None:
        self.made = 0
        self.struck: str | None = None
        """The call that it happened at."""
        self._at = at
        self._what = what
        self._after = after
        self.calls = _cut(UpkeepCalls, self)
        self.lock_calls = _cut(LockCalls, self)

    def make(self, name: str, call: Callable[..., Any], arguments: tuple[Any, ...], named: Any) -> Any:
        self.made += 1
        if self.made != self._at:
            return call(*arguments, **named)
        self.struck = name
        if self._after:
            result = call(*arguments, **named)
            if name.startswith("open"):
                os.close(result)
        self._what()
        return None if self._after else call(*arguments, **named)


def _cut(kind: type, cut: Cut) -> Any:
    def wrapped(name: str) -> Callable[..., Any]:
        def call(self: Any, *arguments: Any, **named: Any) -> Any:
            return cut.make(name, getattr(super(made, self), name), arguments, named)

        return call

    names = [name for name in dir(kind) if not name.startswith("_") and name not in _LOOKS]
    made = type(f"Cut{kind.__name__}", (kind,), {name: wrapped(name) for name in names})
    return made()


def dies() -> None:
    """As if the kernel had killed it."""
    os.kill(os.getpid(), signal.SIGKILL)


def raises(number: int) -> Callable[[], None]:
    """The call fails."""

    def fail() -> None:
        raise OSError(number, os.strerror(number))

    return fail


def uncut() -> Cut:
    """Everything works."""
    return Cut(0, lambda: None)
