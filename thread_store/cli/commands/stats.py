"""`rollout stats`: where the bytes of a home are."""

from __future__ import annotations

import click

from thread_store.cli.amounts import counted, format_bytes
from thread_store.cli.failures import ExitCode
from thread_store.cli.library_log import attach_log
from thread_store.cli.options import shared_options, terminal_of
from thread_store.cli.progress import CountProgress
from thread_store.cli.safe_text import safe_line
from thread_store.cli.terminal import Terminal
from thread_store.home import Home
from thread_store.upkeep.storage_stats import KINDS, StorageKind, StorageStats, measure_storage

__all__ = ["command"]


@click.command("stats")
@shared_options
@click.pass_context
def command(context: click.Context) -> int:
    """Show where the bytes of a home are.

    By kind: live and archived rollouts, plain and compressed, blobs, what was set aside, derived files,
    locks. Nothing is opened. Exit code 1 if there is nothing.

    \b
    Examples:
      rollout stats
      rollout stats --json
    """
    terminal = terminal_of(context)
    attach_log(terminal)
    home = Home.resolve(terminal.home, terminal.environ)
    progress = CountProgress(terminal, "counting", "files")
    try:
        found = measure_storage(home, progress.update)
    finally:
        progress.clear()
    for path in found.unlistable:
        terminal.warn(f"{safe_line(path)} can't be looked into; it is left out", code="unlistable", path=path)
    _print(terminal, home, found)
    return ExitCode.DONE if any(each.files for each in found.kinds) else ExitCode.PROBLEMS


def _print(terminal: Terminal, home: Home, found: StorageStats) -> None:
    if terminal.json:
        for each in found.kinds:
            terminal.emit(
                "storage", what=each.kind, files=each.files, bytes=each.bytes, disk_bytes=each.disk_bytes
            )
        terminal.emit(
            "storage_summary",
            home=str(home.path),
            threads=found.threads,
            archived_threads=found.archived_threads,
            bytes=found.bytes,
        )
        return
    kinds = [each for each in found.kinds if each.files]
    if not kinds:
        terminal.note(f"there is nothing in {safe_line(home.path)}")
        return
    for each in kinds:
        terminal.print(_row(each))
    threads = f"{counted(found.threads, 'thread')}, {found.archived_threads:,} of them archived"
    terminal.note(f"{format_bytes(found.bytes)} in {safe_line(home.path)}: {threads}")


def _row(kind: StorageKind) -> str:
    return f"{kind.kind:<20} {kind.files:>9,}  {format_bytes(kind.bytes):>11}  {KINDS[kind.kind]}"
