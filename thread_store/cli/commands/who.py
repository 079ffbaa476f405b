"""`rollout who`: live writers, and the locks that dead ones left."""

from __future__ import annotations

import socket
import time
from typing import Any

import click

from thread_store.cli.failures import ExitCode
from thread_store.cli.library_log import attach_log
from thread_store.cli.options import shared_options, terminal_of
from thread_store.cli.safe_text import safe_line
from thread_store.cli.terminal import Terminal
from thread_store.cli.times import age_seconds, format_age, format_time
from thread_store.cli.writers import SeenWriter, see_writers, writer_object
from thread_store.home import Home
from thread_store.locks import LockState

__all__ = ["command"]

_WATCH_SECONDS = 1.0
_HEADINGS = ("THREAD", "PID", "HOST", "SINCE", "LAST ITEM", "LAG", "COMMAND")
_COMMAND_CHARACTERS = 60


@click.command("who")
@click.option("--watch", is_flag=True, help="Look again each second, until Ctrl-C.")
@shared_options
@click.pass_context
def command(context: click.Context, watch: bool) -> int:
    """Show who is writing which thread.

    Also the locks that dead writers left behind. Exit code 1 if there is neither. With --watch a
    terminal is redrawn; elsewhere, and with --json, only what changes is printed.

    \b
    Examples:
      rollout who
      rollout who --json
      rollout who --watch
    """
    terminal = terminal_of(context)
    attach_log(terminal)
    home = Home.resolve(terminal.home, terminal.environ)
    if watch and terminal.is_tty and not terminal.json:
        return _redraw(terminal, home)
    if watch:
        return _print_changes(terminal, home)
    writers = see_writers(home)
    if terminal.json:
        for each in writers:
            terminal.emit("writer", **writer_object(each))
    elif writers:
        terminal.print(_table(terminal, writers))
    else:
        terminal.note(f"nobody is writing a thread of {safe_line(home.path)}")
    return ExitCode.DONE if writers else ExitCode.PROBLEMS


def _redraw(terminal: Terminal, home: Home) -> int:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    with Live(console=Console(file=terminal.stdout), auto_refresh=False) as live:
        while True:
            writers = see_writers(home)
            text = _table(terminal, writers) if writers else "nobody is writing"
            live.update(Text(text, no_wrap=True, overflow="crop"), refresh=True)
            time.sleep(_WATCH_SECONDS)


def _print_changes(terminal: Terminal, home: Home) -> int:
    """A line for each writer that came, got further or is seen otherwise; its state is `gone` if it went."""
    known: dict[str, dict[str, Any]] = {}
    while True:
        now = {str(each.lock.thread_id): writer_object(each) for each in see_writers(home)}
        gone = {
            thread_id: {**known[thread_id], "state": "gone", "alive": None}
            for thread_id in known.keys() - now.keys()
        }
        for thread_id, found in {**now, **gone}.items():
            if known.get(thread_id) != found:
                _print_change(terminal, found)
        terminal.stdout.flush()
        known = now
        time.sleep(_WATCH_SECONDS)


def _print_change(terminal: Terminal, found: dict[str, Any]) -> None:
    if terminal.json:
        terminal.emit("writer", **found)
        return
    pid = terminal.mark("nothing") if found["pid"] is None else found["pid"]
    item = "" if found["last_ordinal"] is None else f", at #{found['last_ordinal']}"
    command = f" ({found['command']})" if found["command"] else ""
    terminal.print(safe_line(f"{found['thread']}  {found['state']}  pid {pid}{command}{item}"))


def _table(terminal: Terminal, writers: list[SeenWriter]) -> str:
    rows = [_HEADINGS, *(_row(terminal, each) for each in writers)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def _row(terminal: Terminal, seen: SeenWriter) -> tuple[str, ...]:
    writer, nothing = seen.lock.writer, terminal.mark("nothing")
    host = writer.host or nothing
    return (
        seen.short_id,
        nothing if writer.pid is None else str(writer.pid),
        "here" if host == socket.gethostname() else safe_line(host),
        _since(terminal, writer.since) or nothing,
        _last_item(seen) or nothing,
        "dead" if seen.lock.state is LockState.STALE else nothing,  # what waits is known to its process only
        _doing(terminal, seen),
    )


def _since(terminal: Terminal, stamp: str | None) -> str:
    age = age_seconds(stamp)
    form = "%H:%M" if age is not None and age < 86_400 else "%m-%d %H:%M"
    return format_time(stamp, form, utc=terminal.utc)


def _last_item(seen: SeenWriter) -> str:
    ordinal = "" if seen.last_ordinal is None else f"#{seen.last_ordinal}"
    age = age_seconds(seen.last_timestamp)
    return f"{ordinal} {'' if age is None else f'{format_age(age)} ago'}".strip()


def _doing(terminal: Terminal, seen: SeenWriter) -> str:
    lock = seen.lock
    if lock.problem is not None:
        return safe_line(lock.problem.message)
    told = safe_line(lock.writer.command or "")
    told = told[:_COMMAND_CHARACTERS] + (terminal.mark("more") if len(told) > _COMMAND_CHARACTERS else "")
    arrow = terminal.mark("arrow")
    if lock.state is LockState.STALE:
        return f"{told} {arrow} left behind; rollout unlock {seen.short_id}".strip()
    if lock.state is LockState.UNKNOWN:
        return f"{told} {arrow} not known whether it is alive".strip()
    return told or terminal.mark("nothing")
