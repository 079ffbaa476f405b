"""Courtesy of threads that read and compute for long: they let the loops of other threads in.

Theory of operation. A thread that waits for the interpreter asks for it after 5 ms
(`sys.setswitchinterval`), and gets it then; but each time the holder lets go of it for a system call the
waiter begins anew, and has it back before the waiter woke up. So a thread that reads a block from the page
cache every millisecond, and works on it, holds up a loop for as long as it goes on: 170 ms were
measured. A sleep, however short, is long enough for the waiter.
"""

from __future__ import annotations

import threading
import time

__all__ = ["Courtesy"]

_HELD_SECONDS_MAX = 0.003
_PAUSE_SECONDS = 0.000_05


class Courtesy:
    """Of one piece of work; `give_way` is called at each of its steps."""

    __slots__ = ("_since",)

    def __init__(self) -> None:
        self._since = time.monotonic()

    def give_way(self) -> None:
        """Let others in, if the last time was a while ago. The main thread doesn't: there the loops are."""
        now = time.monotonic()
        if now - self._since > _HELD_SECONDS_MAX:
            if threading.current_thread() is not threading.main_thread():
                time.sleep(_PAUSE_SECONDS)
                now = time.monotonic()
            self._since = now
