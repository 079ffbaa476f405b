"""The library's own log, in a command: the commands tell what matters, so it is shown with `-v` only."""

from __future__ import annotations

import logging

from thread_store.cli.safe_text import safe_line
from thread_store.cli.terminal import Terminal

__all__ = ["attach_log"]


class _TerminalHandler(logging.Handler):
    def __init__(self, terminal: Terminal) -> None:
        super().__init__()
        self._terminal = terminal

    def emit(self, record: logging.LogRecord) -> None:
        if self._terminal.verbose:
            self._terminal.warn(safe_line(record.getMessage()), code="log", logger=record.name)


def attach_log(terminal: Terminal) -> None:
    """Send what the library logs to this terminal instead of to Python's last resort."""
    handler = _TerminalHandler(terminal)
    for name in ("rollout", "thread_store"):
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        logger.propagate = False
