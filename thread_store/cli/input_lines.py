"""Lines of input as they arrive.

Invariant: lines are cut at `\\n` only; of a line beyond the limit no more than the limit is
held; no line is taken for whole that a stop signal cut.
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterator

from thread_store.cli.stop_signals import StopSignals

__all__ = ["InputLine", "InputLines"]

_BLOCK_BYTES = 64 << 10

InputLine = tuple[int, bytes | None]
"""The line's number from 1, and its bytes; None if it was longer than the limit."""


class InputLines:
    """Iterate to get lines; a None between them says that nothing more has arrived yet.

    The iteration ends with the input, or after the lines that had arrived when a signal came.
    """

    def __init__(self, descriptor: int, stop: StopSignals, *, line_bytes_max: int) -> None:
        self._descriptor = descriptor
        self._stop = stop
        self._line_bytes_max = line_bytes_max
        self._under_way = bytearray()
        self._skipping = False
        self.lines = 0
        self.read_bytes = 0

    @property
    def cut_bytes(self) -> int:
        """What had arrived of an unfinished line when a signal ended the reading."""
        return len(self._under_way)

    def __iter__(self) -> Iterator[InputLine | None]:
        while self._stop.received is None:
            if not self._is_readable(0):
                yield None
                if not self._is_readable(None):
                    continue
            try:
                block = os.read(self._descriptor, _BLOCK_BYTES)
            except BlockingIOError:  # somebody made the pipe non-blocking, and another reader was quicker
                continue
            if not block:
                yield from self._end()
                return
            self.read_bytes += len(block)
            yield from self._split(block)

    def _is_readable(self, timeout_seconds: float | None) -> bool:
        """Whether bytes, or the end, can be read without waiting. A signal ends the wait."""
        if sys.platform == "win32":  # there select takes sockets only
            return True
        waiting = [self._descriptor, self._stop.wake_descriptor]
        readable, _, _ = select.select(waiting, [], [], timeout_seconds)
        return self._descriptor in readable

    def _split(self, block: bytes) -> Iterator[InputLine]:
        *whole, rest = block.split(b"\n")
        for piece in whole:
            self._add(piece)
            yield self._finish()
        self._add(rest)

    def _add(self, piece: bytes) -> None:
        self._under_way += piece
        if len(self._under_way) > self._line_bytes_max:
            self._skipping = True
        if self._skipping:
            self._under_way.clear()

    def _finish(self) -> InputLine:
        self.lines += 1
        line = None if self._skipping else bytes(self._under_way)
        self._under_way.clear()
        self._skipping = False
        return self.lines, line

    def _end(self) -> Iterator[InputLine]:
        if self._under_way or self._skipping:
            yield self._finish()
