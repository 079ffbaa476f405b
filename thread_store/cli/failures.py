"""Errors to exit codes and messages: the one place where a fault becomes a number.

Invariant: a person sees one line, `rollout: WHAT; WHY. Try: COMMAND`, and never a traceback
unless `ROLLOUT_DEBUG=1` asks for it.
"""

from __future__ import annotations

import enum
from typing import Any

from protocol import errors
from thread_store.cli.safe_text import safe_line
from thread_store.cli.terminal import Terminal
from thread_store.erasing.errors import EraseRefused
from thread_store.errors import AmbiguousThread, InvalidCursor, NotCurrentRollout, NotInHome, SearchInvalid
from thread_store.locks.errors import LocksBusy

__all__ = ["ExitCode", "describe_os_error", "report_error"]


class ExitCode(enum.IntEnum):
    """What the command line returns."""

    DONE = 0
    PROBLEMS = 1
    USAGE = 2
    NOT_FOUND = 3
    AMBIGUOUS = 4
    DAMAGED = 5
    BUSY = 6
    REFUSED = 7
    SYSTEM = 8
    HANGUP = 129
    INTERRUPTED = 130
    CLOSED_PIPE = 141
    TERMINATED = 143


# The first class that fits decides; what is not listed is the system's fault.
_EXIT_CODES: tuple[tuple[type[errors.RolloutError], ExitCode], ...] = (
    (errors.ThreadNotFound, ExitCode.NOT_FOUND),
    (AmbiguousThread, ExitCode.AMBIGUOUS),
    (errors.NotARollout, ExitCode.DAMAGED),
    (errors.InvalidLine, ExitCode.DAMAGED),
    (errors.ActiveWriter, ExitCode.BUSY),
    (errors.WriterFenced, ExitCode.BUSY),
    (LocksBusy, ExitCode.BUSY),
    (NotCurrentRollout, ExitCode.REFUSED),
    (NotInHome, ExitCode.REFUSED),
    (errors.ResumeRefused, ExitCode.REFUSED),
    (errors.ThreadReferenced, ExitCode.REFUSED),
    (errors.ForkRefused, ExitCode.REFUSED),
    (EraseRefused, ExitCode.REFUSED),
    (errors.RolloutExists, ExitCode.REFUSED),
    (errors.InvalidThreadId, ExitCode.USAGE),
    (SearchInvalid, ExitCode.USAGE),
    (InvalidCursor, ExitCode.USAGE),
    (errors.ItemNotEncodable, ExitCode.USAGE),
    (errors.RecordTooLarge, ExitCode.USAGE),
    (errors.ForkPointInvalid, ExitCode.USAGE),
    (errors.CallNotResolvable, ExitCode.USAGE),
)
_RETRYABLE = (errors.ActiveWriter, LocksBusy, errors.PendingQueueFull, errors.RolloutWriteError)
_EXTRA_FIELDS = ("path", "thread_id", "offset_bytes", "errno", "kept_path", "pending_items", "current_path")


def report_error(terminal: Terminal, error: errors.RolloutError) -> ExitCode:
    """Print the error and return the exit code of its class."""
    extra: dict[str, Any] = {}
    for name in _EXTRA_FIELDS:
        value = getattr(error, name, None)
        if value is not None:
            extra[name] = value
    holder = getattr(error, "holder", None)
    if holder is not None:
        extra["holder"] = {key: getattr(holder, key) for key in ("pid", "host", "since", "command")}
    terminal.fail(
        safe_line(error.message),
        code=error.code,
        hint=_ended(safe_line(error.hint)),
        retryable=isinstance(error, _RETRYABLE),
        **extra,
    )
    return next((code for kind, code in _EXIT_CODES if isinstance(error, kind)), ExitCode.SYSTEM)


def _ended(hint: str) -> str:
    """With a full stop, unless it ends in a command, which is there to be copied."""
    return hint if not hint or hint.endswith((".", "?")) or ": rollout " in hint else hint + "."


def describe_os_error(error: OSError) -> str:
    """What the system refused, and on which file."""
    reason = error.strerror or str(error)
    return safe_line(f"{error.filename}: {reason}" if error.filename else reason)
