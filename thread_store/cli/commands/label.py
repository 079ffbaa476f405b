"""`rollout label`: words that stick to a thread."""

from __future__ import annotations

import re

import click

from thread_store.cli.named_thread import find_named
from thread_store.cli.options import shared_options, terminal_of
from thread_store.cli.safe_text import safe_line
from thread_store.errors import NotInHome
from thread_store.titles.thread_labels import ThreadLabels

__all__ = ["command"]

_CHANGE = re.compile(r"[+-][^-+].*", re.DOTALL)
_OPTIONS = frozenset({"-q", "-v", "-h"})


class _LabelCommand(click.Command):
    """Takes `-TAG` for a change and not for options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        rest, changes = [], []
        while args:
            word = args.pop(0)
            if word == "--":
                changes += [each for each in args if _CHANGE.fullmatch(each)]
                rest += [word, *(each for each in args if not _CHANGE.fullmatch(each))]
                break
            (changes if _CHANGE.fullmatch(word) and word not in _OPTIONS else rest).append(word)
        left = super().parse_args(ctx, rest)
        ctx.params["changes"] = changes
        return left


@click.command("label", cls=_LabelCommand, options_metavar="[OPTIONS] [+TAG|-TAG]...")
@click.argument("thread")
@shared_options
@click.pass_context
def command(context: click.Context, thread: str, changes: list[str]) -> int:
    """Put labels on a thread and take them off again.

    +TAG adds one, -TAG takes one off; without either the labels that it has are printed. For a label that
    is also an option (-q, -v, -h) put -- before it.

    \b
    Examples:
      rollout label 7f3a +review -draft
      rollout label @
      rollout label @ +keep --json
    """
    terminal = terminal_of(context)
    named = find_named(terminal, thread)
    if named.thread is None:
        raise NotInHome(named.path)
    add = [each[1:] for each in changes if each.startswith("+")]
    remove = [each[1:] for each in changes if each.startswith("-")]
    try:
        labels = ThreadLabels(named.thread.home.path).change(named.thread.thread_id, add=add, remove=remove)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if terminal.json:
        terminal.emit("labels", thread=named.thread.thread_id, labels=labels)
    else:
        for each in labels:
            terminal.print(safe_line(each))
    return 0
