"""`rollout tools`: what became of each tool call."""

from __future__ import annotations

import shlex
from typing import get_args

import click

from thread_store.chain.lineage import Lineage
from thread_store.cli.call_view import (
    call_object,
    damage_object,
    describe_damage,
    summary_object,
    table_lines,
)
from thread_store.cli.failures import ExitCode
from thread_store.cli.library_log import attach_log
from thread_store.cli.older_files import home_of
from thread_store.cli.options import shared_options, terminal_of
from thread_store.cli.piped_file import ReadableFile, open_readable
from thread_store.cli.progress import ByteProgress
from thread_store.cli.reading import find_writer
from thread_store.cli.safe_text import safe_line
from thread_store.cli.target import STDIN, Target, find_target
from thread_store.cli.terminal import Terminal
from thread_store.resume.call_decision import Outcome
from thread_store.resume.call_table import CallTable, ListedDamage, list_calls

__all__ = ["command"]

_DAMAGE_SHOWN = 5


@click.command("tools")
@click.argument("thread")
@click.option("--all", "every", is_flag=True, help="All calls that ended too; kept in memory meanwhile.")
@click.option(
    "--resolve",
    nargs=2,
    type=(str, click.Choice(get_args(Outcome))),
    metavar="CALL happened|not_happened|retry",
    help="Record what you found out about a call that may have run.",
)
@click.option("--note", metavar="TEXT", help="With --resolve: how you know.")
@click.option("--turn", metavar="TURN", help="With --resolve: where two calls have that id.")
@click.option("-y", "--yes", is_flag=True, help="With --resolve: don't ask.")
@shared_options
@click.pass_context
def command(
    context: click.Context,
    thread: str,
    every: bool,
    resolve: tuple[str, Outcome] | None,
    note: str | None,
    turn: str | None,
    yes: bool,
) -> int:
    """Show what became of each tool call.

    First the calls whose end is not known, then the newest that ended: completed, failed or declined.
    Exit code 1 if something forbids an automatic resume: an unsafe call that may have run, or a damaged
    range in which one may have stood. THREAD is an id, its beginning or end, a path, @, or - (standard
    input).

    --resolve records a decision on a call, with who made it and when: that it happened, that it did not,
    or that it shall be tried again. CALL is its id, or the beginning or end of it (4 characters or more).
    At a terminal it shows the call and asks first, without -y.

    \b
    Examples:
      rollout tools @
      rollout tools 7f3a --all --json
      rollout tools 7f3a --resolve c12 happened --note "the mail is in the outbox"
    """
    terminal = terminal_of(context)
    attach_log(terminal)
    target = find_target(terminal, thread)
    if target.selects:
        raise click.UsageError("name a thread; its calls are shown all together", ctx=context)
    if resolve is not None:
        if every:
            raise click.UsageError("--all and --resolve can't be had together", ctx=context)
        from thread_store.cli.deciding import Wanted, decide  # a writer: the table needs none

        call_id, outcome = resolve
        wanted = Wanted(call_id=call_id, turn_id=turn, outcome=outcome, note=note)
        return decide(terminal, thread, wanted, yes=yes)
    if note is not None or turn is not None or yes:
        raise click.UsageError("--note, --turn and --yes belong to --resolve", ctx=context)
    return _show(terminal, target, every=every)


def _show(terminal: Terminal, target: Target, *, every: bool) -> int:
    progress = ByteProgress(terminal, "reading")
    with open_readable(target) as file, Lineage.resolve(file.path, home_of(terminal, file.path)) as lineage:
        is_live = find_writer(target) is not None
        try:
            table = list_calls(lineage, every=every, with_tail=not is_live, progress=progress.update)
        finally:
            progress.clear()
        thread_id = lineage.own.thread_id
    if terminal.json:
        _emit(terminal, table, thread_id, file)
    else:
        _print(terminal, target, table, file.path)
    blocked = table.blocking or any(each.blocks for each in table.damage)
    return ExitCode.PROBLEMS if blocked else ExitCode.DONE


def _emit(terminal: Terminal, table: CallTable, thread_id: str | None, file: ReadableFile) -> None:
    for call in (*table.open, *table.ended):
        terminal.emit("tool_call", **call_object(call, thread_id, file))
    for damage in table.damage:
        terminal.emit("damage", **damage_object(damage, thread_id, file))
    terminal.emit("summary", **summary_object(table, thread_id))


def _print(terminal: Terminal, target: Target, table: CallTable, own_path: str) -> None:
    calls = [*table.open, *table.ended]
    for line in table_lines(terminal, calls, own_path) if calls else ():
        terminal.print(line)
    if not calls:
        terminal.note(f"no tool calls in {safe_line(target.thread)}")
    if table.omitted:
        terminal.note(f"older calls that ended are left out. Try: {target.command('tools')} --all")
    _warn_of_damage(terminal, target, [each for each in table.damage if each.blocks], own_path)
    _note_blocking(terminal, target, table)


def _warn_of_damage(terminal: Terminal, target: Target, damage: list[ListedDamage], own_path: str) -> None:
    for each in damage[:_DAMAGE_SHOWN]:
        said = describe_damage(each, own_path)
        terminal.warn(f"{said}; a call may have stood there", code=each.damage.reason)
    if len(damage) > _DAMAGE_SHOWN:
        more = len(damage) - _DAMAGE_SHOWN
        terminal.warn(f"{more} damaged places more. See: {target.command('check')}", code="damage")


def _note_blocking(terminal: Terminal, target: Target, table: CallTable) -> None:
    blocking = table.blocking
    if not blocking:
        return
    count = "1 call" if len(blocking) == 1 else f"{len(blocking)} calls"
    said = f"{count} may have run, so no resume goes on by itself"
    if target.source != STDIN:
        call_id = safe_line(shlex.quote(blocking[0].call.call_id))
        said += f". Decide: {target.command('tools')} --resolve {call_id} happened|not_happened|retry"
    terminal.note(said)
