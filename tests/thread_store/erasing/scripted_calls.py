"""System calls of an erasure that fail, or kill, at the n-th of them, whichever that is."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

from rollout.erase_journal import EraseCalls

__all__ = ["CALL_NAMES", "WRITES", "ScriptedCalls", "fail_with", "kill_before", "kill_within"]

CALL_NAMES = (
    *(
        "open_append",
        "open_new",
        "open_overwrite",
        "open_read",
        "open_lock",
        "write",
        "pwrite",
        "pread",
        "fstat",
    ),
    *("datasync", "sync_folder", "make_folder", "unlink", "rename", "truncate"),
)

WRITES = ("write", "pwrite")

Effect = Callable[[Callable[..., Any], tuple[Any, ...]], Any]
"""What happens instead of a call: it is given the call and its arguments."""


class ScriptedCalls(EraseCalls):
    """Counts the calls, and does something else at one of them, or from there on."""

    def __init__(self, at: int, effect: Effect, *, times: int = 1) -> None:
        self.count = 0
        self.names: list[str] = []
        self._at = at
        self._effect = effect
        self._times = times
        for name in CALL_NAMES:
            setattr(self, name, self._scripted(name, getattr(EraseCalls, name)))

    @property
    def reached(self) -> bool:
        """Whether there were so many calls."""
        return self.count >= self._at

    def _scripted(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def perform(*arguments: Any) -> Any:
            self.count += 1
            self.names.append(name)
            if self._at <= self.count < self._at + self._times:
                return self._effect(lambda *given: call(self, *given), arguments)
            return call(self, *arguments)

        perform.__name__ = name
        return perform


def fail_with(number: int) -> Effect:
    """The call does nothing and raises."""

    def effect(call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        raise OSError(number, os.strerror(number))

    return effect


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_before(call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """The process dies before the call."""
    _kill()


def kill_within(call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Of a write only a half is done when the process dies."""
    if len(arguments) > 1 and isinstance(arguments[1], bytes | memoryview):
        descriptor, data, *rest = arguments
        call(descriptor, bytes(data[: max(1, len(data) // 2)]), *rest)
    _kill()
