"""The links between a thread and its sub-agents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from protocol.errors import InvalidThreadId, RecorderClosed
from protocol.items import RolloutItem
from protocol.meta import SessionMeta
from rollout.config import RecorderConfig
from tests.rollout.recorded import eventually, json_lines
from thread_store.in_memory.store import MemoryThreadStore
from thread_store.local_store import LocalThreadStore
from thread_store.subagents import ROOT_PATH, activity, depth_of, parent_id_of, subagent_meta

PARENT = "01960000-0000-7000-8000-0000000000cc"
CHILD = "01960000-0000-7000-8000-0000000000dd"


def parent_meta(**keys: Any) -> SessionMeta:
    return SessionMeta(**{"id": PARENT, "cwd": "/srv", "model_provider": "mock", **keys})


def test_child_works_where_and_as_its_parent_does() -> None:
    """Folder, provider, mode and repository are the parent's; id, source and links are its own."""
    child = subagent_meta(parent_meta(history_mode="legacy", agent_nickname="Boss", thread_source="user"))
    assert (child.cwd, child.model_provider, child.history_mode) == ("/srv", "mock", "legacy")
    assert child.id not in (None, PARENT)
    assert (child.parent_thread_id, child.thread_source, child.agent_nickname) == (PARENT, "subagent", None)
    assert child.timestamp is None


def test_changes_are_the_childs_own() -> None:
    """What they leave open is the parent's where a child can't be resumed without."""
    changes = SessionMeta(id=CHILD, cwd="/elsewhere", x_task={"prompt": "review"})
    child = subagent_meta(parent_meta(), nickname="Ada", changes=changes)
    assert (child.id, child.cwd, child.x_task) == (CHILD, "/elsewhere", {"prompt": "review"})
    assert (child.model_provider, child.parent_thread_id) == ("mock", PARENT)
    assert (
        subagent_meta(parent_meta(), changes=SessionMeta(cwd="/", model_provider="own")).model_provider
        == "own"
    )


def test_id_that_is_no_uuid_is_refused() -> None:
    """Before anything is made."""
    with pytest.raises(InvalidThreadId):
        subagent_meta(parent_meta(), changes=SessionMeta(id="../x", cwd="/"))


@pytest.mark.parametrize(
    ("names", "path"),
    [
        ({"nickname": "Ada", "role": "reviewer"}, f"{ROOT_PATH}/Ada"),
        ({"role": "reviewer"}, f"{ROOT_PATH}/reviewer"),
        ({"nickname": "Ada", "path": f"{ROOT_PATH}/team/lead"}, f"{ROOT_PATH}/team/lead"),
    ],
)
def test_path_is_below_the_parents(names: dict[str, str], path: str) -> None:
    """By nickname, else by role; or as the caller says. It is the same in both places."""
    child = subagent_meta(parent_meta(), **names)  # type: ignore[arg-type]
    assert child.agent_path == path
    assert child.source["subagent"]["thread_spawn"]["agent_path"] == path


def test_nameless_siblings_have_different_paths() -> None:
    """By their ids."""
    children = [subagent_meta(parent_meta()) for _ in range(2)]
    assert [each.agent_path for each in children] == [f"{ROOT_PATH}/{each.id}" for each in children]


def test_depth_grows_and_the_root_stays() -> None:
    """All agents of a tree have the session of its root."""
    metas = [parent_meta()]
    for _ in range(3):
        metas.append(subagent_meta(metas[-1], nickname="n"))
    assert [depth_of(each) for each in metas] == [0, 1, 2, 3]
    assert [parent_id_of(each) for each in metas[1:]] == [each.id for each in metas[:-1]]
    assert {each.session_id for each in metas[1:]} == {PARENT}
    assert metas[-1].agent_path == f"{ROOT_PATH}/n/n/n"


@pytest.mark.parametrize(
    ("source", "depth", "parent"),
    [
        ("cli", 0, None),
        ({"subagent": "review"}, 0, None),
        ({"subagent": {"other": "x"}}, 0, None),
        ({"subagent": {"thread_spawn": {"parent_thread_id": PARENT, "depth": 2}}}, 2, PARENT),
        ({"subagent": {"thread_spawn": {"parent_thread_id": PARENT}}}, 1, PARENT),
        ({"subagent": {"thread_spawn": {"parent_thread_id": 7, "depth": "x"}}}, 0, None),
        ({"custom": "mine"}, 0, None),
        (None, 0, None),
    ],
)
def test_links_are_read_from_whatever_stands_in_a_meta(
    source: object, depth: int, parent: str | None
) -> None:
    """As Codex writes them, and without falling over what others write."""
    meta = SessionMeta(cwd="/", source=source)
    assert (depth_of(meta), parent_id_of(meta)) == (depth, parent)


@pytest.mark.parametrize("kind", ["started", "interacted", "interrupted", "completed"])
def test_activity_stands_on_both_tracks(kind: str) -> None:
    """As one fact: the same id, child and path."""
    child = subagent_meta(parent_meta(), nickname="Ada")
    event, completed = activity(child, kind)
    assert (event.event_id, event.agent_thread_id, event.kind) == (completed.item.id, child.id, kind)  # type: ignore[attr-defined]
    assert (completed.item.agent_path, completed.item.kind) == (f"{ROOT_PATH}/Ada", kind)  # type: ignore[attr-defined]


@pytest.mark.asyncio
async def test_links_stand_in_both_files(home: Path) -> None:
    """Of each track of the parent one record, and the child's meta line."""
    async with (
        LocalThreadStore(home, collect_git=False) as store,
        await store.create_thread(parent_meta(id=None)) as parent,
        await store.create_subagent(parent, nickname="Ada") as child,
    ):
        child.record_nowait(RolloutItem.raw("x_check", {}))
    events = [each["payload"] for each in json_lines(Path(parent.path)) if each["type"] == "event_msg"]
    assert [each["type"] for each in events] == ["sub_agent_activity", "item_completed"]
    assert events[0]["agent_thread_id"] == events[1]["item"]["agent_thread_id"] == child.thread_id
    written = json_lines(Path(child.path))[0]["payload"]
    assert written["parent_thread_id"] == parent.thread_id


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", ["local", "memory"])
async def test_parent_that_takes_no_more_gets_no_subagent(home: Path, kind: str) -> None:
    """Nothing of the child is left: no rollout, no lock."""
    store = MemoryThreadStore() if kind == "memory" else LocalThreadStore(home, collect_git=False)
    async with store:
        parent = await store.create_thread(parent_meta(id=None))
        await parent.aclose()
        with pytest.raises(RecorderClosed):
            await store.create_subagent(parent, meta=SessionMeta(id=CHILD, cwd="/"))
        await eventually(lambda: not (home / "thread-writer-locks" / f"{CHILD}.lock").exists())
        assert await store.list_ids() == []


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", ["local", "memory"])
async def test_fork_of_a_tree_holds_what_its_subagents_accepted(home: Path, kind: str) -> None:
    """As it does for the source itself: nobody has to flush first, however deep it stands."""
    slow = RecorderConfig(linger_seconds=3600.0, sync_seconds=3600.0)
    store = MemoryThreadStore() if kind == "memory" else LocalThreadStore(home, collect_git=False)
    async with store:
        threads = [await store.create_thread(parent_meta(id=None), config=slow)]
        for _ in range(2):
            threads.append(await store.create_subagent(threads[-1], config=slow))
        for thread in threads:
            thread.record_nowait(RolloutItem.raw("x_check", {"name": "accepted"}))
        threads.append(await store.fork_thread(threads[0].thread_id, with_subagents=True))
        forks = set(await store.list_ids()) - {each.thread_id for each in threads[:-1]}
        assert len(forks) == 3
        for fork in forks:
            items = list((await store.read_thread(fork)).items())
            assert [item for item in items if item.record_type == "x_check"]
