"""Checks of sub-agents: the links between a thread and those that it started."""

from __future__ import annotations

from protocol.events import EventMsg
from thread_store.store import ThreadStore
from thread_store.subagents import ROOT_PATH
from thread_store.testing.check import Check, begin, collector, expect_equal, said, texts

__all__ = ["CHECKS"]

CHECKS: list[Check] = []

_check = collector(CHECKS)


@_check
async def _subagent_and_parent_name_each_other(store: ThreadStore) -> None:
    """The child's meta has the parent, the depth, nickname, role and path; the parent has an event of it."""
    parent = await begin(store, "a")
    child = await store.create_subagent(parent, nickname="Ada", role="reviewer")
    child.record_nowait(said("b"))
    grandchild = await store.create_subagent(child, nickname="Bob")
    grandchild.record_nowait(said("c"))
    for thread in (grandchild, child, parent):
        await thread.aclose()
    meta = (await store.read_thread(child.thread_id)).meta
    expect_equal(
        (meta.parent_thread_id, meta.session_id, meta.agent_nickname, meta.agent_role, meta.agent_path),
        (parent.thread_id, parent.thread_id, "Ada", "reviewer", f"{ROOT_PATH}/Ada"),
        "the child's meta",
    )
    expect_equal(meta.source["subagent"]["thread_spawn"]["depth"], 1, "the child's depth")
    meta = (await store.read_thread(grandchild.thread_id)).meta
    expect_equal(
        (meta.parent_thread_id, meta.session_id, meta.agent_path),
        (child.thread_id, parent.thread_id, f"{ROOT_PATH}/Ada/Bob"),
        "the grandchild's meta",
    )
    events = [
        (each.agent_thread_id, each.kind)  # type: ignore[attr-defined]
        for each in (await store.read_thread(parent.thread_id)).items()
        if isinstance(each, EventMsg) and type(each).__struct_config__.tag == "sub_agent_activity"
    ]
    expect_equal(events, [(child.thread_id, "started")], "what the parent recorded")


@_check
async def _fork_with_subagents_has_the_whole_tree(store: ThreadStore) -> None:
    """Each sub-agent is forked too, and belongs to the fork and not to the source."""
    parent = await begin(store, "a")
    child = await store.create_subagent(parent, nickname="Ada")
    child.record_nowait(said("b"))
    for thread in (child, parent):
        await thread.aclose()
    known = set(await store.list_ids())
    fork = await store.fork_thread(parent.thread_id, with_subagents=True)
    await fork.aclose()
    new = set(await store.list_ids()) - known
    expect_equal(len(new), 2, "new threads")
    copied = await store.read_thread((new - {fork.thread_id}).pop())
    expect_equal((copied.meta.parent_thread_id, texts(copied)), (fork.thread_id, ["b"]), "the sub-agent")
