"""`rollout revert`: a thread goes on from an earlier point."""

from __future__ import annotations

import sys
from typing import Any

import click

from thread_store.blocking_thread import BlockingThread
from thread_store.chain.fork_point import ForkPoint
from thread_store.chain.lineage import Lineage
from thread_store.cli.failures import ExitCode
from thread_store.cli.fork_points import PointArguments
from thread_store.cli.library_log import attach_log
from thread_store.cli.named_thread import HomeThread, find_named, require_thread
from thread_store.cli.options import shared_options, terminal_of
from thread_store.cli.safe_text import safe_line
from thread_store.cli.target import Target, last_ordinal
from thread_store.cli.terminal import Terminal
from thread_store.forks.revert_plan import RevertPlan, plan_revert
from thread_store.local_threads import LocalThreads

__all__ = ["command"]


@click.command("revert")
@click.argument("thread")
@click.option("--turn", type=click.IntRange(0), help="Back to the end of this turn, counted from 1.")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@click.option("-y", "--yes", is_flag=True, help="Don't ask.")
@shared_options
@click.pass_context
def command(context: click.Context, thread: str, turn: int | None, dry_run: bool, yes: bool) -> int:
    """Take a thread back to an earlier point; nothing is erased.

    With THREAD#42 it ends with that item from now on: it goes on in a new rollout that rests on the old
    one, which stays as it is. (A legacy thread records how many turns don't count any more.) Without
    -y it asks; where nobody can be asked it refuses with exit code 7.

    \b
    Examples:
      rollout revert 7f3a#42 --dry-run
      rollout revert 7f3a#42
      rollout revert 7f3a --turn 3 -y
    """
    terminal = terminal_of(context)
    attach_log(terminal)
    named = find_named(terminal, thread)
    if not named.target.selects and turn is None:
        raise click.UsageError("say where it is to end: THREAD#N or --turn N", ctx=context)
    said = PointArguments(named.target, turn)
    said.require_one()
    where = require_thread(named)
    lineage = Lineage.resolve(named.path, where.home)
    with said.told_in_commands("revert", lineage):
        point = said.find(lineage)
        plan = plan_revert(lineage, point)
    if not plan.records:
        _tell(terminal, where, plan, text="it ends there already; nothing was changed")
        return ExitCode.DONE
    if dry_run:
        _tell(terminal, where, plan, text=f"{_what_goes(plan)} would go; nothing was changed", dry_run=True)
        return ExitCode.DONE
    if not yes and not _is_wanted(terminal, plan, named.target):
        return ExitCode.REFUSED
    path = _revert(where, point)
    text = f"{where.thread_id} ends with {_end(plan)} now; gone: {_what_goes(plan)}; it goes on in {path}"
    _tell(terminal, where, plan, text=text, path=path)
    return ExitCode.DONE


def _revert(where: HomeThread, point: ForkPoint) -> str:
    with (
        LocalThreads(where.home) as threads,
        BlockingThread(threads.revert(where.thread_id, point=point)) as thread,
    ):
        return thread.path


def _is_wanted(terminal: Terminal, plan: RevertPlan, target: Target) -> bool:
    if terminal.json or sys.stdin is None or not sys.stdin.isatty() or not terminal.stderr.isatty():
        message = "revert needs --yes when there is nobody to ask"
        again = target.command("revert", target.address)
        terminal.fail(message, code="needs_yes", hint=f"Try: {again} --dry-run")
        return False
    wanted = click.confirm(f"{_what_goes(plan)} will go. Revert?", err=True)
    if not wanted:
        terminal.note("nothing was changed")
    return wanted


def _what_goes(plan: RevertPlan) -> str:
    turns = "1 turn" if plan.turns == 1 else f"{plan.turns:,} turns"
    return f"{turns}, {plan.records:,} records in all, behind {_end(plan)}"


def _end(plan: RevertPlan) -> str:
    ordinal = last_ordinal(plan.border.end_ordinal)
    return f"byte {plan.border.offset:,}" if ordinal is None else f"#{ordinal}"


def _tell(
    terminal: Terminal,
    where: HomeThread,
    plan: RevertPlan,
    *,
    text: str,
    path: str | None = None,
    dry_run: bool = False,
) -> None:
    if terminal.json:
        fields: dict[str, Any] = {"thread": where.thread_id, "ordinal": last_ordinal(plan.border.end_ordinal)}
        fields |= {"turns": plan.turns, "records": plan.records}
        terminal.emit("reverted", **fields, path=path, changed=path is not None, dry_run=dry_run)
    else:
        terminal.print(safe_line(text))
