"""What the producers of a soak were told: a log of their own, apart from the disk under test.

Invariant: an entry is written by one write(2), after what it tells of and before anything that rests on it,
and is synced soon after; so it outlives its process. `Ledger` reads it back, and knows of each thread what
must be in its file.
"""

from __future__ import annotations

import json
import os
import threading
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Ledger", "ProducerLog", "Told"]

_SYNC_SECONDS = 0.5


class ProducerLog:
    """The log of one process. Used as a context manager; any thread may write."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self.accepted = 0
        """Items that this process was told of."""
        self._over = threading.Event()
        self._syncing = threading.Thread(target=self._sync_now_and_then, name="soak-log", daemon=True)
        self._syncing.start()

    def _sync_now_and_then(self) -> None:
        while not self._over.wait(_SYNC_SECONDS):
            os.fdatasync(self._descriptor)

    def tell(self, kind: str, thread: int = -1, count: int = 0, **fields: Any) -> None:
        """`count`: so many items of the thread, from the first on."""
        entry = {"kind": kind, "thread": thread, "count": count, **fields}
        os.write(self._descriptor, json.dumps(entry).encode() + b"\n")

    def tell_bug(self, thread: int, error: BaseException) -> None:
        """What no caller should ever see."""
        self.tell("bug", thread, text="".join(traceback.format_exception(error))[-4000:])

    def close(self) -> None:
        self._over.set()
        self._syncing.join()
        os.fsync(self._descriptor)
        os.close(self._descriptor)


@dataclass(slots=True)
class Told:
    """What is known of one thread."""

    accepted: int = 0
    safe: int = 0
    """So many items were acknowledged: handed to the system, or on stable storage."""
    synced: int = 0
    ended: bool = False
    """Its last writer has closed it, or said what it could not write: all that was accepted is somewhere."""
    calls: list[str] = field(default_factory=list)
    """Tool calls whose end was acknowledged."""


@dataclass(slots=True)
class Ledger:
    """All that was told."""

    threads: dict[int, Told] = field(default_factory=dict)
    forks: dict[str, int] = field(default_factory=dict)
    """By path, forks that were closed: how many items are in them, with those of their source."""
    counts: Counter[str] = field(default_factory=Counter)
    """Entries by kind."""
    errors: Counter[str] = field(default_factory=Counter)
    """What the product raised, by its name."""
    failures: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, folder: Path) -> Ledger:
        """Read the logs of all processes; those of one thread are in one file."""
        ledger = cls()
        for path in sorted(folder.glob("*.log")):
            data = path.read_bytes()
            for line in data[: data.rfind(b"\n") + 1].splitlines():
                ledger.take(json.loads(line))
        return ledger

    def take(self, entry: dict[str, Any]) -> None:
        """Take one entry."""
        kind, count = entry["kind"], entry["count"]
        told = self.threads.setdefault(entry["thread"], Told()) if entry["thread"] >= 0 else Told()
        self.counts[kind] += 1
        if kind == "found":
            self._take_found(entry["thread"], told, count)
        elif kind == "accept":
            told.accepted, told.ended = count, False
        elif kind in ("flush", "sync", "close", "kept"):
            told.safe = max(told.safe, count)
            if kind != "flush":
                told.synced = max(told.synced, count)
            told.ended = kind in ("close", "kept")
        elif kind == "call":
            told.calls.append(entry["call_id"])
        elif kind == "error":
            self.errors[f"{entry['doing']}: {entry['type']}"] += 1
        elif kind == "fork":
            self.forks[entry["path"]] = count
        elif kind == "bug":
            self.failures.append(f"thread {entry['thread']}: {entry['text']}")

    def _take_found(self, thread: int, told: Told, count: int) -> None:
        """A writer has come and looked what is there, before it wrote anything."""
        if count < told.safe:
            self.failures.append(f"thread {thread}: {told.safe} items were acknowledged, {count} were found")
        if told.ended and count != told.accepted:
            self.failures.append(f"thread {thread}: {told.accepted} items were closed, {count} were found")
        told.accepted = told.safe = count
