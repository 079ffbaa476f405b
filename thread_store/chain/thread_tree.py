"""The tree of threads: who was forked from whom, who is whose sub-agent, what was reverted.

Invariant: it is a pure function of the first lines (metas) of the rollouts in a home: nothing else is
read, no index is needed. Each thread is in it exactly once, whatever the metas claim: a thread
whose parent is gone is an orphan, and a ring of threads that descend from each other is cut
at its least id. What can't be read is named in `unreadable`.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from msgspec import Struct

from protocol.errors import NotARollout, RolloutError, ThreadNotFound
from protocol.ids import ThreadId
from protocol.meta import HistoryBase, SessionMeta, meta_of
from rollout.head import require_rollout
from thread_store.home import Home, StoredRollout

__all__ = [
    "Reference",
    "Relation",
    "ThreadNode",
    "ThreadRollout",
    "ThreadTree",
    "build_tree",
    "find_references",
]

Relation = Literal["root", "fork", "subagent"]


class ThreadRollout(Struct, frozen=True, kw_only=True):
    """One file of a thread: its first, or one that a revert began."""

    path: str
    rollout_id: str
    archived: bool
    base: HistoryBase | None
    """What its history rests on, in another file."""


class Reference(Struct, frozen=True, kw_only=True):
    """A rollout whose history rests on another file."""

    path: str
    thread_id: str
    rollout_id: str
    base: HistoryBase


@dataclass(slots=True, eq=False)
class ThreadNode:
    """One thread. `relation` says what it is to `parent_id`, which is None for a root."""

    thread_id: str
    relation: Relation
    parent_id: str | None
    at: int | None
    """The ordinal before which a fork left its parent; None where its meta doesn't say."""
    meta: SessionMeta
    """Of its current rollout."""
    rollouts: list[ThreadRollout]
    """Oldest first; the last one is current."""
    children: list[ThreadNode] = field(default_factory=list)
    orphan: Literal["gone", "ring"] | None = None
    """Why it stands on top though it has a parent: that is gone, or descends from this thread itself."""

    @property
    def path(self) -> str:
        """Of its current rollout."""
        return self.rollouts[-1].path

    def walk(self) -> Iterator[ThreadNode]:
        """This thread and all below it, parents first."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(reversed(node.children))


class ThreadTree:
    """All threads of a home. `roots` have no parent, `orphans` had one; each oldest first."""

    def __init__(self, nodes: dict[str, ThreadNode], unreadable: list[RolloutError]) -> None:
        self.nodes = nodes
        self.unreadable = unreadable
        self.roots: list[ThreadNode] = []
        self.orphans: list[ThreadNode] = []

    def subagents_of(self, thread_id: str) -> list[ThreadNode]:
        """The sub-agents of a thread and theirs, parents first; forks of them are no part of it."""
        found: list[ThreadNode] = []
        waiting = [self.nodes[ThreadId.parse(thread_id)]]
        while waiting:
            below = [each for each in waiting.pop().children if each.relation == "subagent"]
            found += below
            waiting += below
        return found


def build_tree(home: Home) -> ThreadTree:
    """The threads of a home and how they descend from each other. Reads the first line of each file.

    Raises:
        RolloutUnreadable: the home itself can't be listed.
    """
    files: dict[ThreadId, list[tuple[StoredRollout, SessionMeta]]] = defaultdict(list)
    unreadable: list[RolloutError] = []
    for found in home.rollouts():
        try:
            meta = _read_meta(found)
        except RolloutError as error:
            unreadable.append(error)
        else:
            files[found.name.thread_id].append((found, meta))
    nodes: dict[str, ThreadNode] = {
        thread_id: _node(thread_id, files[thread_id]) for thread_id in sorted(files)
    }
    tree = ThreadTree(nodes, [*home.passed_over, *unreadable])
    for node in nodes.values():
        _place(node, tree)
    return tree


def find_references(home: Home, rollout_id: str) -> list[Reference]:
    """The rollouts whose history rests directly on the file of that id. Reads each file's first line.

    Who deletes the file asks this while holding the coordination lock.

    Raises:
        InvalidThreadId: the id is no UUID.
        RolloutUnreadable: a file or a folder can't be read, so that nobody can tell.
    """
    wanted = ThreadId.parse(rollout_id)
    found = [each for each in _references(home) if each.base.thread_id.lower() == wanted]
    if home.passed_over:
        raise home.passed_over[0]
    return found


def _references(home: Home) -> Iterator[Reference]:
    for file in home.rollouts():
        try:
            base = _read_meta(file).history_base
        except (NotARollout, ThreadNotFound):
            continue  # it holds no meta, or was deleted just now: it rests on nothing
        if base is not None:
            yield Reference(
                path=os.fspath(file.path),
                thread_id=file.name.thread_id,
                rollout_id=_rollout_id(file),
                base=base,
            )


def _read_meta(found: StoredRollout) -> SessionMeta:
    """A file without any meta rests on nothing and descends from nobody."""
    record = require_rollout(found.path).meta
    line = None if record is None else record.line
    return SessionMeta(cwd="") if line is None else meta_of(line)


def _rollout_id(found: StoredRollout) -> ThreadId:
    return found.name.rollout_id or found.name.thread_id


def _node(thread_id: ThreadId, files: list[tuple[StoredRollout, SessionMeta]]) -> ThreadNode:
    files.sort(key=lambda each: (not each[0].archived, each[0].name.rollout_id or ""))
    meta = files[-1][1]
    relation, parent_id = _descent(meta)
    rollouts = [
        ThreadRollout(
            path=os.fspath(found.path),
            rollout_id=_rollout_id(found),
            archived=found.archived,
            base=each.history_base,
        )
        for found, each in files
    ]
    at = meta.forked_from_ordinal_exclusive if relation == "fork" else None
    return ThreadNode(thread_id, relation, parent_id, at, meta, rollouts)


def _descent(meta: SessionMeta) -> tuple[Relation, str | None]:
    """A sub-agent may begin as a fork of its parent; it is a sub-agent all the same."""
    parent = meta.parent_thread_id or _spawning_thread(meta.source)
    if parent is not None:
        return "subagent", parent.lower()
    if meta.forked_from_id is not None:
        return "fork", meta.forked_from_id.lower()
    return "root", None


def _spawning_thread(source: object) -> str | None:
    for key in ("subagent", "thread_spawn", "parent_thread_id"):
        source = source.get(key) if isinstance(source, dict) else None
    return source if isinstance(source, str) else None


def _place(node: ThreadNode, tree: ThreadTree) -> None:
    """Below its parent; else on top."""
    if node.parent_id is None:
        tree.roots.append(node)
    elif node.parent_id not in tree.nodes:
        node.orphan = "gone"
        tree.orphans.append(node)
    elif _heads_a_ring(node, tree):
        node.orphan = "ring"
        tree.orphans.append(node)
    else:
        tree.nodes[node.parent_id].children.append(node)


def _heads_a_ring(node: ThreadNode, tree: ThreadTree) -> bool:
    """Whether a thread descends from itself and has the least id of all in that ring."""
    seen = {node.thread_id}
    above = node.parent_id
    while above is not None and above in tree.nodes:
        if above == node.thread_id:
            return node.thread_id == min(seen)
        if above in seen:
            return False  # a ring further up
        seen.add(above)
        above = tree.nodes[above].parent_id
    return False
