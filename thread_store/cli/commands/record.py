"""`rollout record`: lines of input into a rollout, saved as they come."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click

from protocol.meta import SessionMeta
from rollout import blocking
from rollout.blocking import BlockingRecorder
from rollout.config import RecorderConfig
from thread_store.blocking_thread import BlockingThread
from thread_store.cli.input_items import JsonItems, TextItems
from thread_store.cli.library_log import attach_log
from thread_store.cli.named_thread import find_named, require_thread
from thread_store.cli.options import shared_options, terminal_of
from thread_store.cli.recording import Recording
from thread_store.cli.redacting import recorder_config
from thread_store.cli.stop_signals import StopSignals
from thread_store.cli.terminal import Terminal
from thread_store.home import Home
from thread_store.local_threads import LocalThreads

__all__ = ["command"]


@click.command("record")
@click.argument("file", default="-", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("--thread", metavar="THREAD", help="Append to this thread instead of beginning a new one.")
@click.option("--text", is_flag=True, help="Each line is a message of the user, all in one turn.")
@click.option("--cwd", metavar="DIR", help="The folder that the new thread is about; by default this one.")
@click.option(
    "--redact",
    metavar="on|off|RULES",
    help="Replace secrets before anything is stored; else as $ROLLOUT_REDACT says.",
)
@shared_options
@click.pass_context
def command(
    context: click.Context,
    file: str,
    thread: str | None,
    text: bool,
    cwd: str | None,
    redact: str | None,
) -> int:
    """Record items from stdin or a file into a rollout.

    FILE (or standard input) holds JSON Lines of {"type": …, "payload": …}; whole rollout lines are
    taken too. Each is written as it comes. A bad line is named by its number, the others are recorded.
    At the end, or when a signal stops it, everything is on stable storage before it says so. It holds
    the thread's lock meanwhile; exit code 6 if somebody else does.

    \b
    Examples:
      my-agent | rollout record --redact on
      rollout record items.jsonl --thread 7f3a
      echo "run the tests" | rollout record --text
    """
    if thread is not None and cwd is not None:
        raise click.UsageError("--cwd is for a new thread; --thread names an old one", ctx=context)
    terminal = terminal_of(context)
    attach_log(terminal)
    config = recorder_config(terminal, redact)
    with (
        StopSignals() as stop,
        _open_input(file) as descriptor,
        _opened(terminal, thread, cwd, descriptor, config) as recorder,
    ):
        if os.isatty(descriptor):
            terminal.note("reading from this terminal; end with Ctrl-D. Or try: rollout record FILE")
        items = TextItems() if text else JsonItems()
        return Recording(terminal, recorder, stop, items).run(descriptor)


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


@contextmanager
def _opened(
    terminal: Terminal, thread: str | None, cwd: str | None, descriptor: int, config: RecorderConfig
) -> Iterator[BlockingRecorder]:
    """The recorder: of a thread, whose lock it holds, or of a file that is in no home."""
    if thread is None:
        with LocalThreads(Home.resolve(terminal.home, terminal.environ), config=config) as threads:
            yield BlockingThread(threads.create(SessionMeta(cwd=os.path.abspath(cwd or os.curdir))))
        return
    named = find_named(terminal, thread)
    if named.path.exists() and os.path.samestat(named.path.stat(), os.fstat(descriptor)):
        raise click.UsageError("the input is the rollout itself: that would never end")
    if named.thread is None:
        yield blocking.open(named.path, config=config)
        return
    home, thread_id = require_thread(named)
    with LocalThreads(home, config=config) as threads:
        yield BlockingThread(threads.open(thread_id))
