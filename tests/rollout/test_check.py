"""Checking: every damage a finding with its place, and a command where there is one."""

from __future__ import annotations

import fcntl
import io
import os
import shlex
from pathlib import Path

import msgspec
import pytest
import zstandard

from protocol.errors import NotARollout, ThreadNotFound
from rollout.check import FINDINGS_MAX, CheckReport, Severity, check_rollout
from rollout.kept import keep_torn_tail, keep_unwritten
from tests.rollout.written import META_PAYLOAD, THREAD_ID, dump, line, message, meta, rollout

NAME = f"rollout-2026-11-29T10-11-12-{THREAD_ID}.jsonl"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / NAME


def check(path: Path, data: bytes) -> CheckReport:
    path.write_bytes(data)
    report = check_rollout(path)
    assert path.read_bytes() == data
    return report


def codes(report: CheckReport) -> dict[str, Severity]:
    return {finding.code: finding.severity for finding in report.findings}


def test_good_rollout_has_no_findings(path: Path) -> None:
    """Nothing to say about a good one, and its totals."""
    data = rollout("one", "two")
    report = check(path, data)
    assert report.ok
    assert report.findings == []
    assert (report.records, report.lines, report.size_bytes) == (3, 3, len(data))
    assert (report.valid_prefix_bytes, report.torn_tail_bytes, report.max_ordinal) == (len(data), 0, 2)
    assert report.thread_id == THREAD_ID


@pytest.mark.case("B01")
@pytest.mark.case("B131")
@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (b"{", "not_json"),
        (b"\xff", "not_utf8"),
        (b"[]", "not_an_object"),
        (b"\0" * 50, "nul_bytes"),
        (b'{"a":' * 200, "too_deep"),
        (message("lost", 2)[:40] + message("glued", 2)[:-1], "not_json"),
    ],
)
def test_damaged_line_is_an_error_with_its_place(path: Path, bad: bytes, code: str) -> None:
    """Line, byte, size and reason of each; what stands before is the valid prefix."""
    head = rollout("one")
    report = check(path, head + bad + b"\n" + message("after", 2))
    assert not report.ok
    (finding,) = [each for each in report.findings if each.severity is Severity.ERROR]
    assert (finding.code, finding.line_no) == (code, 3)
    assert (finding.offset_bytes, finding.size_bytes) == (len(head), len(bad))
    assert report.valid_prefix_bytes == len(head)
    assert (report.records, report.damaged_lines) == (3, 1)


def test_torn_tail_comes_with_the_command_that_mends_it(tmp_path: Path) -> None:
    """The command names the file as a shell needs it."""
    path = tmp_path / "a name with spaces.jsonl"
    report = check(path, rollout("one") + b'{"half')
    (finding,) = report.findings
    assert (finding.code, finding.severity) == ("torn_tail", Severity.ERROR)
    assert shlex.split(finding.fix or "") == ["rollout", "repair", str(path)]
    assert report.torn_tail_bytes == 6


@pytest.mark.case("B12")
def test_torn_tail_of_a_live_writer_is_in_flight(path: Path) -> None:
    """While a writer holds the file, its unfinished line is no damage."""
    path.write_bytes(rollout("one") + b'{"half')
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        report = check_rollout(path)
    assert report.ok
    assert codes(report) == {"in_flight": Severity.NOTE}
    assert f"pid {os.getpid()}" in report.findings[0].message


def test_lock_of_the_thread_counts_as_well(tmp_path: Path) -> None:
    """A writer of a home, Codex included, holds a lock file instead."""
    path = tmp_path / "sessions" / NAME
    lock = tmp_path / "thread-writer-locks" / f"{THREAD_ID}.lock"
    for each in (path, lock):
        each.parent.mkdir()
    path.write_bytes(rollout("one") + b'{"half')
    with lock.open("w") as file:
        assert codes(check_rollout(path)) == {"torn_tail": Severity.ERROR}
        fcntl.flock(file, fcntl.LOCK_EX)
        assert codes(check_rollout(path)) == {"in_flight": Severity.NOTE}


@pytest.mark.case("B33")
def test_oddities_of_the_file_are_findings(path: Path) -> None:
    """Ordinals, a late header, CRLF, no final newline: each is named, with a count where it repeats."""
    data = line("x_unknown", {}) + meta() + message("a", 5) + message("b", 5) + message("c", 5)
    report = check(path, data.replace(b"\n", b"\r\n")[:-2])
    found = codes(report)
    assert found == {
        "meta_late": Severity.WARNING,
        "ordinal_gap": Severity.WARNING,
        "ordinal_repeated": Severity.WARNING,
        "crlf": Severity.NOTE,
        "no_final_newline": Severity.NOTE,
    }
    assert report.ok
    assert "2 times" in next(each.message for each in report.findings if each.code == "ordinal_repeated")


@pytest.mark.parametrize(
    ("data", "code", "severity"),
    [
        (message("a", 0), "meta_absent", Severity.ERROR),
        (meta(cwd=None), "meta_incomplete", Severity.WARNING),
        (meta(history_mode="brand-new"), "history_mode_unknown", Severity.WARNING),
        (meta(id="01960000-0000-7000-8000-0000000000aa"), "id_not_in_name", Severity.WARNING),
        (meta(id="no-uuid"), "id_not_uuid", Severity.WARNING),
        (meta() + meta(None), "meta_repeated", Severity.NOTE),
        (meta() + line("event_msg", {}, 1, stamp=None), "no_timestamp", Severity.WARNING),
        (meta() + line("x_gap", {"bytes": 77, "cause": "truncated"}), "gap", Severity.WARNING),
        (b"\xef\xbb\xbf" + meta(), "bom", Severity.WARNING),
    ],
)
def test_problems_of_header_and_records_are_findings(
    path: Path, data: bytes, code: str, severity: Severity
) -> None:
    """What Codex or a resume would stumble over is told beforehand."""
    assert codes(check(path, data))[code] is severity


def test_destroyed_bytes_are_named(path: Path) -> None:
    """An x_gap record says how much another program destroyed, and how."""
    report = check(path, meta() + line("x_gap", {"bytes": 77, "cause": "truncated"}))
    assert "77 bytes" in report.findings[0].message
    assert "truncated" in report.findings[0].message


@pytest.mark.case("B114")
def test_old_formats_are_counted(path: Path) -> None:
    """Records of old formats are read, and counted in one finding."""
    header = dump({key: META_PAYLOAD[key] for key in ("id", "timestamp")} | {"instructions": None})
    item = dump({"type": "message", "role": "user", "content": []})
    report = check(path, header + b"\n" + item + b"\n" + item + b"\n")
    assert report.ok
    assert "old_format" in codes(report)
    assert "3 records" in next(each.message for each in report.findings if each.code == "old_format")


@pytest.mark.case("B135")
@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "it is empty"),
        (b"\0" * 100, "NUL bytes"),
        (dump({"type": "turn.started"}) + b"\n", "codex exec --json"),
        (dump({"model": "m", "messages": []}) + b"\n", "a log of requests to a model"),
    ],
)
def test_what_is_no_rollout_is_one_finding_that_names_it(path: Path, data: bytes, words: str) -> None:
    """Not "0 records" but what the file is."""
    report = check(path, data)
    (finding,) = report.findings
    assert (finding.code, finding.severity) == ("not_a_rollout", Severity.ERROR)
    assert words in finding.message


@pytest.mark.case("B56")
def test_what_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    """Absent and folder raise, as everywhere."""
    with pytest.raises(ThreadNotFound):
        check_rollout(tmp_path / "no.jsonl")
    with pytest.raises(NotARollout):
        check_rollout(tmp_path)


def test_kept_files_that_wait_are_findings(path: Path) -> None:
    """Accepted items outside the rollout are an error with the command that brings them in."""
    path.write_bytes(rollout("one"))
    keep_unwritten(path, [message("two", 2)], thread_id=THREAD_ID, offset_bytes=9, items=1)
    descriptor = os.open(path, os.O_RDONLY)
    keep_torn_tail(descriptor, 0, 5, path)
    os.close(descriptor)
    report = check_rollout(path)
    assert not report.ok
    assert codes(report) == {"kept_unwritten": Severity.ERROR, "kept_torn": Severity.NOTE}
    waiting = next(each for each in report.findings if each.code == "kept_unwritten")
    assert "1 accepted items" in waiting.message
    assert waiting.fix == f"rollout repair --replay {path}"


def test_damaged_kept_file_is_a_finding(path: Path) -> None:
    """A kept file that can't be used is reported, not raised."""
    path.write_bytes(rollout("one"))
    kept = keep_unwritten(path, [message("two", 2)], thread_id=None, offset_bytes=9, items=1)
    assert kept is not None
    os.truncate(kept, kept.stat().st_size - 4)
    assert codes(check_rollout(path)) == {"kept_damaged": Severity.ERROR}


@pytest.mark.guarantee("G7")
def test_damage_everywhere_gives_a_bounded_report(path: Path) -> None:
    """Beyond a number of findings the rest is only counted; what there is once is never left out."""
    report = check(path, rollout("one") + b"bad\n" * (FINDINGS_MAX + 500) + b"{")
    assert len(report.findings) == FINDINGS_MAX + 1
    assert report.findings[-1].code == "torn_tail"
    assert report.omitted_findings == 500
    assert report.damaged_lines == FINDINGS_MAX + 501


def test_compressed_and_piped_rollouts_are_checked(tmp_path: Path) -> None:
    """A damaged frame is a finding; a stream is checked without a path."""
    path = tmp_path / f"{NAME}.zst"
    packed = zstandard.compress(rollout(*(f"{n:04}" * 5000 for n in range(20))))
    assert check(path, packed).ok
    damaged = check(path, packed[:-9])
    assert codes(damaged)["damaged_frame"] is Severity.ERROR
    assert damaged.records > 1
    assert "a zstd frame is cut short" in check(path, packed[:20]).findings[0].message
    report = check_rollout(io.BytesIO(rollout("a") + b"{"), name="standard input")
    assert codes(report) == {"torn_tail": Severity.ERROR}
    assert (report.path, report.findings[0].fix) == ("standard input", None)


def test_report_is_json(path: Path) -> None:
    """A report goes through JSON and back."""
    report = check(path, rollout("one") + b"bad\n")
    assert msgspec.json.decode(msgspec.json.encode(report), type=CheckReport) == report
