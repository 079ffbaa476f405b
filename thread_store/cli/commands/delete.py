"""`rollout delete`: threads go for good."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import click

from thread_store.cli.amounts import counted, format_bytes
from thread_store.cli.confirming import is_confirmed
from thread_store.cli.failures import ExitCode
from thread_store.cli.library_log import attach_log
from thread_store.cli.many_threads import WantedThread, named_threads
from thread_store.cli.options import shared_options, terminal_of
from thread_store.cli.progress import CountProgress
from thread_store.cli.safe_text import safe_line
from thread_store.cli.terminal import Terminal
from thread_store.upkeep.deletion import BATCH_MAX, Deleted, DeletionLook, delete_threads, look_at_deletion
from thread_store.upkeep.references import References
from thread_store.upkeep.threads import Place

__all__ = ["command"]


@click.command("delete")
@click.argument("threads", metavar="THREAD...", nargs=-1, required=True)
@click.option("--cascade", is_flag=True, help="Make threads that rest on them self-contained first.")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@click.option("-y", "--yes", is_flag=True, help="Don't ask.")
@shared_options
@click.pass_context
def command(context: click.Context, threads: tuple[str, ...], cascade: bool, dry_run: bool, yes: bool) -> int:
    """Delete threads for good, with everything that is their own.

    Rollouts, live and archived, what was set aside for them, their titles. A thread that somebody writes
    is refused (exit code 6), and one that a fork rests on (7). Without -y it asks; where nobody can be
    asked it refuses.

    \b
    Examples:
      rollout delete 7f3a --dry-run
      rollout delete 7f3a 91c0
      rollout delete 7f3a --cascade -y
    """
    terminal = terminal_of(context)
    attach_log(terminal)
    wanted = named_threads(terminal, threads)
    homes: dict[int, list[WantedThread]] = defaultdict(list)
    for each in wanted:
        homes[id(each.place)].append(each)
    for group in homes.values():
        code = _delete_in_home(terminal, group, cascade=cascade, dry_run=dry_run, yes=yes)
        if code:
            return code
    return ExitCode.DONE


def _delete_in_home(
    terminal: Terminal, wanted: Sequence[WantedThread], *, cascade: bool, dry_run: bool, yes: bool
) -> int:
    place = wanted[0].place
    references = _look(terminal, place)
    looks = look_at_deletion(place, [each.thread_id for each in wanted], references)
    if dry_run:
        _tell_plan(terminal, looks)
        return ExitCode.DONE
    size = sum(each.bytes for each in looks)
    question = f"{counted(len(looks), 'thread')} ({format_bytes(size)}) will be deleted for good. Go on"
    if not is_confirmed(terminal, "delete", question, yes=yes):
        return ExitCode.REFUSED
    ids = [each.thread_id for each in wanted]
    known = {str(each.thread_id): each.files for each in wanted}
    for start in range(0, len(ids), BATCH_MAX):
        batch = ids[start : start + BATCH_MAX]
        _tell(terminal, delete_threads(place, batch, cascade=cascade, known=known, references=references))
    return ExitCode.DONE


def _look(terminal: Terminal, place: Place) -> References:
    references, progress = References(place.home), CountProgress(terminal, "looking for forks", "rollouts")
    try:
        references.look(progress.update)
    finally:
        progress.clear()
    return references


def _tell_plan(terminal: Terminal, looks: Sequence[DeletionLook]) -> None:
    for each in looks:
        if terminal.json:
            terminal.emit(
                "deleted",
                thread=each.thread_id,
                bytes=each.bytes,
                paths=[*each.paths],
                referenced_by=[*each.children],
                changed=False,
                dry_run=True,
            )
            continue
        terminal.print(f"{each.thread_id} would go: {format_bytes(each.bytes)}")
        for path in each.paths:
            terminal.print(f"  {safe_line(path)}")
        if each.holder is not None:
            terminal.print(f"  it is being written by {safe_line(each.holder)}, so it would be refused")
        if each.children:
            children = ", ".join(each.children)
            terminal.print(f"  {children} rests on it, so it would be refused without --cascade")
    terminal.note("nothing was changed")


def _tell(terminal: Terminal, done: Deleted) -> None:
    if terminal.json:
        for thread_id in done.thread_ids:
            terminal.emit("deleted", thread=thread_id, changed=True, dry_run=False)
        for path in done.made_self_contained:
            terminal.emit("self_contained", path=path)
        return
    for path in done.made_self_contained:
        terminal.print(f"made self-contained: {safe_line(path)}")
    for thread_id in done.thread_ids:
        terminal.print(f"{thread_id} deleted")
    terminal.note(f"{format_bytes(done.bytes)} are free now")
