"""`rollout archive`: threads are set aside."""

from __future__ import annotations

import click

from thread_store.cli.amounts import parse_age
from thread_store.cli.moving import Direction, move_threads
from thread_store.cli.options import shared_options, terminal_of
from thread_store.upkeep.archive import archive_thread

__all__ = ["command"]

_TO_ARCHIVE = Direction(
    "archive",
    "archived",
    to_archive=True,
    move=lambda each: archive_thread(each.place, each.thread_id, known=each.files),
)


@click.command("archive")
@click.argument("threads", metavar="[THREAD]...", nargs=-1)
@click.option("--here", is_flag=True, help="All threads that worked in this folder.")
@click.option("--older-than", type=parse_age, metavar="AGE", help="All that were unchanged for so long: 30d.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option("-y", "--yes", is_flag=True, help="Don't ask before many are archived.")
@shared_options
@click.pass_context
def command(
    context: click.Context,
    threads: tuple[str, ...],
    here: bool,
    older_than: float | None,
    dry_run: bool,
    yes: bool,
) -> int:
    """Set threads aside: they are found and read as before, and nothing can be added.

    Their files go to the folder archived_sessions of the home, as Codex does it. A thread that somebody
    writes is refused (exit code 6). Done twice it is done once.

    \b
    Examples:
      rollout archive 7f3a 91c0
      rollout archive --older-than 30d --dry-run
      rollout archive --here -y
    """
    return move_threads(
        terminal_of(context),
        _TO_ARCHIVE,
        threads,
        here=here,
        older_than=older_than,
        dry_run=dry_run,
        yes=yes,
    )
