"""Keeps the fold of an open thread at hand, and records it: an `x_memory` after each checkpoint and every
thousand records, so that a resume need not read further back.

Invariant: the fold is made of the lines as they stand in the file, read back, and of nothing else. If
the file is not what was folded (cut, rebuilt, replaced), it is folded anew. An `x_memory` that can't be
made is made the next time: it only saves a resume time.

Theory of operation. The writer shows what it wrote; that is counted, no more (`look`, on the service's
loop). When it is time, a thread of the service's pool reads what was added, folds it and leaves the
snapshot in the queue as a note of the recorder.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from protocol.errors import RolloutError
from protocol.own import MemoryItem
from protocol.session_memory import SessionMemory
from protocol.tool_safety import DEFAULT_TOOL_SAFETY, ToolSafety
from rollout.pending import Pending
from rollout.service import Service
from thread_store.home import Home
from thread_store.lineage import Lineage, Place
from thread_store.open_rollout import OpenRollout
from thread_store.thread_folding import FoldedThread, fold_lineage, line_hash, take_record

__all__ = ["MEMORY_EVERY_RECORDS", "MemoryKeeper"]

_log = logging.getLogger("thread_store.memory")

MEMORY_EVERY_RECORDS = 1_000
"""At least so often an `x_memory` is recorded."""

_CHECKPOINT = b'"type":"compacted"'


class MemoryKeeper:
    """The follower of one writer (`rollout.follower`)."""

    def __init__(
        self,
        path: str,
        home: Home,
        *,
        pending: Pending,
        service: Service,
        safety: ToolSafety = DEFAULT_TOOL_SAFETY,
    ) -> None:
        self._path = path
        self._home = home
        self._pending = pending
        self._service = service
        self._safety = safety
        self._lines = 0
        self._checkpoint = False
        self._busy = False
        self._wake: Callable[[], None] = lambda: None
        self._reading = threading.Lock()
        self._folded: _Folded | None = None

    # On the service's loop

    def attach(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def look(self, data: bytes | bytearray) -> None:
        self._lines += data.count(b"\n")
        self._checkpoint = self._checkpoint or _CHECKPOINT in data
        self._start_if_due()

    @property
    def is_done(self) -> bool:
        return not self._busy

    def _start_if_due(self) -> None:
        if not self._busy and (self._checkpoint or self._lines >= MEMORY_EVERY_RECORDS):
            self._busy, self._lines, self._checkpoint = True, 0, False
            self._service.post_blocking(self._record)

    def _finish(self) -> None:
        self._busy = False
        self._start_if_due()
        self._wake()

    # In a thread of the pool

    def _record(self) -> None:
        try:
            self._pending.append_note(self._snapshot())
        except (RolloutError, OSError) as error:
            _log.warning("%s: its session memory is not recorded this time: %s", self._path, error)
        except Exception as bug:  # noqa: BLE001  # in the fold: it must not cost a thread of the pool
            _log.error("%s: its session memory can't be made; this is a bug", self._path, exc_info=bug)
        finally:
            self._service.call(self._finish)

    def _snapshot(self) -> MemoryItem:
        with self._reading:
            return self._catch_up().snapshot()

    def memory(self) -> SessionMemory:
        """The session memory of what the OS has by now. Blocks, O(lines added since it was last asked for).

        Raises:
            ThreadNotFound, NotARollout, RolloutUnreadable: the rollout can't be read back.
        """
        with self._reading:
            plain = self._catch_up().folded.fold.memory.to_plain()
        return SessionMemory.from_plain(plain)

    def _catch_up(self) -> _Folded:
        known, self._folded = self._folded, None
        with OpenRollout(self._path) as file:
            if known is not None and known.still_stands(file):
                known.read_on(file)
            else:
                known = _Folded.read(self._path, self._home, self._safety)
        self._folded = known
        return known


class _Folded:
    """A fold, and what the file must look like if it still is its fold."""

    def __init__(self, folded: FoldedThread, identity: tuple[int, int], last_line: str) -> None:
        self.folded = folded
        self._identity = identity
        self._last_line = last_line

    @classmethod
    def read(cls, path: str, home: Home, safety: ToolSafety) -> _Folded:
        with Lineage.resolve(path, home) as lineage:
            folded = fold_lineage(lineage, safety=safety)
            with lineage.open(lineage.end.segment) as file:
                return cls(folded, file.identity, line_hash(file.last_line(folded.upto.offset)))

    def still_stands(self, file: OpenRollout) -> bool:
        upto = self.folded.upto.offset
        return (
            file.identity == self._identity
            and upto <= file.end
            and line_hash(file.last_line(upto)) == self._last_line
        )

    def read_on(self, file: OpenRollout) -> None:
        folded, end = self.folded, file.end
        for record in file.forward(folded.upto.offset, end):
            take_record(folded.fold, record)
        folded.upto = Place(folded.upto.segment, end)
        self._last_line = line_hash(file.last_line(end))

    def snapshot(self) -> MemoryItem:
        folded = self.folded
        item = folded.fold.snapshot(folded.upto.offset)
        item.last_line = self._last_line
        if not folded.whole:
            own = folded.examined_from.segment == folded.upto.segment
            item.examined_from = folded.examined_from.offset if own else 0
        return item
