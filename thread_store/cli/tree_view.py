"""The tree of threads as lines for a person.

Invariant: every thread of the families that were given is one line, below its parent; every text
that came from a file has gone through `safe_line`. Its depth is bounded by nothing but the threads.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from thread_store.chain.thread_tree import ThreadNode
from thread_store.cli.safe_text import safe_line
from thread_store.cli.short_ids import ShortIds
from thread_store.cli.target import last_ordinal
from thread_store.cli.terminal import Terminal
from thread_store.cli.times import format_time

__all__ = ["tree_lines"]

_BEGUN = "%Y-%m-%d %H:%M"


def tree_lines(
    terminal: Terminal, tops: Iterable[ThreadNode], short: ShortIds, *, marked: str | None = None
) -> Iterator[str]:
    """A line for each thread; the one of id `marked` is pointed at."""
    for top in tops:
        waiting = [(top, "", "")]
        while waiting:
            node, lead, below = waiting.pop()
            pointer = f"  {terminal.mark('arrow')} this one" if node.thread_id == marked else ""
            yield f"{lead}{_describe(terminal, node, short)}{pointer}"
            waiting += reversed(list(_led(terminal, node.children, below)))


def _led(
    terminal: Terminal, children: list[ThreadNode], before: str
) -> Iterator[tuple[ThreadNode, str, str]]:
    """Children with what stands before them, and before their own children."""
    for child in children:
        is_last = child is children[-1]
        sign = terminal.mark("corner" if is_last else "branch")
        yield child, before + sign, before + ("   " if is_last else terminal.mark("trunk"))


def _describe(terminal: Terminal, node: ThreadNode, short: ShortIds) -> str:
    words = [terminal.style(short(node.thread_id), "bold"), f"({_origin(node, short)})"]
    if node.relation == "root":
        words[1] = f"{safe_line(_place(node))} {format_time(node.meta.timestamp, _BEGUN, utc=terminal.utc)}"
    words += [_history(node), "archived" if node.rollouts[-1].archived else ""]
    return "  ".join(filter(None, (each.strip() for each in words)))


def _origin(node: ThreadNode, short: ShortIds) -> str:
    """How it came from its parent; the parent is named where it isn't the line above."""
    at = last_ordinal(node.at)
    if node.relation == "subagent":
        meta = node.meta
        names = [meta.agent_nickname or meta.agent_path or "", meta.agent_role or ""]
        what = "sub-agent " + ", ".join(safe_line(each) for each in names if each)
    else:
        what = "fork" if at is None or node.orphan else f"at #{at}"
    if node.orphan is None:
        return what.strip()
    parent = safe_line(short(node.parent_id or ""))
    why = "which is not here" if node.orphan == "gone" else "which descends from it"
    return f"{what.strip()} of {parent}{'' if at is None else f'#{at}'}, {why}"


def _place(node: ThreadNode) -> str:
    branch = node.meta.git.branch if node.meta.git is not None else None
    folder = os.path.basename(node.meta.cwd.rstrip("/")) or node.meta.cwd
    return f"{folder}@{branch}" if branch else folder


def _history(node: ThreadNode) -> str:
    """Its reverts and take-overs: each began a rollout of its own."""
    moved = len(node.rollouts) - 1
    if moved < 1:
        return ""
    base = node.rollouts[-1].base
    at = None if base is None else last_ordinal(base.end_ordinal_exclusive)
    how = "reverted to" if node.meta.x_takeover is None else "taken over at"
    place = f" #{at}" if at is not None else ""
    return f"{how}{place}{f' ({moved + 1} rollouts)' if moved > 1 else ''}"
