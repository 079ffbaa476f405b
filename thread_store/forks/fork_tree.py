"""Forks of whole trees: a thread and all its sub-agents, linked among themselves as the originals are.

Invariant: all of the new threads are made, or none. Each copy names the copy of its parent, never the
original; what was recorded stays verbatim, so ids that stand inside the history are the
originals'.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Container, Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from typing import Any

from protocol.errors import ThreadNotFound
from protocol.ids import ThreadId
from protocol.timestamps import parse_timestamp
from rollout.staged_file import remove_file
from thread_store.chain.borders import resolve_border
from thread_store.chain.fork_point import ForkPoint
from thread_store.chain.lineage import Lineage
from thread_store.chain.thread_tree import ThreadNode, build_tree
from thread_store.forks.fork import Fork, ForkMode, make_fork
from thread_store.forks.fork_copy import ForkCalls
from thread_store.home import Home

__all__ = ["fork_tree"]


def fork_tree(
    source_id: str,
    *,
    home: Home,
    thread_id: str | None = None,
    point: ForkPoint | None = None,
    mode: ForkMode = "copy",
    meta_changes: Mapping[str, Any] | None = None,
    created: datetime | None = None,
    coordination: AbstractContextManager[object] | None = None,
    synced: Container[str] = (),
    calls: ForkCalls | None = None,
) -> list[Fork]:
    """Fork a thread up to a point, and its sub-agents up to their ends. The fork of the thread comes first.

    Left out are sub-agents that began after the point, by the times in their metas and in the first
    record behind it. `thread_id` and `meta_changes` are the thread's own; the sub-agents get new ids.
    With mode `reference`, `coordination` is held over all of it; `synced` as in `make_fork`. Durability
    and errors are those of `make_fork`; if one fork fails, those made before it are removed again.
    """
    calls = calls or ForkCalls()
    tree = build_tree(home)
    root = tree.nodes.get(ThreadId.parse(source_id))
    if root is None:
        raise ThreadNotFound(source_id, path=home.path)
    point = point or ForkPoint.end()
    nodes = [root, *_begun_before(point, root, tree.subagents_of(root.thread_id), home)]
    ids = {node.thread_id: ThreadId.new() for node in nodes}
    if thread_id is not None:
        ids[root.thread_id] = ThreadId.parse(thread_id)
    made: list[Fork] = []
    try:
        with (coordination if mode == "reference" else None) or nullcontext():
            for node in nodes:
                changes = meta_changes or {} if node is root else _links(node, root, ids)
                target = home.new_rollout_path(ids[node.thread_id], created=created)
                fork = make_fork(
                    node.path,
                    target,
                    thread_id=ids[node.thread_id],
                    home=home,
                    point=point if node is root else None,
                    mode=mode,
                    meta_changes=changes,
                    synced=synced,
                    calls=calls,
                )
                made.append(fork)
    except BaseException:
        for fork in reversed(made):
            remove_file(fork.path, calls)
        raise
    return made


def _begun_before(
    point: ForkPoint, root: ThreadNode, subagents: list[ThreadNode], home: Home
) -> list[ThreadNode]:
    """Those that had begun; a sub-agent of one that is left out is left out too."""
    until = None if point.kind == "end" else _time_behind(point, root.path, home)
    if until is None:
        return subagents
    kept: dict[str, ThreadNode] = {root.thread_id: root}
    for node in subagents:
        begun = parse_timestamp(node.meta.timestamp)
        if node.parent_id in kept and (begun is None or begun <= until):
            kept[node.thread_id] = node
    return list(kept.values())[1:]


def _time_behind(point: ForkPoint, path: str | os.PathLike[str], home: Home) -> datetime | None:
    """When the first record behind the point was written; None if there is none that says so."""
    with Lineage.resolve(path, home) as lineage:
        for each in lineage.forward(resolve_border(point, lineage).place, lineage.end):
            written = None if each.record.line is None else parse_timestamp(each.record.line.timestamp)
            if written is not None:
                return written
    return None


def _links(node: ThreadNode, root: ThreadNode, ids: Mapping[str, ThreadId]) -> dict[str, Any]:
    """The keys by which the copy of a sub-agent belongs to the copy of its parent."""
    meta, parent = node.meta, ids[node.parent_id or ""]
    source = copy.deepcopy(meta.source)
    spawn = source.get("subagent") if isinstance(source, dict) else None
    spawn = spawn.get("thread_spawn") if isinstance(spawn, dict) else None
    if isinstance(spawn, dict):
        spawn["parent_thread_id"] = parent
    return {
        "session_id": ids[root.thread_id],
        "parent_thread_id": parent,
        "source": source,
        "thread_source": meta.thread_source,
        "agent_nickname": meta.agent_nickname,
        "agent_role": meta.agent_role,
        "agent_path": meta.agent_path,
    }
