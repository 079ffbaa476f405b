"""Processes of this host, told apart for good: number, start time, boot and pid namespace.

Invariant: `is_dead` says so only of a process that can't act any more. A number that is in use
again belongs to another process: the start time tells (proc(5), stat, field 22). Where the system
doesn't tell, the answer is unknown (None), never a guess.
"""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path
from typing import NamedTuple

__all__ = ["Surroundings", "is_dead", "start_ticks", "surroundings"]

_STATE, _THREADS, _STARTED = 0, 17, 19
"""Words of /proc/<pid>/stat, counted behind the command in parentheses."""


class Surroundings(NamedTuple):
    """Where a process number means something. None: unknown."""

    host: str
    boot_id: str | None
    pid_ns: str | None


def surroundings() -> Surroundings:
    """Those of this process."""
    return Surroundings(platform.node(), _boot_id(), _pid_namespace())


def _boot_id() -> str | None:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip() or None
    except OSError:  # no such file on this system
        return None


def _pid_namespace() -> str | None:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:  # no such file on this system
        return None


def start_ticks(pid: int) -> int | None:
    """When the process started, in clock ticks since boot; None: unknown, or there is no such process."""
    words = _stat_words(pid)
    return None if words is None else int(words[_STARTED])


def is_dead(pid: int, started: int | None) -> bool | None:
    """Whether the process that had this number, and started then, is gone; None: unknown."""
    if sys.platform == "win32":
        return None  # os.kill would end the process there
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass  # it lives, and is somebody else's
    words = _stat_words(pid)
    if words is None or started is None:
        return None
    return int(words[_STARTED]) != started or _has_ended(words)


def _has_ended(words: list[str]) -> bool:
    """A zombie runs nothing and holds no file; only a first thread that left others behind looks like one."""
    return words[_STATE] in "ZX" and int(words[_THREADS]) <= 1


def _stat_words(pid: int) -> list[str] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:  # it ended in the meantime, is hidden, or there is no /proc
        return None
    return text.rpartition(")")[2].split()
