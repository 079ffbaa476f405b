"""`rollout version`."""

from __future__ import annotations

import click

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
    from importlib.metadata import PackageNotFoundError, version

    terminal = terminal_of(context)
    try:
        text = version("rollout-recorder")
    except PackageNotFoundError:  # run from a source tree that was not installed
        text = "unknown"
    if terminal.json:
        terminal.emit("version", name="rollout-recorder", version=text)
    else:
        terminal.print(f"rollout-recorder {text}")
