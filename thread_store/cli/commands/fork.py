"""`rollout fork`: a new thread with the history of another one."""

from __future__ import annotations

import os
from typing import Literal

import click

from protocol.ids import ThreadId
from thread_store.chain.fork_point import ForkPoint
from thread_store.chain.lineage import Lineage
from thread_store.cli.fork_points import PointArguments
from thread_store.cli.library_log import attach_log
from thread_store.cli.named_thread import NamedThread, find_named, require_thread
from thread_store.cli.options import shared_options, terminal_of
from thread_store.cli.progress import ByteProgress
from thread_store.cli.safe_text import safe_line
from thread_store.cli.target import last_ordinal
from thread_store.cli.terminal import Terminal
from thread_store.forks.fork import Fork, make_fork
from thread_store.forks.fork_tree import fork_tree
from thread_store.home import Home
from thread_store.locks import ThreadLocks

__all__ = ["command"]

_Mode = Literal["copy", "reference"]


@click.command("fork")
@click.argument("thread")
@click.option("--turn", type=click.IntRange(0), help="Take the first so many turns.")
@click.option("--checkpoint", is_flag=True, help="Take everything up to the newest compaction.")
@click.option(
    "--mode",
    type=click.Choice(["copy", "reference"]),
    default="copy",
    help="Self-contained, or resting on the source's bytes, which takes no time and no space.",
)
@click.option("--with-subagents", is_flag=True, help="Fork its sub-agents too.")
@shared_options
@click.pass_context
def command(
    context: click.Context,
    thread: str,
    turn: int | None,
    checkpoint: bool,
    mode: _Mode,
    with_subagents: bool,
) -> int:
    """Begin a new thread with the history of another one.

    THREAD#42 takes everything up to that item; without it all of it, also while somebody writes it.
    The source stays as it is. The new thread's id is printed. A file that lies in no home is copied
    into the home.

    \b
    Examples:
      rollout fork @
      rollout fork 7f3a#42 --mode reference
      rollout fork 7f3a --turn 3 --with-subagents
    """
    terminal = terminal_of(context)
    attach_log(terminal)
    named = find_named(terminal, thread)
    said = PointArguments(named.target, turn, checkpoint)
    said.require_one()
    home = Home.resolve(terminal.home, terminal.environ) if named.thread is None else named.thread.home
    lineage = Lineage.resolve(named.path, home)
    with said.told_in_commands("fork", lineage):
        point = said.find(lineage)
        if with_subagents:
            forks = _fork_tree(named, point, mode)
        else:
            forks = [_fork_file(terminal, named, home, point, mode)]
    _tell(terminal, forks)
    return 0


def _fork_tree(named: NamedThread, point: ForkPoint, mode: _Mode) -> list[Fork]:
    home, thread_id = require_thread(named)
    coordination = ThreadLocks(home.path).coordinated()
    return fork_tree(thread_id, home=home, point=point, mode=mode, coordination=coordination)


def _fork_file(terminal: Terminal, named: NamedThread, home: Home, point: ForkPoint, mode: _Mode) -> Fork:
    child = ThreadId.new()
    progress = ByteProgress(terminal, "copying")
    try:
        return make_fork(
            named.path,
            home.new_rollout_path(child),
            thread_id=child,
            home=home,
            point=point,
            mode=mode,
            coordination=ThreadLocks(home.path).coordinated(),
            progress=progress.update,
        )
    finally:
        progress.clear()


def _tell(terminal: Terminal, forks: list[Fork]) -> None:
    fork, *subagents = forks
    size, ordinal = os.stat(fork.path).st_size, last_ordinal(fork.border.end_ordinal)
    if terminal.json:
        terminal.emit(
            "forked",
            thread=fork.thread_id,
            parent={"id": fork.source_thread_id, "ordinal": ordinal},
            mode=fork.mode,
            path=fork.path,
            bytes=size,
            subagents=[each.thread_id for each in subagents],
        )
        return
    terminal.print(fork.thread_id)
    at = "" if ordinal is None else f"#{ordinal}"
    rests = " that rests on it" if fork.mode == "reference" else ""
    agents = f", with {len(subagents)} sub-agents" if subagents else ""
    source = safe_line(fork.source_thread_id or "a thread without id")
    terminal.note(f"a fork of {source}{at}{rests}{agents}: {size:,} bytes in {safe_line(fork.path)}")
