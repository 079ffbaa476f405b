"""Forks of whole trees: a thread with its sub-agents."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import ForkRefused, RolloutWriteError, ThreadNotFound
from tests.rollout.faulty import Fault, fails
from tests.thread_store.histories import Script, history, metas, turns, uuid, write_thread
from tests.thread_store.scripted import ScriptedCalls
from thread_store.chain.fork_point import ForkPoint
from thread_store.chain.thread_tree import build_tree
from thread_store.forks.fork import ForkMode
from thread_store.forks.fork_tree import fork_tree
from thread_store.home import Home

A, B, C, D, E, NEW = (uuid(number) for number in (0xA, 0xB, 0xC, 0xD, 0xE, 0xF00))


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def spawn(home: Home, thread_id: str, parent_id: str, *, root_id: str = A, **keys: Any) -> Path:
    """A sub-agent as Codex declares it."""
    thread_spawn = {
        "parent_thread_id": parent_id,
        "depth": 1,
        "agent_nickname": "Ada",
        "agent_role": "tester",
    }
    declared = {
        "parent_thread_id": parent_id,
        "session_id": root_id,
        "source": {"subagent": {"thread_spawn": thread_spawn}},
        "thread_source": "subagent",
        "agent_nickname": "Ada",
        "agent_role": "tester",
        "agent_path": "/main/ada",
    }
    return write_thread(home, thread_id, turns(1), **{**declared, **keys})


@pytest.fixture
def family(home: Home) -> None:
    """A thread, its sub-agent, that one's own, and a fork that is no part of it."""
    write_thread(home, A, turns(2))
    spawn(home, B, A)
    spawn(home, C, B)
    write_thread(home, D, turns(1), forked_from_id=A)


@pytest.mark.usefixtures("family")
@pytest.mark.parametrize("mode", ["copy", "reference"])
def test_copies_of_sub_agents_belong_to_the_copies_of_their_parents(home: Home, mode: ForkMode) -> None:
    """Names, roles and depth stay; the ids in their metas are the new ones."""
    made = fork_tree(A, home=home, thread_id=NEW, mode=mode)
    assert [each.source_thread_id for each in made] == [A, B, C]
    assert made[0].thread_id == NEW
    first, second, third = (metas(each.path)[0] for each in made)
    assert "parent_thread_id" not in first
    assert (second["parent_thread_id"], third["parent_thread_id"]) == (NEW, made[1].thread_id)
    assert second["source"]["subagent"]["thread_spawn"] == {
        "parent_thread_id": NEW,
        "depth": 1,
        "agent_nickname": "Ada",
        "agent_role": "tester",
    }
    assert {each["session_id"] for each in (first, second, third)} == {NEW}
    assert [each["forked_from_id"] for each in (first, second, third)] == [A, B, C]
    assert (second["agent_nickname"], second["agent_path"]) == ("Ada", "/main/ada")
    tree = build_tree(home)
    assert [each.thread_id for each in tree.subagents_of(NEW)] == [each.thread_id for each in made[1:]]
    assert [each.thread_id for each in tree.subagents_of(A)] == [B, C]
    for each in made:
        assert history(each.path, home) == history(tree.nodes[each.source_thread_id or ""].path, home)


def test_sub_agents_that_began_after_the_point_are_left_out(home: Home) -> None:
    """And so are those that they started; without a record behind the point none is."""
    script = Script()
    script.turn(1)
    script.event("task_started", turn_id="t2")
    script.lines[-1] = script.lines[-1].replace(b"T05:06:07.000Z", b"T09:00:00.000Z", 1)
    script.complete("t2")
    write_thread(home, A, script.bytes)
    spawn(home, B, A, timestamp="2026-03-04T08:59:59.000Z")
    spawn(home, C, A, timestamp="2026-03-04T09:00:01.000Z")
    spawn(home, D, C, timestamp="2026-03-04T08:00:00.000Z")
    spawn(home, E, A, timestamp="not a time")
    assert [each.source_thread_id for each in fork_tree(A, home=home, point=ForkPoint.turn(1))] == [A, B, E]
    assert len(fork_tree(A, home=home, point=ForkPoint.turn(2))) == 5
    assert len(fork_tree(A, home=home)) == 5


@pytest.mark.usefixtures("family")
def test_changes_are_the_threads_own(home: Home) -> None:
    """The sub-agents keep theirs."""
    made = fork_tree(A, home=home, meta_changes={"cwd": "/new"})
    assert [metas(each.path)[0]["cwd"] for each in made] == ["/new", "/srv/demo", "/srv/demo"]


@pytest.mark.usefixtures("family")
@pytest.mark.parametrize("first", [1, 2, 3])
def test_failure_of_one_fork_removes_the_others(home: Home, first: int) -> None:
    """All of the tree, or nothing."""
    before = sorted(home.path.rglob("*.jsonl"))
    with pytest.raises(RolloutWriteError):
        fork_tree(A, home=home, calls=ScriptedCalls(Fault("link", fails(28), first)))
    assert sorted(path for path in home.path.rglob("*") if path.is_file()) == before


def test_legacy_sub_agent_refuses_a_reference_of_the_tree(home: Home) -> None:
    """What can't be had for all is made for none."""
    write_thread(home, A, turns(1))
    write_thread(home, B, turns(1, ordinal=None), ordinal=None, parent_thread_id=A)
    with pytest.raises(ForkRefused, match="legacy"):
        fork_tree(A, home=home, mode="reference")
    assert len(list(home.rollouts())) == 2
    assert len(fork_tree(A, home=home)) == 2


@pytest.mark.usefixtures("family")
def test_references_of_a_tree_are_made_under_one_lock(home: Home) -> None:
    """The coordination lock is taken once; for copies it isn't."""
    counts: list[int] = []

    @contextmanager
    def held() -> Iterator[None]:
        counts.append(len(list(home.rollouts())))
        yield
        counts.append(len(list(home.rollouts())))

    fork_tree(A, home=home, mode="reference", coordination=held())
    fork_tree(A, home=home, coordination=held())
    assert counts == [4, 7]


def test_unknown_thread_is_not_found(home: Home) -> None:
    """As everywhere."""
    with pytest.raises(ThreadNotFound):
        fork_tree(A, home=home)
