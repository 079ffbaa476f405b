"""`rollout show`: a rollout as a conversation, streaming, from either end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from thread_store.cli.chat import ChatView
from thread_store.cli.failures import ExitCode
from thread_store.cli.item_json import damage_object, item_object
from thread_store.cli.older_files import chain_records, find_chain
from thread_store.cli.options import shared_options, terminal_of
from thread_store.cli.pager import paged
from thread_store.cli.raw_view import raw_lines, write_raw
from thread_store.cli.reading import find_writer, is_meta, open_records, read_meta
from thread_store.cli.safe_text import safe_line
from thread_store.cli.target import STDIN, Target, find_target
from thread_store.cli.terminal import Terminal
from thread_store.transcript import FactKind, Transcript, TranscriptEntry

if TYPE_CHECKING:
    from thread_store.chain.lineage import Lineage

__all__ = ["command"]

_VIEWS = {
    "chat": frozenset(FactKind) - {FactKind.EVENT},
    "full": frozenset(FactKind),
    "tools": frozenset({FactKind.TOOL}),
}


@click.command("show")
@click.argument("thread")
@click.option("--view", type=click.Choice([*_VIEWS, "raw"]), default="chat", help="What to show of it.")
@click.option("--raw", is_flag=True, help="The lines as they stand in the file: --view raw.")
@click.option("--no-thinking", is_flag=True, help="Leave out what the model thought.")
@click.option("--no-tools", is_flag=True, help="Leave out tool calls.")
@click.option("--max-output", type=click.IntRange(0), default=8, help="Lines of a tool's output; 0: all.")
@click.option("-n", "count", type=click.IntRange(1), help="Only the newest so many.")
@click.option("--reverse", is_flag=True, help="Newest first.")
@click.option("--no-pager", is_flag=True, help="Print at once, also on a terminal.")
@shared_options
@click.pass_context
def command(
    context: click.Context,
    thread: str,
    view: str,
    raw: bool,
    no_thinking: bool,
    no_tools: bool,
    max_output: int,
    count: int | None,
    reverse: bool,
    no_pager: bool,
) -> int:
    """Show a rollout as a conversation.

    THREAD is an id, its beginning or end, a path, @ (the newest), or - (standard input); with
    #42, #40..60 or @81234 (a byte offset) after it only those items, a single one unfolded.
    A message that stands on both tracks is shown once; damaged places are named where they are. What
    a fork or a revert rests on is shown with it; --raw shows the one file.

    \b
    Examples:
      rollout show @
      rollout show 7f3a#42
      rollout show --json -n 20 session.jsonl.zst
    """
    terminal = terminal_of(context)
    target = find_target(terminal, thread)
    meta = read_meta(target)
    selection = _Selection(target, count=count, newest_first=reverse)
    if raw or view == "raw":
        return _show_raw(terminal, selection, meta)
    selection.chain = find_chain(terminal, target, meta)
    kinds = _VIEWS["full"] if terminal.json or target.selects else _VIEWS[view]
    kinds -= {FactKind.THINKING} if no_thinking else set()
    kinds -= {FactKind.TOOL} if no_tools else set()
    if terminal.json:
        _emit_items(terminal, selection, kinds, str(meta["id"]) if meta and meta.get("id") else None)
    else:
        with paged(terminal, enabled=terminal.is_tty and not no_pager) as write:
            chat = ChatView(terminal, target, write=write, output_lines_max=max_output)
            _print_chat(chat, selection, kinds, meta)
        if chat.damaged:
            terminal.note(f"{chat.damaged} damaged places. Try: {target.command('check')}")
    return _conclude(terminal, selection)


class _Selection:
    """Which entries are shown: those that the address names, or the newest `count`, or all."""

    def __init__(self, target: Target, *, count: int | None, newest_first: bool) -> None:
        self.target = target
        self.count = count
        self.newest_first = newest_first
        self.chain: Lineage | None = None
        """The files that the history lies in, if it is not this one alone."""
        self.shown = 0

    def entries(self, kinds: frozenset[FactKind]) -> Iterator[TranscriptEntry]:
        """The entries to show, in the order in which they are shown."""
        backward = self.newest_first or self.count is not None
        if self.chain is None:
            records = open_records(self.target, newest_first=backward)
        else:
            records = chain_records(self.chain, newest_first=backward)
        chosen = self._choose(Transcript(records), kinds)
        if self.count is not None:
            newest = list(self._until_counted(chosen))
            chosen = iter(newest if self.newest_first else newest[::-1])
        for entry in chosen:
            self.shown += entry.kind is not None
            yield entry

    def _choose(
        self, entries: Iterable[TranscriptEntry], kinds: frozenset[FactKind]
    ) -> Iterator[TranscriptEntry]:
        for entry in entries:
            shown = entry.kind in kinds and self.target.holds(entry)
            if shown or (entry.kind is None and not self.target.selects):
                yield entry

    def _until_counted(self, entries: Iterable[TranscriptEntry]) -> Iterator[TranscriptEntry]:
        left = self.count or 0
        for entry in entries:
            yield entry
            left -= entry.kind is not None
            if left <= 0:
                return


def _print_chat(
    chat: ChatView, selection: _Selection, kinds: frozenset[FactKind], meta: dict[str, Any] | None
) -> None:
    if meta is not None and not selection.target.selects:
        chat.show_header(meta)
    streamed = selection.target.source == STDIN and not selection.target.selects
    wanted = kinds | {FactKind.EVENT} if streamed else kinds
    for entry in selection.entries(wanted):
        if streamed and is_meta(entry.record):  # a stream tells whose it is when it comes to it
            chat.show_header(entry.facts[0].payload)
            streamed = False
        if entry.kind is None or entry.kind in kinds:
            chat.show(entry)


def _emit_items(
    terminal: Terminal, selection: _Selection, kinds: frozenset[FactKind], thread: str | None
) -> None:
    for entry in selection.entries(kinds):
        if entry.record.warning is not None:
            torn = entry.record.warning.reason == "torn_tail"
            writer = find_writer(selection.target) if torn else None
            terminal.emit("damage", **damage_object(entry.record.warning, thread, writer))
        else:
            if thread is None and is_meta(entry.record) and isinstance(entry.facts[0].payload, dict):
                thread = entry.facts[0].payload.get("id")
            terminal.emit("item", **item_object(entry, thread))


def _show_raw(terminal: Terminal, selection: _Selection, meta: dict[str, Any] | None) -> int:
    target, count = selection.target, selection.count
    if meta is not None and meta.get("history_base") is not None and not target.selects:
        terminal.note(f"the lines of {safe_line(target.source)} alone; its history begins in another file")
    backward = selection.newest_first or count is not None
    lines = raw_lines(terminal, target, open_records(target, newest_first=backward))
    if count is not None:
        newest = list(islice(lines, count))
        lines = iter(newest if selection.newest_first else newest[::-1])
    write: Callable[[Terminal, bytes], None] = write_raw
    for line in lines:
        write(terminal, line)
        selection.shown += 1
    return _conclude(terminal, selection)


def _conclude(terminal: Terminal, selection: _Selection) -> int:
    target = selection.target
    if target.selects and not selection.shown:
        terminal.fail(
            f"no item {target.address} in {safe_line(target.thread)}",
            code="item_not_found",
            hint=f"Try: {target.command('show')}",
        )
        return ExitCode.NOT_FOUND
    return ExitCode.DONE
