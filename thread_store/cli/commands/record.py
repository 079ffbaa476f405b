"""`rollout record`: lines of input into a rollout, saved as they come."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click

from protocol.ids import ThreadId
from protocol.meta import SessionMeta
from rollout import blocking
from thread_store.cli.input_lines import items_of_json, items_of_text
from thread_store.cli.library_log import attach_log
from thread_store.cli.options import shared_options, terminal_of
from thread_store.cli.recording import Recording
from thread_store.cli.stop_signals import StopSignals
from thread_store.cli.target import find_target
from thread_store.cli.terminal import Terminal
from thread_store.home import Home

__all__ = ["command"]


@click.command("record")
@click.argument("file", default="-", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("--thread", metavar="THREAD", help="Append to this thread instead of beginning a new one.")
@click.option("--text", is_flag=True, help="Each line is a message of the user, not JSON.")
@click.option("--cwd", metavar="DIR", help="The folder that the new thread is about; by default this one.")
@shared_options
@click.pass_context
def command(context: click.Context, file: str, thread: str | None, text: bool, cwd: str | None) -> int:
    """Record items from stdin or a file into a rollout.

    FILE (or standard input) holds JSON Lines of {"type": …, "payload": …}; whole rollout lines are
    taken too. Each is written as it comes. A bad line is named by its number, the others are recorded.
    At the end, or when a signal stops it, everything is on stable storage before it says so.

    \b
    Examples:
      my-agent | rollout record
      rollout record items.jsonl --thread 7f3a
      echo "run the tests" | rollout record --text
    """
    if thread is not None and cwd is not None:
        raise click.UsageError("--cwd is for a new thread; --thread names an old one", ctx=context)
    terminal = terminal_of(context)
    attach_log(terminal)
    with StopSignals() as stop, _open_input(file) as descriptor:
        recorder = _open_recorder(terminal, thread, cwd, descriptor)
        if os.isatty(descriptor):
            terminal.note("reading from this terminal; end with Ctrl-D. Or try: rollout record FILE")
        recording = Recording(terminal, recorder, stop, items_of_text if text else items_of_json)
        return recording.run(descriptor)


@contextmanager
def _open_input(file: str) -> Iterator[int]:
    if file == "-":
        if sys.stdin is None:
            raise click.UsageError("standard input is closed; give a FILE")
        yield sys.stdin.fileno()
        return
    descriptor = os.open(file, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0))
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _open_recorder(
    terminal: Terminal, thread: str | None, cwd: str | None, descriptor: int
) -> blocking.BlockingRecorder:
    if thread is None:
        home = Home.resolve(terminal.home, terminal.environ)
        thread_id = ThreadId.new()
        meta = SessionMeta(id=thread_id, cwd=os.path.abspath(cwd or os.curdir))
        return blocking.create(home.new_rollout_path(thread_id), meta)
    target = find_target(terminal, thread)
    if os.path.exists(target.source) and os.path.samestat(os.stat(target.source), os.fstat(descriptor)):
        raise click.UsageError("the input is the rollout itself: that would never end")
    return blocking.open(target.source)
