"""`rollout check`: damage in rollouts, as findings with the command that mends each."""

from __future__ import annotations

from typing import Any

import click
from msgspec import structs

from protocol.errors import RolloutError
from rollout.check import CheckReport, Finding, Severity, check_rollout
from thread_store.chain.base_check import check_base
from thread_store.chain.late_items import find_replayable
from thread_store.cli.failures import ExitCode, report_error
from thread_store.cli.older_files import home_of
from thread_store.cli.options import shared_options, terminal_of
from thread_store.cli.safe_text import safe_line
from thread_store.cli.target import STDIN, find_target
from thread_store.cli.terminal import Terminal
from thread_store.erasing.erasure_check import check_erasures
from thread_store.errors import NotCurrentRollout

__all__ = ["command"]

_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warn", Severity.NOTE: "note"}
_STYLES = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "dim"}


@click.command("check")
@click.argument("threads", metavar="THREAD...", nargs=-1, required=True)
@shared_options
@click.pass_context
def command(context: click.Context, threads: tuple[str, ...]) -> int:
    """Look for damage in rollouts; silent when they are good.

    THREAD is an id, its beginning or end, a path, @ (the newest), or - (standard input). Exit code
    1 if anything is lost or waits to be saved; oddities alone are named and leave it 0. With -v
    also what is merely good to know. Where a history begins in another file it also looks whether
    that still holds it.

    \b
    Examples:
      rollout check @
      rollout check --json sessions/*/*/*/*.jsonl
    """
    terminal = terminal_of(context)
    reports: list[CheckReport] = []
    refused: ExitCode | None = None
    for thread in threads:
        try:
            report = _check(terminal, find_target(terminal, thread).source)
        except RolloutError as error:
            code = report_error(terminal, error)
            refused = refused or code
            continue
        reports.append(report)
        _print_report(terminal, report)
    _print_summary(terminal, reports)
    if refused is not None:
        return refused
    return ExitCode.DONE if all(report.ok for report in reports) else ExitCode.PROBLEMS


def _check(terminal: Terminal, source: str) -> CheckReport:
    """The rollout, and where its history begins in other files, whether these still hold it."""
    report = check_rollout(source)
    if source != STDIN:
        for finding in check_base(source, home_of(terminal, source)):
            report.add(finding)
        for finding in check_erasures(source):
            report.add(finding)
        _leave_out_refused_fixes(report, source)
    return report


def _leave_out_refused_fixes(report: CheckReport, source: str) -> None:
    """A rollout that was left to a writer that hung is not mended: its thread goes on elsewhere."""
    if not any(finding.fix for finding in report.findings):
        return
    try:
        find_replayable(source)
    except NotCurrentRollout as error:
        report.findings = [structs.replace(finding, fix=None) for finding in report.findings]
        report.add(Finding(code=error.code, severity=Severity.NOTE, message=str(error)))


def _print_report(terminal: Terminal, report: CheckReport) -> None:
    shown = [each for each in report.findings if terminal.verbose or each.severity is not Severity.NOTE]
    if terminal.json:
        for finding in report.findings:
            terminal.emit("finding", **_as_object(report, finding))
        return
    if not shown:
        return
    if terminal.is_tty:
        _print_table(terminal, report, shown)
    else:
        for finding in shown:
            terminal.print(_as_line(report, finding))
    if report.omitted_findings:
        terminal.note(f"{report.omitted_findings:,} more findings in {safe_line(report.path)} are not listed")


def _as_line(report: CheckReport, finding: Finding) -> str:
    """`path:line: level: message`, as compilers write it."""
    line = "" if finding.line_no is None else f"{finding.line_no}:"
    place = "" if finding.offset_bytes is None else f" byte {finding.offset_bytes:,}:"
    fix = f". Try: {safe_line(finding.fix)}" if finding.fix else ""
    message = safe_line(finding.message)
    return (
        f"{safe_line(report.path)}:{line} {_LEVELS[finding.severity]}:{place} {message} [{finding.code}]{fix}"
    )


def _print_table(terminal: Terminal, report: CheckReport, findings: list[Finding]) -> None:
    from rich.box import ASCII2, SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=ASCII2 if terminal.ascii else SIMPLE_HEAD,
        title=Text(safe_line(report.path)),
        title_justify="left",
    )
    for heading in ("", "line", "byte", "what", "do"):
        table.add_column(heading, justify="right" if heading in ("line", "byte") else "left", overflow="fold")
    for finding in findings:
        cells = (
            finding.line_no if finding.line_no is not None else "",
            f"{finding.offset_bytes:,}" if finding.offset_bytes is not None else "",
            f"{finding.message} [{finding.code}]",
            finding.fix or "",
        )
        style = _STYLES[finding.severity]
        table.add_row(
            Text(_LEVELS[finding.severity], style=style), *(Text(safe_line(cell)) for cell in cells)
        )
    console = Console(
        file=terminal.stdout, color_system="auto" if terminal.has_colors else None, highlight=False
    )
    console.print(table)


def _as_object(report: CheckReport, finding: Finding) -> dict[str, Any]:
    return {
        "level": _LEVELS[finding.severity],
        "check": finding.code,
        "thread": report.thread_id,
        "path": report.path,
        "line": finding.line_no,
        "byte": finding.offset_bytes,
        "lost_bytes": finding.size_bytes,
        "message": finding.message,
        "fix": finding.fix,
    }


def _print_summary(terminal: Terminal, reports: list[CheckReport]) -> None:
    damaged = sum(not report.ok for report in reports)
    records = sum(report.records for report in reports)
    if terminal.json:
        counts = {"rollouts": len(reports), "damaged": damaged, "records": records}
        terminal.emit("summary", **counts, findings=sum(len(each.findings) for each in reports))
    elif terminal.verbose or terminal.stderr.isatty() or damaged:
        terminal.note(f"{len(reports)} checked, {damaged} damaged, {records:,} records can be read")
