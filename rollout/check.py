"""Checking one rollout: everything that is wrong with it, and what to do about it.

Invariant: nothing is changed, no lock is taken, and every finding names its place. The reader
that all commands use says what is damaged; what a recorder set aside beside the rollout counts
as well. A file with damage everywhere gives a bounded report.
"""

from __future__ import annotations

import enum
import os
import shlex
from typing import Any

from msgspec import Struct, field

from protocol.errors import NotARollout
from protocol.ids import ThreadId
from rollout.grammar import explain, is_rollout_line
from rollout.kept import TORN, KeptFile, find_kept
from rollout.lines import RECORD_BYTES_MAX
from rollout.notices import FileNotice
from rollout.paths import RolloutName
from rollout.reader import RolloutReader
from rollout.record import RolloutRecord
from rollout.source import STDIN, RolloutSource
from rollout.thread_lock import find_writer
from rollout.unwritten import read_unwritten

__all__ = ["CheckReport", "Finding", "Severity", "check_rollout"]

FINDINGS_MAX = 1000
"""Further damaged lines and gaps are only counted."""

_EXPLAINED_MAX = 50
_EXPLAINED_BYTES_MAX = 64 << 10

# Without any of them Codex doesn't read the file (FORMAT.md, Meta line).
_META_KEYS = ("id", "timestamp", "cwd", "originator", "cli_version")
_HISTORY_MODES = (None, "legacy", "paginated")


class Severity(enum.StrEnum):
    """`ERROR`: something is lost, or waits to be saved. `WARNING`: odd, and some programs will stumble.
    `NOTE`: good to know."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Finding(Struct, frozen=True, kw_only=True):
    """One thing that is wrong; `fix` is the command that mends it.

    `code` is a reason of a `LineWarning`, a code of a `FileNotice`, or one of `in_flight`, `gap`,
    `no_timestamp`, `old_format`, `meta_incomplete`, `history_mode_unknown`, `id_not_in_name`,
    `not_a_rollout`, `kept_torn`, `kept_unwritten`, `kept_damaged`.
    """

    code: str
    severity: Severity
    message: str
    line_no: int | None = None
    offset_bytes: int | None = None
    size_bytes: int | None = None
    fix: str | None = None


class CheckReport(Struct, kw_only=True):
    """What a check found. Offsets and sizes count decompressed bytes."""

    path: str
    thread_id: str | None = None
    findings: list[Finding] = field(default_factory=list)
    omitted_findings: int = 0
    """How many more there are than `findings` holds."""
    records: int = 0
    """Valid lines."""
    damaged_lines: int = 0
    lines: int = 0
    size_bytes: int = 0
    valid_prefix_bytes: int = 0
    """Everything before the first damage."""
    torn_tail_bytes: int = 0
    max_ordinal: int | None = None
    ok: bool = True
    """No finding is an error."""

    def add(self, finding: Finding) -> None:
        """Take a finding."""
        self.ok = self.ok and finding.severity is not Severity.ERROR
        self.findings.append(finding)

    def add_one_of_many(self, finding: Finding) -> None:
        """Take a finding of a kind that may be met on every line: in full while there is room."""
        if len(self.findings) < FINDINGS_MAX:
            self.add(finding)
            return
        self.ok = self.ok and finding.severity is not Severity.ERROR
        self.omitted_findings += 1


_NOTICE_SEVERITIES = {
    "meta_absent": Severity.ERROR,
    "meta_repeated": Severity.NOTE,
    "crlf": Severity.NOTE,
    "one_document": Severity.NOTE,
    "no_final_newline": Severity.NOTE,
}


def check_rollout(
    source: RolloutSource,
    *,
    record_bytes_max: int = RECORD_BYTES_MAX,
    name: str | None = None,
) -> CheckReport:
    """Read a rollout whole and report all that is wrong with it. `source` is what `read_rollout` takes.

    A file that is no rollout is reported as one finding, with what it is.

    Raises:
        ThreadNotFound, NotARollout (a folder), RolloutUnreadable: there is nothing to read.
    """
    with RolloutReader(source, record_bytes_max=record_bytes_max, name=name) as reader:
        path = os.fspath(source) if isinstance(source, str | os.PathLike) and source != STDIN else None
        check = _Check(reader, path)
        for record in reader:
            check.take(record)
        check.finish()
    return check.report


class _Check:
    """The findings of one pass over the file."""

    def __init__(self, reader: RolloutReader, path: str | None) -> None:
        self.report = CheckReport(path=reader.path)
        self._reader = reader
        self._path = path
        self._first: list[RolloutRecord] = []
        self._ours = False
        self._first_damage: int | None = None
        self._counts: dict[str, tuple[int, RolloutRecord]] = {}

    def take(self, record: RolloutRecord) -> None:
        line, report = record.line, self.report
        if not self._ours and len(self._first) < _EXPLAINED_MAX and record.size <= _EXPLAINED_BYTES_MAX:
            self._first.append(record)
        if line is None:
            self._take_damage(record)
            return
        report.records += 1
        self._ours = self._ours or is_rollout_line(line)
        if line.upcast_from is not None:
            self._count("old_format", record)
        elif line.timestamp is None and line.type != "x_erased":
            self._count("no_timestamp", record)
        if line.type == "x_gap":
            report.add_one_of_many(_gap_finding(record, line.payload_object()))

    def _count(self, code: str, record: RolloutRecord) -> None:
        count, first = self._counts.get(code, (0, record))
        self._counts[code] = (count + 1, first)

    def _take_damage(self, record: RolloutRecord) -> None:
        warning, report = record.warning, self.report
        if warning is None:
            return
        if self._first_damage is None:
            self._first_damage = record.offset
        report.damaged_lines += 1
        finding = Finding(
            code=warning.reason,
            severity=Severity.ERROR,
            message=warning.message,
            line_no=warning.line_no,
            offset_bytes=warning.offset_bytes,
            size_bytes=warning.size_bytes,
        )
        if warning.reason == "torn_tail":
            report.torn_tail_bytes = record.size
            report.add(self._torn_finding(finding))
        else:
            report.add_one_of_many(finding)

    def _torn_finding(self, finding: Finding) -> Finding:
        holder = None if self._path is None else find_writer(self._path, self._reader.thread_id)
        if holder is not None:
            return _with(
                finding,
                code="in_flight",
                severity=Severity.NOTE,
                message=f"the last line is not finished yet: {holder} is writing it",
            )
        return _with(finding, fix=self._command("repair"))

    def _command(self, *words: str) -> str | None:
        return None if self._path is None else f"rollout {' '.join(words)} {shlex.quote(self._path)}"

    def finish(self) -> None:
        report, reader = self.report, self._reader
        report.thread_id = None if reader.thread_id is None else str(reader.thread_id)
        report.lines = reader.lines
        report.size_bytes = reader.end_offset
        report.max_ordinal = reader.max_ordinal
        report.valid_prefix_bytes = reader.end_offset if self._first_damage is None else self._first_damage
        if not self._ours:
            reason, hint = explain(self._first, reader.head)
            report.findings.clear()
            message = f"it is not a rollout: {reason}" + (f". {hint}" if hint else "")
            report.add(Finding(code="not_a_rollout", severity=Severity.ERROR, message=message))
        else:
            self._add_notices()
            self._add_meta_findings()
        self._add_kept()

    def _add_notices(self) -> None:
        for notice in self._reader.notices:
            fix = self._command("repair") if notice.code == "no_final_newline" else None
            self.report.add(_notice_finding(notice, fix))
        if "no_timestamp" in self._counts:
            count, first = self._counts["no_timestamp"]
            message = f"{count} records have no timestamp; Codex takes such lines for damaged"
            self.report.add(_placed(first, code="no_timestamp", severity=Severity.WARNING, message=message))
        if "old_format" in self._counts:
            count, first = self._counts["old_format"]
            message = f"{count} records are of an old format; they are read, and no program appends such"
            self.report.add(_placed(first, code="old_format", severity=Severity.NOTE, message=message))

    def _add_meta_findings(self) -> None:
        record = self._reader.meta_record
        if record is None or record.line is None or record.line.upcast_from is not None:
            return
        payload = record.line.payload_object()
        payload = payload if isinstance(payload, dict) else {}
        absent = [key for key in _META_KEYS if not isinstance(payload.get(key), str)]
        if absent:
            message = f"the session_meta lacks {', '.join(absent)}; Codex can't read such a thread"
            self.report.add(
                _placed(record, code="meta_incomplete", severity=Severity.WARNING, message=message)
            )
        mode = payload.get("history_mode")
        if mode not in _HISTORY_MODES:
            message = f"its history_mode is {str(mode)[:40]!r}; Codex reads legacy and paginated ones only"
            self.report.add(
                _placed(record, code="history_mode_unknown", severity=Severity.WARNING, message=message)
            )
        name = RolloutName.match(os.path.basename(self._path)) if self._path is not None else None
        thread_id = self._reader.thread_id
        if name is not None and isinstance(thread_id, ThreadId) and thread_id != name.thread_id:
            message = f"its name says thread {name.thread_id}, its session_meta {thread_id}"
            self.report.add(
                _placed(record, code="id_not_in_name", severity=Severity.WARNING, message=message)
            )

    def _add_kept(self) -> None:
        for kept in find_kept(self._path) if self._path is not None else ():
            self.report.add(self._kept_finding(kept))

    def _kept_finding(self, kept: KeptFile) -> Finding:
        if kept.kind == TORN:
            message = f"a torn tail of {kept.size_bytes:,} bytes was set aside: {kept.path}"
            return Finding(
                code="kept_torn", severity=Severity.NOTE, message=message, offset_bytes=kept.offset_bytes
            )
        try:
            items = read_unwritten(kept.path).header.items
        except NotARollout as error:
            return Finding(code="kept_damaged", severity=Severity.ERROR, message=str(error))
        return Finding(
            code="kept_unwritten",
            severity=Severity.ERROR,
            message=f"{items} accepted items wait to be replayed: {kept.path}",
            offset_bytes=kept.offset_bytes,
            size_bytes=kept.size_bytes,
            fix=self._command("repair", "--replay"),
        )


def _with(finding: Finding, **changes: Any) -> Finding:
    from msgspec.structs import replace

    return replace(finding, **changes)


def _placed(record: RolloutRecord, *, code: str, severity: Severity, message: str) -> Finding:
    return Finding(
        code=code,
        severity=severity,
        message=message,
        line_no=record.line_no,
        offset_bytes=record.offset,
        size_bytes=record.size,
    )


def _notice_finding(notice: FileNotice, fix: str | None) -> Finding:
    again = f" ({notice.count} times, this is the first)" if notice.count > 1 else ""
    return Finding(
        code=notice.code,
        severity=_NOTICE_SEVERITIES.get(notice.code, Severity.WARNING),
        message=notice.message + again,
        line_no=notice.line_no,
        offset_bytes=notice.offset_bytes,
        fix=fix,
    )


def _gap_finding(record: RolloutRecord, payload: Any) -> Finding:
    gap = payload if isinstance(payload, dict) else {}
    message = (
        f"another program destroyed {gap.get('bytes', 'some')} bytes here ({gap.get('cause', 'unknown')})"
    )
    return _placed(record, code="gap", severity=Severity.WARNING, message=message)
