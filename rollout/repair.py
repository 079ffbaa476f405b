"""Repair: what a rollout's end needs before it can be appended to, and what was set aside for it.

Invariant: bytes before the last newline are never touched, so the old file up to there is a
prefix of the mended one. A torn tail is on stable storage elsewhere before it is cut; a line
of a kept file gets into the rollout once, however often the replay is cut short. Damaged lines
in the middle stay where they are: readers pass over them.

Both locks are held while anything is changed: the rollout's own, and its thread's in a home.
"""

from __future__ import annotations

import errno
import os
import platform
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext

from msgspec import Struct, field

from protocol.codec import encode_item
from protocol.errors import NotARollout, RolloutUnreadable
from protocol.items import RolloutItem
from protocol.timestamps import format_timestamp, now_ms
from rollout.append_state import require_appendable, scan_for_append
from rollout.erase_journal import finish_begun
from rollout.head import find_head
from rollout.kept import UNWRITTEN, KeptFile, find_kept, keep_torn_tail
from rollout.lines import RECORD_BYTES_MAX
from rollout.mended_file import MendedFile, open_mended
from rollout.paths import RolloutName
from rollout.reader import RolloutReader
from rollout.replay import LateItems, Missing, find_missing, number_lines
from rollout.syscalls import FileCalls
from rollout.tail import Tail, TailKind, find_tail
from rollout.thread_lock import hold_thread_lock
from rollout.unwritten import Unwritten, mark_replayed, read_unwritten

__all__ = ["RepairAction", "RepairReport", "repair_rollout"]

WRITE_BYTES = 1 << 20
_META_BEGIN = b'"type":"session_meta"'


class RepairAction(Struct, frozen=True, kw_only=True):
    """One step, done or (in a dry run) to be done.

    `kind`: `end_line` (a newline is added), `cut_tail` (a torn tail is set aside and cut), `replay` (lines
    of a kept file are appended).
    """

    kind: str
    message: str
    offset_bytes: int
    """Where in the rollout."""
    size_bytes: int
    kept_path: str | None = None
    """Where the torn tail went, or where the lines came from."""


class RepairReport(Struct, kw_only=True):
    """What a repair did, or would do. No actions: there is nothing to mend."""

    path: str
    dry_run: bool
    thread_id: str | None = None
    actions: list[RepairAction] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    """Kept files of unwritten items that were left as they are: they are replayed when asked for."""


def repair_rollout(
    path: str | os.PathLike[str],
    *,
    dry_run: bool = True,
    replay: bool = False,
    holds_thread_lock: bool = False,
    record_bytes_max: int = RECORD_BYTES_MAX,
    spill_folders: Sequence[str | os.PathLike[str]] | None = None,
    find_late: Callable[[], Iterable[LateItems]] = tuple,
    calls: FileCalls | None = None,
) -> RepairReport:
    """Mend the end of a rollout, and with `replay` bring in what a recorder could not write.

    A dry run changes nothing and takes no lock. On return of any other the mended file is on stable
    storage. `holds_thread_lock`: the caller holds the lock of the thread already. `spill_folders`: where
    else unwritten items may be, by default among the system's temporary files. `find_late`: called under
    the locks, it says what was set aside for older files of the thread and belongs behind this one.
    FORMAT.md, Opening and Kept files.

    Raises:
        ThreadNotFound, NotARollout, RolloutUnreadable: there is nothing that could be mended; a
            compressed rollout and a link are refused too.
        ActiveWriter: somebody writes it.
        RolloutWriteError: the system refused a step; those before it are done, and a second repair goes
            on from there.
    """
    path = os.path.abspath(path)
    calls = calls or FileCalls()

    def find_waiting() -> list[KeptFile]:
        return [each for each in find_kept(path, spill_folders=spill_folders) if each.kind == UNWRITTEN]

    if not dry_run:
        name = RolloutName.match(os.path.basename(path)) if holds_thread_lock else None
        finish_begun(path, thread_id=None if name is None else name.thread_id)
    report = RepairReport(path=path, dry_run=dry_run)
    create = replay and not os.path.lexists(path) and _begins_rollout(find_waiting())
    lock = nullcontext() if dry_run or holds_thread_lock else hold_thread_lock(path)
    with lock, open_mended(path, calls, dry_run=dry_run, create=create) as file:
        # Listed under the locks: another repair may just have ended.
        waiting, late = find_waiting(), list(find_late())
        repair = _Repair(file, report, record_bytes_max)
        repair.require_mendable(waiting if replay else [])
        repair.mend_tail()
        if not replay:
            report.waiting += [*(each.path for each in waiting), *(each.path for each in late)]
            return report
        for kept in waiting:
            repair.replay(kept)
        for items in late:
            repair.replay_late(items)
    return report


def _begins_rollout(waiting: list[KeptFile]) -> bool:
    """Whether the kept lines begin with a meta line: then they can be replayed into an empty rollout."""
    if not waiting:
        return False
    try:
        first = read_unwritten(waiting[0].path).lines[:1]
    except RolloutUnreadable as error:
        if error.errno == errno.ENOENT:  # another repair has just replayed it
            return False
        raise
    return any(_META_BEGIN in line for line in first)


class _Repair:
    """The steps, in their order."""

    def __init__(self, file: MendedFile, report: RepairReport, record_bytes_max: int) -> None:
        self._file = file
        self._report = report
        self._record_bytes_max = record_bytes_max
        self._headless = False
        self._border = self._end = 0
        """Where the last whole line and the last byte ended before the repair, or what a gap names."""

    def require_mendable(self, waiting: list[KeptFile]) -> None:
        """It must be a rollout, or nothing yet that `waiting` would make one."""
        source = self._file.source
        require_appendable(source)
        try:
            head = find_head(source, record_bytes_max=self._record_bytes_max)
        except NotARollout:
            # Its writer would have begun behind the bytes of others, too; but not in another's file.
            if not _begins_rollout(waiting) or self._holds_a_line():
                raise
            self._headless = True
        else:
            self._report.thread_id = None if head.thread_id is None else str(head.thread_id)

    def _holds_a_line(self) -> bool:
        """Whether any line of the file is valid, of whatever grammar."""
        records = RolloutReader(self._file.descriptor, record_bytes_max=self._record_bytes_max)
        return any(record.line is not None for record in records)

    def mend_tail(self) -> None:
        """See to it that the file ends with a newline."""
        tail = find_tail(self._file.source, record_bytes_max=self._record_bytes_max)
        self._border = tail.offset_bytes if tail.kind is TailKind.TORN else tail.end_bytes
        self._end = tail.end_bytes
        if tail.kind is TailKind.UNTERMINATED:
            if not self._report.dry_run:
                with self._file.kept_mtime():
                    self._file.append(b"\n")
                    self._file.sync()
            self._note_tail(tail, "end_line", "the last line is valid and gets the newline that it lacks")
        elif tail.kind is TailKind.TORN and self._report.dry_run:
            self._note_tail(tail, "cut_tail", f"{tail.reason}; it is set aside, then cut")
        elif tail.kind is TailKind.TORN:
            self._cut_tail(tail)

    def _cut_tail(self, tail: Tail) -> None:
        file = self._file
        kept = os.fspath(
            keep_torn_tail(
                file.descriptor, tail.offset_bytes, tail.end_bytes, self._report.path, calls=file.calls
            )
        )
        with file.kept_mtime():
            if file.cut(tail.offset_bytes, expected_size=tail.end_bytes):
                done = "it was set aside and cut"
            else:
                file.append(b"\n")
                done = "it was set aside; cutting is forbidden here, so a newline ends it"
            if not self._headless:
                file.append(_repaired_line(tail.size_bytes, os.path.basename(kept)))
            file.sync()
        self._note_tail(tail, "cut_tail", f"{tail.reason}; {done}", kept_path=kept)

    def _note_tail(self, tail: Tail, kind: str, message: str, *, kept_path: str | None = None) -> None:
        self._report.actions.append(
            RepairAction(
                kind=kind,
                message=message,
                offset_bytes=tail.offset_bytes,
                size_bytes=tail.size_bytes,
                kept_path=kept_path,
            )
        )

    def replay(self, kept: KeptFile) -> None:
        """Append what the rollout lacks of a file of unwritten lines; then that file is done with."""
        unwritten = read_unwritten(kept.path)
        offset = unwritten.header.offset_bytes
        missing = self._find_missing(unwritten)
        lines = list(number_lines(missing.lines, self._next_ordinal()))
        if lines and offset > self._end:
            # Durable bytes were destroyed, and their writer could not name them any more (G1).
            lines.insert(1 if self._headless else 0, _gap_line(offset - self._border))
            self._border = self._end = offset
        self._headless = False
        # The newline that the file lacked may stand before the first of them.
        self._bring_in(kept.path, lines, missing, again_from=offset if missing.present else None)

    def replay_late(self, late: LateItems) -> None:
        """The same with lines that were set aside for an older file of the thread."""
        missing = self._find_missing(read_unwritten(late.path), late)
        lines = list(number_lines(missing.lines, self._next_ordinal()))
        first = missing.present_from
        self._bring_in(late.path, lines, missing, again_from=None if first is None else max(0, first - 1))

    def _find_missing(self, unwritten: Unwritten, late: LateItems | None = None) -> Missing:
        return find_missing(
            unwritten,
            self._file.descriptor,
            size=self._file.source.size(),
            record_bytes_max=self._record_bytes_max,
            headless=self._headless,
            late=late,
        )

    def _bring_in(
        self, kept_path: str, lines: list[bytes], missing: Missing, *, again_from: int | None
    ) -> None:
        """Append the lines. From `again_from` on there are some by a writer or a repair whose sync may
        have failed."""
        size = self._file.source.size()
        if not self._report.dry_run:
            for piece in _pieces(lines):
                self._file.append(piece)
            if again_from is not None:
                self._file.write_again(min(again_from, size))
            self._file.sync()
            mark_replayed(kept_path, calls=self._file.calls)
        there = f", {missing.present} are there already" if missing.present else ""
        self._report.actions.append(
            RepairAction(
                kind="replay",
                message=f"{len(lines)} lines that were set aside are appended{there}",
                offset_bytes=size,
                size_bytes=sum(map(len, lines)),
                kept_path=kept_path,
            )
        )

    def _next_ordinal(self) -> int:
        try:
            state = scan_for_append(
                self._file.descriptor, self._report.path, record_bytes_max=self._record_bytes_max
            )
        except NotARollout:
            return 0  # nothing stands there yet: the lines begin it
        return 0 if state.max_ordinal is None else state.max_ordinal + 1


def _pieces(lines: list[bytes]) -> Iterator[bytes]:
    """The lines joined to writes of about a mebibyte."""
    piece = bytearray()
    for line in lines:
        piece += line
        if len(piece) >= WRITE_BYTES:
            yield bytes(piece)
            piece.clear()
    if piece:
        yield bytes(piece)


def _gap_line(lost_bytes: int) -> bytes:
    gap = RolloutItem.raw("x_gap", {"bytes": lost_bytes, "cause": "truncated"})
    return encode_item(gap, timestamp=format_timestamp(now_ms()))


def _repaired_line(cut_bytes: int, kept_name: str) -> bytes:
    """A trace that something was cut here: what it was may matter to a resume (FORMAT.md, Own types)."""
    at_ms = now_ms()
    payload = {
        "event": "repaired",
        "pid": os.getpid(),
        "host": platform.node(),
        "program": os.path.basename(sys.argv[0] or "python"),
        "cut_bytes": cut_bytes,
        "quarantine": kept_name,
        "at_ms": at_ms,
    }
    return encode_item(RolloutItem.raw("x_writer", payload), timestamp=format_timestamp(at_ms))
