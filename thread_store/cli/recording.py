"""One run of `rollout record`: reads, records, and acknowledges what is safe.

Invariant: however the reading ends (the input does, a signal comes, something fails), what was
accepted is drained and synced before this returns or raises; and each line that was not
accepted is named.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence

from protocol.errors import (
    InvalidLine,
    ItemNotEncodable,
    PendingQueueFull,
    RecordTooLarge,
    RolloutError,
    RolloutWriteError,
    UnwrittenItems,
)
from protocol.items import RolloutItem
from rollout.barrier import Receipt
from rollout.blocking import BlockingRecorder
from rollout.config import RecorderConfig
from thread_store.cli.failures import ExitCode, report_error
from thread_store.cli.input_items import InputItems
from thread_store.cli.input_lines import InputLines
from thread_store.cli.progress import ByteProgress
from thread_store.cli.safe_text import safe_line
from thread_store.cli.stop_signals import StopSignals
from thread_store.cli.terminal import Terminal

__all__ = ["Recording"]

_PATIENCE_SECONDS = 0.5
"""How long a full queue is waited for before the trouble is reported and signals are looked at."""


class Recording:
    """Feeds what the lines of input say to a recorder; `stop` says when to end."""

    def __init__(
        self,
        terminal: Terminal,
        recorder: BlockingRecorder,
        stop: StopSignals,
        items: InputItems,
    ) -> None:
        self._terminal = terminal
        self._recorder = recorder
        self._stop = stop
        self._items = items
        self._begun = False
        self._line_bytes_max = RecorderConfig().record_bytes_max
        self._bad_lines = 0
        self._good_lines = 0
        self._unflushed = False
        self._trouble = ""

    def run(self, descriptor: int) -> int:
        """Read to the end, or to a signal; then close, acknowledge, and return the exit code."""
        lines = InputLines(descriptor, self._stop, line_bytes_max=self._line_bytes_max)
        status = os.fstat(descriptor)
        total_bytes = status.st_size if stat.S_ISREG(status.st_mode) else None
        progress = ByteProgress(self._terminal, "recording")
        try:
            self._read(lines, lambda: progress.update(lines.read_bytes, total_bytes, lines=lines.lines))
            self._end()
        except BaseException:
            progress.clear()
            self._close()  # what was accepted before is saved whatever happened here
            raise
        progress.clear()
        receipt = self._close()
        if lines.cut_bytes and self._stop.received is not None:
            self._reject(lines.lines + 1, "cut_line", "the signal came before its end", rejected=False)
        if receipt is None:
            return ExitCode.SYSTEM
        self._acknowledge(receipt)
        code = self._stop.exit_code
        return code if code is not None else ExitCode.PROBLEMS if self._bad_lines else ExitCode.DONE

    def _read(self, lines: InputLines, show_progress: Callable[[], None]) -> None:
        for each in lines:
            if each is None:
                self._flush()
                continue
            number, line = each
            if line is None:
                self._reject(number, "too_long", f"it is longer than {self._line_bytes_max:,} bytes")
            elif not self._take(number, line):
                return
            show_progress()

    def _take(self, number: int, line: bytes) -> bool:
        """Record one line. False if it had to be given up: a signal came and the queue is full."""
        try:
            items = self._items.items_of(line)
            if items:
                self._begin()
                self._record(items)
                self._good_lines += 1
        except (InvalidLine, ItemNotEncodable, RecordTooLarge) as error:
            self._reject(number, getattr(error, "reason", error.code), error.message)
        except PendingQueueFull as error:
            self._reject(number, error.code, f"a signal came, and {error.message}; reading ended before it")
            return False
        return True

    def _begin(self) -> None:
        """Before the first item. What was refused then is tried again with the next one."""
        if not self._begun:
            self._record(self._items.first_items())
            self._begun = True

    def _end(self) -> None:
        """Behind the last one, also if it is a signal that ended the reading."""
        try:
            if self._begun:
                self._record(self._items.last_items())
        except PendingQueueFull as error:
            self._terminal.warn(f"the turn is left open: {safe_line(error.message)}", code=error.code)

    def _record(self, items: Sequence[RolloutItem]) -> None:
        self._unflushed = True
        while True:
            try:
                self._recorder.record(items, timeout=_PATIENCE_SECONDS)
                return
            except PendingQueueFull as error:
                if self._stop.received is not None:
                    raise
                self._report_trouble(error.last_error or error)

    def _flush(self) -> None:
        """Nothing more to read for now: see that what came so far reaches the system, and say if not."""
        if not self._unflushed:
            return
        try:
            self._recorder.flush()
        except RolloutWriteError as error:
            self._report_trouble(error)
        else:
            self._unflushed = False
            if self._trouble:
                self._trouble = ""
                self._terminal.note("writing works again; nothing was lost")

    def _report_trouble(self, error: BaseException) -> None:
        """Say what holds the writer up, once a cause."""
        text = error.message if isinstance(error, RolloutError) else str(error)
        if text == self._trouble:
            return
        self._trouble = text
        pending = self._recorder.health.pending_items
        self._terminal.warn(
            f"{safe_line(text)}; {pending:,} items wait in memory, and it is tried again",
            code=getattr(error, "code", "os_error"),
            pending_items=pending,
        )

    def _reject(self, number: int, code: str, reason: str, *, rejected: bool = True) -> None:
        self._bad_lines += rejected
        message = f"line {number} was not recorded: {safe_line(reason)}"
        self._terminal.warn(message, code=code, line=number)

    def _close(self) -> Receipt | None:
        try:
            return self._recorder.close()
        except UnwrittenItems as error:
            report_error(self._terminal, error)
            if error.kept_path is None:
                lost = f"{error.pending_items:,} items could be kept nowhere and are lost; record them again"
                self._terminal.warn(lost, code="items_lost", pending_items=error.pending_items)
            return None
        except KeyboardInterrupt:
            health = self._recorder.health
            self._terminal.warn(
                f"interrupted while saving; {health.pending_items:,} items were not on stable storage yet",
                code="interrupted",
                pending_items=health.pending_items,
            )
            raise

    def _acknowledge(self, receipt: Receipt) -> None:
        terminal, recorder = self._terminal, self._recorder
        stopped_by = None if self._stop.received is None else self._stop.received.name
        if terminal.json:
            terminal.emit(
                "recorded",
                thread=recorder.thread_id,
                path=recorder.path if receipt.items else None,
                lines=self._good_lines,
                bad_lines=self._bad_lines,
                items=receipt.items,
                synced_bytes=receipt.offset_bytes,
                stopped_by=stopped_by,
                redactions=dict(recorder.health.redactions),
            )
            return
        if redactions := recorder.health.redactions:
            each = ", ".join(f"{rule} {count:,}" for rule, count in sorted(redactions.items()))
            terminal.note(f"redacted {sum(redactions.values()):,} ({safe_line(each)})")
        if stopped_by is not None:
            terminal.note(f"stopped by {stopped_by}; everything accepted is saved")
        if self._bad_lines:
            terminal.note(f"{self._bad_lines:,} lines were not recorded, {self._good_lines:,} were")
        if not receipt.items:
            terminal.note("there was nothing to record; no file was made or changed")
        elif terminal.quiet:
            terminal.print(recorder.thread_id)
        else:
            terminal.print(
                f"{safe_line(recorder.thread_id)}  {receipt.items:,} items, synced to byte "
                f"{receipt.offset_bytes:,} of {safe_line(recorder.path)}"
            )
