"""`rollout unarchive`: threads are taken out of the archive."""

from __future__ import annotations

import click

from thread_store.cli.moving import Direction, move_threads
from thread_store.cli.options import shared_options, terminal_of
from thread_store.upkeep.archive import unarchive_thread

__all__ = ["command"]

_BACK = Direction(
    "unarchive",
    "unarchived",
    to_archive=False,
    move=lambda each: unarchive_thread(each.place, each.thread_id, known=each.files),
)


@click.command("unarchive")
@click.argument("threads", metavar="[THREAD]...", nargs=-1)
@click.option("--here", is_flag=True, help="All threads that worked in this folder.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option("-y", "--yes", is_flag=True, help="Don't ask before many are taken out.")
@shared_options
@click.pass_context
def command(context: click.Context, threads: tuple[str, ...], here: bool, dry_run: bool, yes: bool) -> int:
    """Take threads out of the archive, so that they can go on.

    Each file goes back to the folder of its day; its time of change stays.

    \b
    Examples:
      rollout unarchive 7f3a
      rollout unarchive --here --dry-run
    """
    return move_threads(
        terminal_of(context), _BACK, threads, here=here, older_than=None, dry_run=dry_run, yes=yes
    )
