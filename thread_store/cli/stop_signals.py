"""Signals that ask to stop: SIGINT, SIGTERM and SIGHUP end the reading, not the saving.

Invariant: the first one only leaves a note and wakes whoever waits in `select`; a second one
interrupts. What was ignored when the program began (nohup, a background job) stays ignored.
"""

from __future__ import annotations

import os
import signal
from types import FrameType, TracebackType
from typing import Any, Self

__all__ = ["StopSignals"]

_NAMES = ("SIGINT", "SIGTERM", "SIGHUP")


class StopSignals:
    """While it is entered, `received` tells of the signal that came, and `wake_descriptor` gets readable."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self.wake_descriptor, self._wake = os.pipe()
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        os.set_blocking(self._wake, False)
        for number in (getattr(signal, name) for name in _NAMES if hasattr(signal, name)):
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self._wake)
        os.close(self.wake_descriptor)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None:
            raise KeyboardInterrupt
        self.received = signal.Signals(number)
        os.write(self._wake, b"\0")

    @property
    def exit_code(self) -> int | None:
        """128 + the signal, as shells have it; None if none came."""
        return None if self.received is None else 128 + self.received
