"""`rollout version`."""

from __future__ import annotations

import click

from protocol.version import ORIGINATOR, VERSION
from thread_store.cli.options import shared_options, terminal_of

__all__ = ["command"]


@click.command("version")
@shared_options
@click.pass_context
def command(context: click.Context) -> None:
    """Print the version.

    \b
    Examples:
      rollout version
      rollout version --json
    """
    terminal = terminal_of(context)
    if terminal.json:
        terminal.emit("version", name=ORIGINATOR, version=VERSION)
    else:
        terminal.print(f"{ORIGINATOR} {VERSION}")
