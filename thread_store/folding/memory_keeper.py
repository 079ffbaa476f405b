"""Keeps the fold of an open thread at hand, and records it: an `x_memory` after each checkpoint and every
thousand records, so that a resume need not read further back; and aside, then and at the end, as the derived
snapshot of the rollout.

Invariant: the fold is made of the lines as they stand in the file, read back, and of nothing else. If
the file is not what was folded (cut, rebuilt, replaced), it is folded anew. An `x_memory` that can't be
made is made the next time: it only saves a resume time.

Theory of operation. The writer shows what it wrote; that is counted, no more (`look`, on the service's
loop). When it is time, a thread of the service's pool reads what was added, folds it and leaves the
snapshot in the queue as a note of the recorder.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from functools import partial
from time import monotonic

from protocol.errors import RolloutError
from protocol.own import MemoryItem
from protocol.session_memory import SessionMemory
from protocol.tool_safety import DEFAULT_TOOL_SAFETY, ToolSafety
from rollout.pending import Pending
from rollout.service import Service
from thread_store.chain.lineage import Lineage, Place
from thread_store.chain.open_rollout import OpenRollout
from thread_store.folding.derived_snapshot import DerivedSnapshots
from thread_store.folding.fold_range import fold_range
from thread_store.folding.thread_folding import FoldedThread, line_hash
from thread_store.home import Home

__all__ = ["MEMORY_EVERY_RECORDS", "MemoryKeeper"]

_log = logging.getLogger("thread_store.memory")

MEMORY_EVERY_RECORDS = 1_000
"""So often an `x_memory` is recorded; in a flood of records less often (`_REST`)."""

_COUNTED_BYTES = 1 << 20
"""Looked through at once for newlines, on the service's loop."""

_REST = 9
"""So many times as long as it folded it rests then, but for a checkpoint or the end: whoever floods a thread
loses a tenth of the time to the fold, not half of it."""

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
        derived: DerivedSnapshots,
        safety: ToolSafety = DEFAULT_TOOL_SAFETY,
    ) -> None:
        self._path = path
        self._home = home
        self._derived = derived
        self._pending = pending
        self._service = service
        self._safety = safety
        self._pid = os.getpid()
        self._lines = 0
        self._checkpoint = False
        self._is_kept = True
        """Whether nothing was written since the derived snapshot."""
        self._busy = False
        self._rests_until = 0.0
        self._is_resting = False
        self._wake: Callable[[], None] = lambda: None
        self._reading = threading.Lock()
        self._folded: _Folded | None = None

    # On the service's loop

    def attach(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def look(self, data: bytes | bytearray) -> None:
        self._is_kept = False
        for start in range(0, len(data), _COUNTED_BYTES):
            if self._lines >= MEMORY_EVERY_RECORDS:
                break  # it is due: no need to count on
            self._lines += data.count(b"\n", start, start + _COUNTED_BYTES)
        self._checkpoint = self._checkpoint or _CHECKPOINT in data
        self._start_if_due()

    @property
    def is_done(self) -> bool:
        """The writer wants to end: what is due is due now."""
        if self._is_due and not self._busy:
            self._start()
        return not self._busy

    @property
    def _is_due(self) -> bool:
        return self._checkpoint or self._lines >= MEMORY_EVERY_RECORDS

    def _start_if_due(self) -> None:
        if self._busy or not self._is_due:
            return
        wait = self._rests_until - monotonic()
        if self._checkpoint or wait <= 0:
            self._start()
        elif not self._is_resting:
            self._is_resting = True
            self._service.loop.call_later(wait, self._end_rest)

    def _start(self) -> None:
        job = partial(self._record, keeps_aside=self._checkpoint)
        self._busy, self._lines, self._checkpoint = True, 0, False
        self._service.post_blocking(job)

    def _end_rest(self) -> None:
        self._is_resting = False
        self._start_if_due()

    def _finish(self, began: float) -> None:
        now = monotonic()
        self._rests_until = now + _REST * (now - began)
        self._busy = False
        self._start_if_due()
        self._wake()

    # In a thread of the pool

    def _record(self, *, keeps_aside: bool) -> None:
        began = monotonic()
        try:
            with self._reading:
                known = self._catch_up()
                self._pending.append_note(known.snapshot())
                if keeps_aside:
                    self._keep_aside(known)
        except (RolloutError, OSError) as error:
            _log.warning("%s: its session memory is not recorded this time: %s", self._path, error)
        except Exception as bug:  # noqa: BLE001  # in the fold: it must not cost a thread of the pool
            _log.error("%s: its session memory can't be made; this is a bug", self._path, exc_info=bug)
        finally:
            self._service.call(self._finish, began)

    def keep_last(self) -> None:
        """The writer has ended: keep the derived snapshot of all that it wrote. Blocks; never raises."""
        try:
            with self._reading:
                if not self._is_kept:
                    self._keep_aside(self._catch_up())
        except (RolloutError, OSError) as error:
            _log.info("%s: it has no derived snapshot: %s", self._path, error)
        except Exception as bug:  # noqa: BLE001  # whoever waits for the lock must get it
            _log.error("%s: its derived snapshot can't be made; this is a bug", self._path, exc_info=bug)

    def _keep_aside(self, known: _Folded) -> None:
        self._is_kept = True  # what is written meanwhile says so again
        with Lineage.resolve(self._path, self._home) as lineage:
            self._derived.write(known.folded, lineage)

    def memory(self) -> SessionMemory:
        """The session memory of what the OS has by now. Blocks, O(lines added since it was last asked for).

        Raises:
            ThreadNotFound, NotARollout, RolloutUnreadable: the rollout can't be read back.
        """
        if os.getpid() != self._pid:  # in a forked child: who held the lock goes on in the parent only
            return _Folded.read(self._path, self._home, self._derived, self._safety).folded.fold.memory
        with self._reading:
            plain = self._catch_up().folded.fold.memory.to_plain()
        return SessionMemory.from_plain(plain)

    def _catch_up(self) -> _Folded:
        known, self._folded = self._folded, None
        with OpenRollout(self._path) as file:
            if known is not None and known.still_stands(file):
                known.read_on(file)
            else:
                known = _Folded.read(self._path, self._home, self._derived, self._safety, repair=True)
        self._folded = known
        return known


class _Folded:
    """A fold, and what the file must look like if it still is its fold."""

    def __init__(self, folded: FoldedThread, identity: tuple[int, int], last_line: str) -> None:
        self.folded = folded
        self._identity = identity
        self._last_line = last_line

    @classmethod
    def read(
        cls, path: str, home: Home, derived: DerivedSnapshots, safety: ToolSafety, *, repair: bool = False
    ) -> _Folded:
        with Lineage.resolve(path, home) as lineage:
            folded = derived.fold(lineage, repair=repair, safety=safety)
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
        fold_range(folded.fold, file, folded.upto.offset, end)
        folded.upto = Place(folded.upto.segment, end)
        self._last_line = line_hash(file.last_line(end))

    def snapshot(self) -> MemoryItem:
        return self.folded.snapshot(self._last_line)
