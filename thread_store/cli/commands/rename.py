"""`rollout rename`: what a thread is called."""

from __future__ import annotations

import click

from thread_store.cli.named_thread import find_named
from thread_store.cli.options import shared_options, terminal_of
from thread_store.cli.safe_text import safe_line
from thread_store.errors import NotInHome
from thread_store.titles.session_index import SessionIndex

__all__ = ["command"]


@click.command("rename")
@click.argument("thread")
@click.argument("name")
@shared_options
@click.pass_context
def command(context: click.Context, thread: str, name: str) -> int:
    """Give a thread a name, by which it is listed and found.

    Codex shows it too. The rollout stays as it is, so a thread that somebody writes can be renamed.

    \b
    Examples:
      rollout rename @ "fix websocket reconnect"
      rollout rename 7f3a migration
    """
    terminal = terminal_of(context)
    named = find_named(terminal, thread)
    if named.thread is None:
        raise NotInHome(named.path)
    try:
        kept = SessionIndex(named.thread.home.path).append(named.thread.thread_id, name)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if terminal.json:
        terminal.emit("name", thread=named.thread.thread_id, name=kept)
    else:
        terminal.note(f"{named.thread.thread_id} is called {safe_line(kept)!r} now")
    return 0
