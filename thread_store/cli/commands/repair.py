"""`rollout repair`: what a rollout's end needs before anything can be appended to it."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import click

from rollout.repair import RepairAction, RepairReport, repair_rollout
from thread_store.chain.late_items import find_replayable
from thread_store.cli.failures import ExitCode
from thread_store.cli.library_log import attach_log
from thread_store.cli.options import shared_options, terminal_of
from thread_store.cli.safe_text import safe_line
from thread_store.cli.target import STDIN, find_target
from thread_store.cli.terminal import Terminal

__all__ = ["command"]


@click.command("repair")
@click.argument("thread")
@click.option("-y", "--yes", is_flag=True, help="Do it; else it is only said.")
@click.option("--dry-run", is_flag=True, help="Only say it, as without -y.")
@click.option("--replay", is_flag=True, help="Also append the items that a recorder could not write.")
@shared_options
@click.pass_context
def command(context: click.Context, thread: str, yes: bool, dry_run: bool, replay: bool) -> int:
    """Heal a damaged rollout; without -y only say what would be done.

    A torn tail is set aside in full before it is cut; nothing before the last newline is ever
    touched. Exit code 0 if there is nothing (left) to do, 1 if -y would do something.

    After a take-over --replay also brings in what the old writer had accepted. The file that was left to
    that writer is not repaired by itself: name the thread.

    \b
    Examples:
      rollout repair 7f3a
      rollout repair 7f3a -y
      rollout repair session.jsonl --replay -y
    """
    terminal = terminal_of(context)
    attach_log(terminal)
    target = find_target(terminal, thread)
    if target.source == STDIN:
        raise click.UsageError("standard input can't be repaired; give a file")
    dry = dry_run or not yes
    size_bytes = os.stat(target.source).st_size if os.path.isfile(target.source) else 0
    report = repair_rollout(
        target.source, dry_run=dry, replay=replay, find_late=partial(find_replayable, target.source)
    )
    if terminal.json:
        terminal.emit("repair", **_as_object(report))
    else:
        _print_report(terminal, report, size_bytes, again=target.command("repair"))
    return ExitCode.PROBLEMS if report.dry_run and report.actions else ExitCode.DONE


def _print_report(terminal: Terminal, report: RepairReport, size_bytes: int, *, again: str) -> None:
    if not report.actions:
        terminal.note(f"nothing to repair in {safe_line(report.path)}")
    else:
        _print_ranges(terminal, report, size_bytes)
    if report.dry_run and report.actions:
        replay = " --replay" if any(each.kind == "replay" for each in report.actions) else ""
        terminal.note(f"nothing was changed. To do it: {again}{replay} -y")
    for path in report.waiting:
        terminal.note(f"items that could not be written wait in {safe_line(path)}. Try: {again} --replay")


def _print_ranges(terminal: Terminal, report: RepairReport, size_bytes: int) -> None:
    cut = next((each for each in report.actions if each.kind == "cut_tail"), None)
    kept_end = size_bytes if cut is None else cut.offset_bytes
    terminal.print(f"keep    bytes 0 to {kept_end:,}")
    for action in report.actions:
        terminal.print(
            f"{_VERBS.get(action.kind, action.kind):<7} {_range(action)}: {safe_line(action.message)}"
        )
        if action.kept_path is not None:
            terminal.print(
                f"        {'from' if action.kind == 'replay' else 'to'} {safe_line(action.kept_path)}"
            )


_VERBS = {"cut_tail": "cut", "end_line": "end", "replay": "append"}


def _range(action: RepairAction) -> str:
    if action.kind == "end_line":
        return f"the line at byte {action.offset_bytes:,}"
    end = action.offset_bytes + action.size_bytes
    return f"bytes {action.offset_bytes:,} to {end:,} ({action.size_bytes:,} bytes)"


def _as_object(report: RepairReport) -> dict[str, Any]:
    names = ("kind", "message", "offset_bytes", "size_bytes", "kept_path")
    return {
        "path": report.path,
        "thread": report.thread_id,
        "dry_run": report.dry_run,
        "actions": [{name: getattr(each, name) for name in names} for each in report.actions],
        "waiting": report.waiting,
    }
