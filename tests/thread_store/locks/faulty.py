"""The system calls of the locks, scripted to fail."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from thread_store.locks import LockCalls

__all__ = ["FaultyLockCalls"]


class FaultyLockCalls(LockCalls):
    """The system's calls; `before` and `after` hold what happens around the next ones of a name.

    Time passes only by `sleep`.
    """

    def __init__(self) -> None:
        self.slept: list[float] = []
        self.before: dict[str, list[Callable[[], None]]] = {}
        self.after: dict[str, list[Callable[[], None]]] = {}

    def fail(self, name: str, number: int, *, times: int = 1, done: bool = False) -> None:
        """Let the next calls of this name raise, after they did their work if `done`."""

        def raise_it() -> None:
            raise OSError(number, os.strerror(number))

        (self.after if done else self.before).setdefault(name, []).extend([raise_it] * times)

    def meanwhile(self, name: str, happens: Callable[[], None]) -> None:
        """Just before the next call of this name, something else happens."""
        self.before.setdefault(name, []).append(happens)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    def monotonic(self) -> float:
        return sum(self.slept)


def _scripted(name: str) -> Callable[..., Any]:
    def call(self: FaultyLockCalls, *arguments: Any, **named: Any) -> Any:
        if self.before.get(name):
            self.before[name].pop(0)()
        result = getattr(LockCalls, name)(self, *arguments, **named)
        if self.after.get(name):
            self.after[name].pop(0)()
        return result

    return call


for _name in (
    *("open", "open_new", "open_to_read", "make_private", "close", "flock", "unlock", "fstat", "lstat"),
    *("read", "overwrite", "link", "replace", "unlink", "touch", "make_folder", "sync_folder", "names_in"),
):
    setattr(FaultyLockCalls, _name, _scripted(_name))
