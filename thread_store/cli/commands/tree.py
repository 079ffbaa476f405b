"""`rollout tree`: forks, sub-agents and reverts."""

from __future__ import annotations

import os
from typing import Any

import click

from thread_store.chain.thread_tree import ThreadNode, ThreadTree, build_tree
from thread_store.cli.named_thread import find_named
from thread_store.cli.options import shared_options, terminal_of
from thread_store.cli.safe_text import safe_line
from thread_store.cli.short_ids import ShortIds
from thread_store.cli.target import last_ordinal
from thread_store.cli.terminal import Terminal
from thread_store.cli.tree_view import tree_lines
from thread_store.errors import NotInHome
from thread_store.home import Home

__all__ = ["command"]

_FAMILIES_SHOWN = 20


@click.command("tree")
@click.argument("thread", required=False)
@click.option("--all", "everything", is_flag=True, help="All families, archived ones too.")
@shared_options
@click.pass_context
def command(context: click.Context, thread: str | None, everything: bool) -> int:
    """Show which thread was forked from which, and whose sub-agents there are.

    The newest families first; with THREAD the one that it belongs to. A fork stands below the thread
    that it came from, with the last item that they share.

    \b
    Examples:
      rollout tree
      rollout tree 7f3a
      rollout tree --all --json
    """
    terminal = terminal_of(context)
    marked = None
    home = Home.resolve(terminal.home, terminal.environ)
    if thread is not None:
        named = find_named(terminal, thread)
        if named.thread is None:
            raise NotInHome(named.path)
        home, marked = named.thread
    tree = build_tree(home)
    for error in tree.unreadable:
        terminal.warn(f"{safe_line(error.message)}; it is left out", code=error.code, path=error.path)
    families = _families(tree, marked, everything=everything)
    shown = families if everything else families[:_FAMILIES_SHOWN]
    _print(terminal, tree, shown, marked)
    if not tree.nodes:
        terminal.note(f"no threads yet in {safe_line(home.path)}. Try: rollout record")
    elif len(shown) < len(tree.roots) + len(tree.orphans) and marked is None:
        terminal.note(
            f"{len(shown)} of {len(tree.roots) + len(tree.orphans)} families. Try: rollout tree --all"
        )
    return 0


def _families(tree: ThreadTree, marked: str | None, *, everything: bool) -> list[ThreadNode]:
    """The threads on top: of the marked one's family, or of all that are wanted, the newest first."""
    tops = [*tree.roots, *tree.orphans]
    if marked is not None:
        return [top for top in tops if any(node.thread_id == marked for node in top.walk())]
    if not everything:
        tops = [top for top in tops if any(not node.rollouts[-1].archived for node in top.walk())]
    return sorted(tops, key=_newest, reverse=True)


def _newest(top: ThreadNode) -> str:
    """Rollouts are named after the time at which they were begun."""
    return max(os.path.basename(each.path) for node in top.walk() for each in node.rollouts)


def _print(terminal: Terminal, tree: ThreadTree, tops: list[ThreadNode], marked: str | None) -> None:
    if terminal.json:
        for top in tops:
            for node in top.walk():
                terminal.emit("node", **_as_object(node))
        return
    for line in tree_lines(terminal, tops, ShortIds(tree.nodes), marked=marked):
        terminal.print(line)


def _as_object(node: ThreadNode) -> dict[str, Any]:
    meta = node.meta
    return {
        "thread": node.thread_id,
        "relation": node.relation,
        "parent": node.parent_id,
        "at": last_ordinal(node.at),
        "orphan": node.orphan,
        "nickname": meta.agent_nickname,
        "role": meta.agent_role,
        "agent_path": meta.agent_path,
        "cwd": meta.cwd,
        "created": meta.timestamp,
        "rollouts": [
            {
                "id": each.rollout_id,
                "path": each.path,
                "archived": each.archived,
                "base": None
                if each.base is None
                else {
                    "rollout": each.base.thread_id,
                    "ordinal": last_ordinal(each.base.end_ordinal_exclusive),
                    "bytes": each.base.end_byte_offset,
                },
            }
            for each in node.rollouts
        ],
    }
