"""`rollout prune`: old threads go, by age, number or size."""

from __future__ import annotations

import time
from collections import Counter

import click

from protocol.timestamps import format_timestamp
from thread_store.cli.amounts import counted, format_bytes, parse_age, parse_size
from thread_store.cli.failures import ExitCode
from thread_store.cli.library_log import attach_log
from thread_store.cli.many_threads import home_place
from thread_store.cli.options import shared_options, terminal_of
from thread_store.cli.progress import CountProgress
from thread_store.cli.safe_text import safe_line
from thread_store.cli.terminal import Terminal
from thread_store.cli.times import format_age
from thread_store.upkeep.prune import Pruned, PruneLook, carry_out, look_at_home
from thread_store.upkeep.prune_plan import PruneLimits

__all__ = ["command"]

_WHY = {"live": "somebody writes them", "pinned": "labelled keep", "referenced": "others rest on them"}


@click.command("prune")
@click.option(
    "--older-than", type=parse_age, metavar="AGE", help="Threads that were unchanged for so long: 30d, 1y."
)
@click.option("--keep", type=click.IntRange(0), metavar="N", help="Never the newest N; alone: all but those.")
@click.option("--max-size", type=parse_size, metavar="SIZE", help="The oldest, until all have at most: 2G.")
@click.option("-y", "--yes", is_flag=True, help="Do it. Without it nothing is changed.")
@shared_options
@click.pass_context
def command(
    context: click.Context, older_than: float | None, keep: int | None, max_size: int | None, yes: bool
) -> int:
    """Delete old threads; without -y only say what would go.

    Never one that somebody writes, that is labelled keep, or that another thread rests on which stays. The
    temporary files of killed processes go too, and blobs that no record names. Without any limit it is
    these alone.

    \b
    Examples:
      rollout prune --older-than 90d
      rollout prune --older-than 30d --keep 100 -y
      rollout prune --max-size 2G
    """
    terminal = terminal_of(context)
    attach_log(terminal)
    limits = None
    if (older_than, keep, max_size) != (None, None, None):
        limits = PruneLimits(older_than_seconds=older_than, keep=keep, bytes_max=max_size)
    place = home_place(terminal)
    with _Watch(terminal) as watch:
        look = look_at_home(place, limits, progress=watch.update)
    for unread in look.blobs.passed_over[:1]:
        said = safe_line(unread.message)
        terminal.warn(f"no blob goes, because nobody can tell which are named: {said}", code=unread.code)
    if not yes:
        _tell_plan(terminal, look)
        return ExitCode.DONE
    with _Watch(terminal) as watch:
        done = carry_out(place, look, watch.update)
    _tell(terminal, done)
    return ExitCode.DONE


class _Watch:
    """A progress line for each thing that is done in turn."""

    def __init__(self, terminal: Terminal) -> None:
        self._lines: dict[str, CountProgress] = {
            "threads": CountProgress(terminal, "looking", "rollouts"),
            "blobs": CountProgress(terminal, "looking for blobs", "bytes"),
            "deleting": CountProgress(terminal, "deleting", "threads"),
        }
        self._totals: Counter[str] = Counter()

    def __enter__(self) -> _Watch:
        return self

    def __exit__(self, *_: object) -> None:
        for line in self._lines.values():
            line.clear()

    def update(self, what: str, count: int) -> None:
        self._totals[what] = self._totals[what] + count if what == "blobs" else count
        for name, line in self._lines.items():
            if name != what:
                line.clear()
        self._lines[what].update(self._totals[what])


def _tell_plan(terminal: Terminal, look: PruneLook) -> None:
    plan, now = look.plan, time.time()
    if terminal.json:
        for each in plan.going:
            terminal.emit(
                "prune_thread",
                thread=each.thread_id,
                bytes=each.bytes,
                updated=format_timestamp(int(each.changed * 1000)),
                archived=each.archived,
            )
        for path in look.nobodys:
            terminal.emit("prune_file", path=path)
        terminal.emit(
            "pruned",
            dry_run=True,
            threads=len(plan.going),
            bytes=look.bytes,
            leftovers=len(look.leftovers),
            blobs=len(look.blobs.blobs),
            staying=dict(plan.staying),
        )
        return
    for each in plan.going:
        archived = "  archived" if each.archived else ""
        age = format_age(max(0.0, now - each.changed))
        terminal.print(f"{each.thread_id}  {age:>5}  {format_bytes(each.bytes):>10}{archived}")
    for path in look.nobodys:
        terminal.print(safe_line(path))
    for reason, count in Counter(plan.staying.values()).items():
        terminal.note(f"{counted(count, 'thread')} would stay: {_WHY[reason]}")
    if not look.bytes and not plan.going:
        terminal.note("there is nothing to prune")
        return
    parts = _parts(len(plan.going), len(look.leftovers), len(look.blobs.blobs))
    size = format_bytes(look.bytes)
    terminal.note(f"{parts} would go, {size}; nothing was changed. To do it: the same with -y")


def _parts(threads: int, leftovers: int, blobs: int) -> str:
    parts = [counted(threads, "thread")]
    if leftovers:
        parts.append(counted(leftovers, "temporary file"))
    if blobs:
        parts.append(counted(blobs, "blob"))
    return ", ".join(parts)


def _tell(terminal: Terminal, done: Pruned) -> None:
    for error in done.skipped:
        terminal.warn(f"it stays: {safe_line(error.message)}", code=error.code, thread=error.thread_id)
    if terminal.json:
        for thread_id in done.threads:
            terminal.emit("deleted", thread=thread_id, changed=True, dry_run=False)
        terminal.emit(
            "pruned",
            dry_run=False,
            threads=len(done.threads),
            bytes=done.bytes,
            leftovers=done.leftovers,
            blobs=done.blobs,
        )
        return
    parts = _parts(len(done.threads), done.leftovers, done.blobs)
    terminal.print(f"{parts} deleted, {format_bytes(done.bytes)} are free now")
