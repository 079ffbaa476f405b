"""`rollout erase`: what should not have been recorded is overwritten."""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Iterator
from typing import Any

import click

from protocol.errors import RolloutError
from thread_store.cli.failures import ExitCode
from thread_store.cli.library_log import attach_log
from thread_store.cli.named_thread import NamedThread, find_named
from thread_store.cli.options import shared_options, terminal_of
from thread_store.cli.progress import ByteProgress
from thread_store.cli.safe_text import safe_line
from thread_store.cli.terminal import Terminal
from thread_store.erasing.erase import Erasure, finish_in_home
from thread_store.erasing.erase_address import NamedRecord
from thread_store.erasing.erase_plan import Copies, ErasePlan, PlannedRecord
from thread_store.erasing.needle import Needle
from thread_store.home import Home

__all__ = ["command"]

_LISTED_MAX = 50


@click.command("erase")
@click.argument("threads", metavar="[THREAD...]", nargs=-1)
@click.option("--text", metavar="S", help="What is to go; - asks for it, or reads it from stdin.")
@click.option("--regex", is_flag=True, help="S is a regular expression.")
@click.option("--all", "everywhere", is_flag=True, help="In all threads of the home (so without THREAD).")
@click.option("--reason", metavar="WHY", help="Written beside what takes a record's place.")
@click.option("--finish", is_flag=True, help="Only finish what was cut short.")
@click.option("--dry-run", is_flag=True, help="Only say what would be overwritten.")
@click.option("-y", "--yes", is_flag=True, help="Don't ask.")
@shared_options
@click.pass_context
def command(
    context: click.Context,
    threads: tuple[str, ...],
    text: str | None,
    regex: bool,
    everywhere: bool,
    reason: str | None,
    finish: bool,
    dry_run: bool,
    yes: bool,
) -> int:
    """Overwrite what should not have been recorded; it can't be undone.

    THREAD#42 is one item, with its records on both tracks and whatever repeats it. --text finds a text
    however it is escaped: in records, checkpoints, first lines, titles, typed prompts, kept files, blobs,
    compressed and archived rollouts. No byte moves, so forks stay whole. Without -y it asks; where
    nobody can be asked it refuses with exit code 7. Exit code 1 if nothing was found. It can't reach
    backups, snapshots of the file system, copies that share blocks, nor what a drive keeps.

    \b
    Examples:
      rollout erase 7f3a#42
      rollout erase --text - --dry-run
      rollout erase --text hunter2 7f3a -y
    """
    terminal = terminal_of(context)
    attach_log(terminal)
    if finish:
        return _finish(terminal, threads)
    wanted = list(_wanted(context, terminal, threads, text, regex, everywhere, reason))
    plans = [each.plan() for each in wanted]
    found = any(plan.files for plan in plans)
    for plan in plans:
        _tell_plan(terminal, plan)
    if not found:
        terminal.note("nothing to erase was found")
    elif not dry_run and not yes and not _is_wanted(terminal, plans):
        return ExitCode.REFUSED
    left: list[str] = []
    if found and not dry_run:
        try:
            for each in wanted:
                left += each.carry_out().left
        except KeyboardInterrupt:
            terminal.note("interrupted; what was begun is finished by: rollout erase --finish")
            raise
    _tell_end(terminal, plans, left, done=found and not dry_run)
    unread = any(plan.unread for plan in plans)
    return ExitCode.DONE if found and not left and not unread else ExitCode.PROBLEMS


def _wanted(
    context: click.Context,
    terminal: Terminal,
    threads: tuple[str, ...],
    text: str | None,
    regex: bool,
    everywhere: bool,
    reason: str | None,
) -> Iterator[Erasure]:
    """What was asked for, each home by itself."""
    named = [find_named(terminal, each) for each in threads]
    options: dict[str, Any] = {"reason": reason}
    if text is None:
        if not named or everywhere or regex or not all(each.target.selects_one for each in named):
            raise click.UsageError("say what is to go: THREAD#N, or --text S", ctx=context)
        for each in named:
            record = NamedRecord(
                ordinal=each.target.first if each.target.offset_bytes is None else None,
                offset=each.target.offset_bytes,
            )
            home = None if each.thread is None else each.thread.home
            ids = None if each.thread is None else [each.thread.thread_id]
            yield Erasure(home, threads=ids, path=each.path, record=record, **options)
        return
    if any(each.target.selects for each in named):
        raise click.UsageError("give THREAD#N or --text, not both", ctx=context)
    needle = _needle(terminal, text, regex)
    progress = ByteProgress(terminal, "looking through")
    done = 0

    def update(size: int) -> None:
        nonlocal done
        done += size
        progress.update(done, None)

    options |= {"needle": needle, "progress": update}
    if everywhere or not named:
        yield Erasure(Home.resolve(terminal.home, terminal.environ), **options)
        return
    yield from _by_home(named, options)


def _by_home(named: list[NamedThread], options: dict[str, Any]) -> Iterator[Erasure]:
    homes: dict[str, tuple[Home, list[str]]] = {}
    for each in named:
        if each.thread is None:
            yield Erasure(None, path=each.path, **options)
        else:
            home, thread_id = each.thread
            homes.setdefault(os.fspath(home.path), (home, []))[1].append(thread_id)
    for home, ids in homes.values():
        yield Erasure(home, threads=ids, **options)


def _needle(terminal: Terminal, text: str, regex: bool) -> Needle:
    if text == "-":
        if sys.stdin is not None and sys.stdin.isatty() and not terminal.json:
            text = getpass.getpass("What is to go (not shown): ", stream=terminal.stderr)
        elif sys.stdin is not None:
            text = sys.stdin.buffer.read().decode(errors="surrogateescape").removesuffix("\n")
    return Needle.pattern(text) if regex else Needle.text(text)


def _is_wanted(terminal: Terminal, plans: list[ErasePlan]) -> bool:
    if terminal.json or sys.stdin is None or not sys.stdin.isatty() or not terminal.stderr.isatty():
        message = "erase needs --yes when there is nobody to ask"
        terminal.fail(message, code="needs_yes", hint="Try the same with --dry-run")
        return False
    wanted = click.confirm(f"{_counts(plans)} will be overwritten for good. Erase?", err=True)
    if not wanted:
        terminal.note("nothing was changed")
    return wanted


def _counts(plans: list[ErasePlan]) -> str:
    records = sum(len(plan.records) for plan in plans)
    files = len({each.path for plan in plans for each in plan.files})
    size = sum(plan.size_bytes for plan in plans)
    return f"{records:,} places ({size:,} bytes) in {files:,} {'file' if files == 1 else 'files'}"


def _tell_plan(terminal: Terminal, plan: ErasePlan) -> None:
    for error in plan.unread:
        terminal.warn(
            f"{safe_line(error.message)}; it was not looked through", code=error.code, path=error.path
        )
    if terminal.json:
        for record in plan.records:
            terminal.emit("erase", **_as_object(record))
        return
    for record in plan.records[:_LISTED_MAX]:
        terminal.print(_as_line(record))
    if len(plan.records) > _LISTED_MAX:
        terminal.print(f"… and {len(plan.records) - _LISTED_MAX:,} more")


def _as_line(record: PlannedRecord) -> str:
    place = f"@{record.offset}" if record.ordinal is None else f"#{record.ordinal}"
    how = "masked" if record.masked else "made of it" if record.derived else "erased"
    name = record.thread_id or os.path.basename(record.path)
    shown = f": {record.shown}" if record.shown else ""
    return safe_line(f"{name}{place} {record.kind}, {record.size:,} bytes, {how}{shown}")


def _as_object(record: PlannedRecord) -> dict[str, Any]:
    return {
        "thread": record.thread_id,
        "path": record.path,
        "ordinal": record.ordinal,
        "offset": record.offset,
        "bytes": record.size,
        "type": record.kind,
        "masked": record.masked,
        "derived": record.derived,
        "text": record.shown,
    }


def _tell_end(terminal: Terminal, plans: list[ErasePlan], left: list[str], *, done: bool) -> None:
    copies = [each for plan in plans for each in plan.copies]
    elsewhere = [each for plan in plans for each in plan.elsewhere]
    if terminal.json:
        terminal.emit(
            "erased",
            changed=done,
            records=sum(len(plan.records) for plan in plans),
            bytes=sum(plan.size_bytes for plan in plans),
            copies=[
                {"thread": each.thread_id, "path": each.path, "records": each.records} for each in copies
            ],
            elsewhere=elsewhere,
            left=left,
        )
        return
    if any(plan.files for plan in plans):
        terminal.note(f"{_counts(plans)} {'were overwritten' if done else 'would be overwritten'}")
    for thread_id in sorted({each.thread_id or each.path for each in copies}):
        terminal.note(f"{safe_line(thread_id)} holds it too. To erase it there, name it or give --all")
    for path in elsewhere:
        terminal.note(f"{safe_line(path)} holds it too, and is no file of this program: see to it yourself")
    for each in left:
        terminal.note(f"left: {safe_line(each)}. Try: rollout erase --finish")


def _copy_object(copies: Copies) -> dict[str, Any]:
    return {"thread": copies.thread_id, "path": copies.path, "records": copies.records}


def _finish(terminal: Terminal, threads: tuple[str, ...]) -> int:
    places: list[str | os.PathLike[str]] = []
    for each in threads:
        named = find_named(terminal, each)
        places.append(named.path if named.thread is None else named.thread.home.path)
    finished, problem = 0, None
    left: list[str] = []
    for place in dict.fromkeys(places or [Home.resolve(terminal.home, terminal.environ).path]):
        try:
            count, told = finish_in_home(place)
        except RolloutError as error:
            problem = error
            continue
        finished, left = finished + count, left + told
    if terminal.json:
        terminal.emit("erase_finished", finished=finished, left=left)
    else:
        terminal.note(f"{finished:,} finished" if finished else "nothing was cut short")
        for each in left:
            terminal.note(f"left: {safe_line(each)}")
    if problem is not None:
        raise problem
    return ExitCode.PROBLEMS if left else ExitCode.DONE
