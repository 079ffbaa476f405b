"""Sub-agents: the links between a thread and the threads that it started.

Invariant: the link stands in both: the child's meta names its parent, root, depth, nickname, role
and path; the parent's rollout says that it was started, on both tracks (FORMAT.md, Sub-agents).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import structs

from protocol.event_variants import SubAgentActivity
from protocol.events import EventMsg
from protocol.ids import ThreadId
from protocol.items import RolloutItem
from protocol.meta import SessionMeta
from protocol.timestamps import now_ms
from protocol.turn_items import SubAgentActivityItem

if TYPE_CHECKING:
    from thread_store.thread import OpenThread

__all__ = ["ROOT_PATH", "activity", "depth_of", "family_of", "parent_id_of", "subagent_meta"]

ROOT_PATH = "/root"
"""The path of a thread that no agent started."""


def subagent_meta(
    parent: SessionMeta,
    *,
    nickname: str | None = None,
    role: str | None = None,
    path: str | None = None,
    changes: SessionMeta | None = None,
) -> SessionMeta:
    """The meta of a new sub-agent of the thread whose meta is `parent`; `changes` gives what is its own."""
    thread_id = ThreadId.new() if changes is None or changes.id is None else ThreadId.parse(changes.id)
    path = path or f"{parent.agent_path or ROOT_PATH}/{nickname or role or thread_id}"
    spawned: dict[str, Any] = {
        "parent_thread_id": parent.id,
        "depth": depth_of(parent) + 1,
        "agent_path": path,
        "agent_nickname": nickname,
        "agent_role": role,
    }
    base = changes or SessionMeta(
        cwd=parent.cwd,
        originator=parent.originator,
        model_provider=parent.model_provider,
        history_mode=parent.history_mode,
        git=parent.git,
    )
    return structs.replace(
        base,
        id=str(thread_id),
        session_id=parent.session_id or parent.id,
        model_provider=base.model_provider or parent.model_provider,
        parent_thread_id=parent.id,
        source={"subagent": {"thread_spawn": spawned}},
        thread_source="subagent",
        agent_nickname=nickname,
        agent_role=role,
        agent_path=path,
    )


def parent_id_of(meta: SessionMeta) -> str | None:
    """Whose sub-agent a thread is; None if it is nobody's."""
    named = meta.parent_thread_id or _spawn_of(meta).get("parent_thread_id")
    return named if isinstance(named, str) else None


def family_of(thread_id: str, open_threads: Mapping[Any, OpenThread]) -> list[str]:
    """The ids of a thread, of its sub-agents, and of theirs, as far as these are open."""
    parents = {each.core.thread_id: parent_id_of(each.meta) for each in open_threads.values()}
    family = [str(thread_id)]
    for member in family:  # it grows
        family += [child for child, parent in parents.items() if parent == member and child not in family]
    return family


def depth_of(meta: SessionMeta) -> int:
    """How many agents stand above it."""
    depth = _spawn_of(meta).get("depth")
    return depth if isinstance(depth, int) and depth > 0 else int(parent_id_of(meta) is not None)


def _spawn_of(meta: SessionMeta) -> dict[str, Any]:
    source = meta.source
    subagent = source.get("subagent") if isinstance(source, dict) else None
    spawn = subagent.get("thread_spawn") if isinstance(subagent, dict) else None
    return spawn if isinstance(spawn, dict) else {}


def activity(child: SessionMeta, kind: str) -> list[RolloutItem]:
    """What the parent records of its sub-agent. `kind`: started, interacted, interrupted or completed."""
    event_id, at_ms = str(ThreadId.new()), now_ms()
    thread_id, path = str(child.id), child.agent_path or ROOT_PATH
    return [
        SubAgentActivity(
            event_id=event_id, agent_thread_id=thread_id, agent_path=path, kind=kind, occurred_at_ms=at_ms
        ),
        EventMsg.item_completed(
            SubAgentActivityItem(id=event_id, kind=kind, agent_thread_id=thread_id, agent_path=path),
            completed_at_ms=at_ms,
        ),
    ]
