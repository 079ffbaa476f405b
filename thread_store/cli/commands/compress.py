"""`rollout compress`: cold threads take less room."""

from __future__ import annotations

import time
from collections.abc import Sequence

import click

from thread_store.cli.amounts import counted, format_bytes, parse_age
from thread_store.cli.confirming import is_confirmed
from thread_store.cli.failures import ExitCode
from thread_store.cli.library_log import attach_log
from thread_store.cli.many_threads import WantedThread, do_each, named_threads, pick_threads
from thread_store.cli.options import shared_options, terminal_of
from thread_store.cli.progress import ByteProgress
from thread_store.cli.safe_text import safe_line
from thread_store.cli.terminal import Terminal
from thread_store.upkeep.compression import COLD_SECONDS, Compressed, compress_thread, expand_thread

__all__ = ["command"]


@click.command("compress")
@click.argument("threads", metavar="[THREAD]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All threads of the home that are cold.")
@click.option(
    "--older-than",
    type=parse_age,
    metavar="AGE",
    help="How long a rollout must not have changed; by default 7d with --all, else 0s.",
)
@click.option("--level", type=click.IntRange(1, 19), help="1 is fast, 19 is small; by default 3.")
@click.option("--expand", is_flag=True, help="The other way: make them plain files again.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option("-y", "--yes", is_flag=True, help="Don't ask before many are compressed.")
@shared_options
@click.pass_context
def command(
    context: click.Context,
    threads: tuple[str, ...],
    everything: bool,
    older_than: float | None,
    level: int | None,
    expand: bool,
    dry_run: bool,
    yes: bool,
) -> int:
    """Compress threads that nobody writes (zstd); they are read as before.

    A compressed file is read back and compared before the plain one goes. Who opens the thread to add
    something expands it again. Live threads are refused (exit code 6).

    \b
    Examples:
      rollout compress 7f3a
      rollout compress --all --older-than 30d -y
      rollout compress 7f3a --expand
    """
    terminal = terminal_of(context)
    attach_log(terminal)
    if bool(threads) == everything:
        raise click.UsageError("name the threads, or say --all", ctx=context)
    age = older_than if older_than is not None else COLD_SECONDS if everything and not expand else 0.0
    wanted = (
        [*pick_threads(terminal, lambda each: _has_work(each, age, expand))]
        if everything
        else named_threads(terminal, threads)
    )
    size = sum(each.size for each in wanted)
    verb = "expanded" if expand else "compressed"
    what = f"{counted(len(wanted), 'thread')} ({format_bytes(size)})"
    if not wanted or dry_run:
        terminal.note(f"{what} would be {verb}; nothing was changed")
        _tell_plan(terminal, wanted, verb)
        return ExitCode.DONE
    if everything and not is_confirmed(terminal, "compress", f"{what} will be {verb}. Go on", yes=yes):
        return ExitCode.REFUSED
    progress, done = ByteProgress(terminal, f"{verb.removesuffix('ed')}ing"), 0

    def report(count: int) -> None:
        nonlocal done
        done += count
        progress.update(done, size)

    def act(each: WantedThread) -> None:
        place, thread_id, files = each
        if expand:
            made = expand_thread(place, thread_id, known=files, progress=report)
        else:
            made = compress_thread(
                place, thread_id, older_than_seconds=age, level=level, known=files, progress=report
            )
        progress.clear()
        _tell(terminal, made, verb)

    try:
        return do_each(terminal, wanted, act)
    finally:
        progress.clear()


def _has_work(each: WantedThread, age: float, expand: bool) -> bool:
    if expand:
        return any(found.name.compressed for found in each.files.rollouts)
    now = time.time()
    plain = [found.path for found in each.files.rollouts if not found.name.compressed]
    return any(now - path.lstat().st_mtime >= age for path in plain)


def _tell_plan(terminal: Terminal, wanted: Sequence[WantedThread], verb: str) -> None:
    for each in wanted:
        if terminal.json:
            terminal.emit(verb, thread=each.thread_id, bytes=each.size, changed=False, dry_run=True)
        else:
            terminal.print(f"{each.thread_id}  {format_bytes(each.size)}")


def _tell(terminal: Terminal, made: Compressed, verb: str) -> None:
    if terminal.json:
        terminal.emit(
            verb,
            thread=made.thread_id,
            paths=[*made.paths],
            bytes=made.bytes_before,
            stored_bytes=made.bytes_after,
            too_young=made.too_young,
            changed=bool(made.paths),
            dry_run=False,
        )
    elif made.paths:
        sizes = f"{format_bytes(made.bytes_before)} {terminal.mark('arrow')} {format_bytes(made.bytes_after)}"
        terminal.print(safe_line(f"{made.thread_id} {verb}: {sizes}"))
    elif made.too_young:
        terminal.print(f"{made.thread_id} was changed too lately; it stays as it is")
    else:
        terminal.print(f"{made.thread_id} is {verb} already")
